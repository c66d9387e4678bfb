#include "diagnose_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "leaklab/taxonomy.h"
#include "sparkline.h"
#include "table.h"

namespace leaklab {
namespace {

std::string where(const CodeSite& site) {
  if (site.file.empty()) return "a line that the recording does not name";
  if (site.is_function_alone()) return site.function;
  return fmt::format("{}:{} in {}", site.file, site.line, site.function);
}

// Bytes as people say them; exact below 10 kB.
std::string size_text(double bytes) {
  if (bytes < 10'000) {
    const auto whole = std::floor(bytes);
    return whole == bytes ? fmt::format("{} B", grouped(static_cast<std::int64_t>(whole)))
                          : fmt::format("{:.3f} B", bytes);
  }
  constexpr std::string_view units[] = {"kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  bytes /= 1000;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string size_text(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }

std::string verdict_line(const std::string& file, const Diagnosis& diagnosis, const Style& style) {
  switch (diagnosis.verdict) {
    case Verdict::leak:
      return fmt::format("{}: {}\n", file, tinted("LEAK", Tint::bad, style));
    case Verdict::clean:
      return fmt::format("{}: {}\n", file, tinted("CLEAN", Tint::good, style));
    case Verdict::undecided:
      break;
  }
  return fmt::format("{}: {}\n", file, tinted("UNDECIDED", Tint::warning, style));
}

std::string steps_line(const StepsFound& steps, std::int64_t told) {
  if (steps.seen == 0) return "";
  auto text = fmt::format("{} steps", steps.seen);
  if (steps.count != steps.seen) text += fmt::format(" of {} are in the trace", steps.count);
  const bool as_told = told == 0 || told == steps.seen || told == steps.count;
  if (!as_told) text += fmt::format(", where --steps says {}", told);
  if (steps.source != "given") {
    text += fmt::format(", found by {}", steps.source);
  } else if (as_told) {
    text += ", as given";
  }
  text += fmt::format(" ({:.0f} % sure)", 100 * steps.confidence);
  if (steps.kinds.size() > 1) text += fmt::format(", of kinds: {}", fmt::join(steps.kinds, " + "));
  return text;
}

// Whole units as a caller says them: "80 GiB".
std::string memory_text(std::int64_t bytes) {
  constexpr std::int64_t gibibyte = std::int64_t{1} << 30;
  return bytes % gibibyte == 0 ? fmt::format("{} GiB", bytes / gibibyte) : size_text(bytes);
}

// How long until the device is full, as far as its size is known.
std::string time_left_text(const Diagnosis& diagnosis, const std::optional<TimeLeft>& left) {
  if (diagnosis.bytes_per_step <= 0) return "";
  if (was_full(diagnosis)) {
    const auto step = diagnosis.oom->step;
    return step < 0 ? "The memory was full at the dump."
                    : fmt::format("The memory was full in step {}.", step);
  }
  if (left) {
    const auto when = left->steps == 0 ? "now"
                                       : fmt::format("after {} more step{}", grouped(left->steps),
                                                     left->steps == 1 ? "" : "s");
    return fmt::format("{} of {} is full {} ({} a step in whole blocks, {} reserved at the dump).",
                       left->device > 0 ? fmt::format("Device {}", left->device) : "A device",
                       memory_text(left->memory), when, size_text(left->bytes_per_step),
                       size_text(left->reserved));
  }
  constexpr double gibibyte = 1024.0 * 1024 * 1024;
  return fmt::format(
      "Each {} steps take another GiB; --device-memory 80GiB tells when a device of that size is "
      "full.",
      grouped(static_cast<std::int64_t>(std::ceil(gibibyte / diagnosis.bytes_per_step))));
}

std::string sentence(const Diagnosis& diagnosis, const DiagnoseView& view, const Style& style) {
  std::string text;
  if (diagnosis.verdict == Verdict::leak) {
    const auto& worst = diagnosis.findings.front();
    text =
        fmt::format("{} a step {} left behind since step {}, ", size_text(diagnosis.bytes_per_step),
                    diagnosis.bytes_per_step == 1 ? "is" : "are", diagnosis.onset_step);
    text += diagnosis.findings.size() == 1
                ? fmt::format("allocated at {}.", where(worst.site))
                : fmt::format("most of it allocated at {}.", where(worst.site));
    if (diagnosis.period > 1) text += fmt::format(" It repeats every {} steps.", diagnosis.period);
    text += " " + time_left_text(diagnosis, view.time_left);
  } else if (diagnosis.verdict == Verdict::clean) {
    text = "Nothing is left behind step by step that the same line did not free before.";
  } else if (!diagnosis.limits.empty()) {
    text = "The file can't tell: " + diagnosis.limits.front() + ".";
  }
  return wrapped(text, 2, style) + '\n';
}

constexpr std::size_t least_plot = 16;

// As wide as the terminal allows.
std::string plot(std::string_view label, const std::vector<std::int64_t>& values,
                 const Style& style) {
  if (values.size() < 2) return "";
  constexpr std::size_t indent = 25;
  const auto room = [&](std::size_t most, std::size_t beside) {
    if (style.width == 0) return most;
    return std::min(most, std::max(least_plot + beside, style.width) - beside);
  };
  if (!style.unicode) {
    return fmt::format("  {:22} {}\n", label, gains(values.front(), values, room(60, indent)));
  }
  const auto range = fmt::format("  {} to {}", size_text(values.front()), size_text(values.back()));
  return fmt::format("  {:22} {}{}\n", label, sparkline(values, room(48, indent + range.size())),
                     range);
}

std::string finding_text(const Finding& finding, bool leak, bool frames, const Style& style) {
  const auto rate = finding.bytes_per_step ? size_text(*finding.bytes_per_step) + " a step, " : "";
  auto place = where(finding.site);
  if (finding.device > 0) place += fmt::format(", on device {}", finding.device);
  auto text = fmt::format("\n  {}\n", tinted(place, Tint::bold, style));
  text +=
      wrapped(fmt::format(
                  "{}{} live in {} allocations{}", rate, size_text(finding.live_bytes),
                  grouped(finding.live_allocations),
                  finding.onset_step < 0 ? "" : fmt::format(", since step {}", finding.onset_step)),
              4, style) +
      '\n';
  if (leak) {
    const auto* known = find_class(finding.taxonomy);
    text += wrapped(fmt::format("{} ({:.0f} % sure), class {}{}{}", finding.reason,
                                100 * finding.confidence, finding.taxonomy,
                                known == nullptr ? "" : " ", known == nullptr ? "" : known->name),
                    4, style) +
            '\n';
    text += wrapped("fix: " + finding.fix, 4, style) + '\n';
  }
  if (frames) {
    for (const auto& frame : finding.frames) text += fmt::format("      {}\n", frame);
  }
  return text;
}

std::string oom_text(const FailedAllocation& oom, const Style& style) {
  auto text = fmt::format("\nout of memory: {} asked for{}\n", size_text(oom.request),
                          oom.step < 0 ? "" : fmt::format(" in step {}", oom.step));
  text +=
      wrapped(fmt::format("{} live, {} in segments of which {} hold nothing (longest stretch {}), "
                          "{} free on the device",
                          size_text(oom.live), size_text(oom.reserved), size_text(oom.cached),
                          size_text(oom.largest_free), size_text(oom.device_free)),
              2, style) +
      '\n';
  text += wrapped(oom.reason, 2, style) + '\n';
  for (std::size_t at = 0; at < oom.live_sites.size() && at < 5; ++at) {
    const auto& [site, bytes] = oom.live_sites[at];
    text += fmt::format("  {:>10}  {}\n", size_text(bytes), where(site));
  }
  return text;
}

}  // namespace

bool was_full(const Diagnosis& diagnosis) {
  const auto& oom = diagnosis.oom;
  return oom && oom->request <= oom->reserved + oom->device_free;
}

std::string diagnose_text(const std::string& file, const Diagnosis& diagnosis,
                          const DiagnoseView& view, const Style& style) {
  const bool leak = diagnosis.verdict == Verdict::leak;
  auto text = verdict_line(file, diagnosis, style) + sentence(diagnosis, view, style);
  if (const auto steps = steps_line(diagnosis.steps, view.steps); !steps.empty()) {
    text += '\n' + wrapped(steps, 2, style) + '\n';
  }
  text += plot("live after each step", diagnosis.steps.live_after, style);
  if (leak) text += plot("of it what leaks", diagnosis.steps.leaked_after, style);
  if (leak) text += "\nwhat leaks\n";
  if (!leak && !diagnosis.findings.empty()) text += "\nlive at the dump\n";
  for (const auto& finding : diagnosis.findings) {
    text += finding_text(finding, leak, view.frames, style);
  }
  if (!diagnosis.lookalikes.empty()) text += "\nno leak although it looks so\n";
  for (const auto& each : diagnosis.lookalikes) {
    text +=
        wrapped(fmt::format("{} at {}: {}", size_text(each.bytes), where(each.site), each.reason),
                2, style) +
        '\n';
  }
  if (diagnosis.oom) {
    text += oom_text(*diagnosis.oom, style);
  } else if (diagnosis.peak_bytes > 0 && !diagnosis.peak_sites.empty()) {
    text += fmt::format("\npeak {}, of which\n", size_text(diagnosis.peak_bytes));
    for (std::size_t at = 0; at < diagnosis.peak_sites.size() && at < 3; ++at) {
      const auto& [site, bytes] = diagnosis.peak_sites[at];
      text += fmt::format("  {:>10}  {}\n", size_text(bytes), where(site));
    }
  }
  if (!diagnosis.limits.empty()) text += "\nwhat the recording can't tell\n";
  for (const auto& each : diagnosis.limits) text += wrapped(each, 2, style) + '\n';
  return text;
}

std::string diff_text(const std::string& before, const std::string& after,
                      const std::vector<SiteChange>& changes, const Style& style) {
  if (changes.empty()) return fmt::format("nothing lives in {} beyond {}\n", after, before);
  Table table({{"more bytes", Align::right},
               {"more allocations", Align::right},
               {"live bytes", Align::right},
               {"line", Align::left, Fit::cut}});
  for (const auto& each : changes) {
    table.add({{grouped(each.bytes)},
               {grouped(each.allocations)},
               {grouped(each.live_bytes)},
               {where(each.site)}});
  }
  return fmt::format("what lives in {} beyond {}\n\n{}", after, before, table.text(style));
}

}  // namespace leaklab

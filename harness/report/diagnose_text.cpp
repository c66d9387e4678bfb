#include "diagnose_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "../core/size_text.h"
#include "leaklab/taxonomy.h"
#include "sparkline.h"
#include "table.h"

namespace leaklab {
namespace {

std::string where(const CodeSite& site) {
  if (site.file.empty()) return "an unknown line";
  if (site.is_function_alone()) return site.function;
  return fmt::format("{}:{} in {}", site.file, site.line, site.function);
}

// " on device 1"; nothing where the file has one device only.
std::string on_its_device(const Diagnosis& diagnosis) {
  return has_several_devices(diagnosis) ? " on " + devices_text({diagnosis.device}) : "";
}

// ", on device 1" of a leak or what looks like one; nothing where there is the first one only.
std::string its_device(const Diagnosis& diagnosis, std::int64_t device) {
  return has_several_devices(diagnosis) || device > 0 ? ", on " + devices_text({device}) : "";
}

// Which devices the verdict is of, where the file has several.
std::string on_devices(const Diagnosis& diagnosis) {
  if (!has_several_devices(diagnosis)) return "";
  if (diagnosis.verdict == Verdict::undecided) return on_its_device(diagnosis);
  if (diagnosis.verdict == Verdict::clean) return " on " + devices_text(diagnosis.judged);
  std::set<std::int64_t> leaking;
  for (const auto& finding : diagnosis.findings) leaking.insert(finding.device);
  return " on " + devices_text({leaking.begin(), leaking.end()});
}

// Those that were judged and don't leak, where the verdict is another one.
std::vector<std::int64_t> clean_devices(const Diagnosis& diagnosis) {
  auto clean = diagnosis.judged;
  if (diagnosis.verdict == Verdict::clean) clean.clear();
  // Findings of an undecided file are no leaks.
  if (diagnosis.verdict == Verdict::leak) {
    for (const auto& finding : diagnosis.findings) std::erase(clean, finding.device);
  }
  return has_several_devices(diagnosis) ? clean : std::vector<std::int64_t>();
}

// "Devices 0 and 1", as a sentence begins.
std::string capital_devices_text(const std::vector<std::int64_t>& devices) {
  auto text = devices_text(devices);
  text.front() = 'D';
  return text;
}

std::string verdict_text(Verdict verdict, const Style& style) {
  if (verdict == Verdict::leak) return tinted("LEAK", Tint::bad, style);
  if (verdict == Verdict::clean) return tinted("CLEAN", Tint::good, style);
  return tinted("UNDECIDED", Tint::warning, style);
}

// What else is to be known at once: a program without a leak may need too much memory.
std::string but_out_of_memory(const Diagnosis& diagnosis) {
  if (!diagnosis.oom || diagnosis.verdict == Verdict::leak) return "";
  return fmt::format(
      ", {} out of memory{}", diagnosis.verdict == Verdict::clean ? "but" : "and",
      has_several_devices(diagnosis) ? " on " + devices_text({diagnosis.oom->device}) : "");
}

// How steps were found, in the words of who recorded them.
std::string_view found_by_text(std::string_view source) {
  if (source == "annotations") return "marks of steps";
  if (source == "optimizer") return "the optimizer's marks";
  return source;
}

std::string steps_line(const Diagnosis& diagnosis) {
  const auto& steps = diagnosis.steps;
  if (steps.seen == 0) return "";
  const auto told = steps.asked;
  auto text = counted(steps.seen, "step");
  if (steps.count != steps.seen) text += fmt::format(" of {} are in the trace", steps.count);
  text += on_its_device(diagnosis);
  const bool as_told = told == 0 || told == steps.seen || told == steps.count;
  if (!as_told) text += fmt::format(", where --steps says {}", grouped(told));
  if (steps.source != "given") {
    text += fmt::format(", found by {}", found_by_text(steps.source));
  } else if (as_told) {
    text += ", as given";
  }
  text += fmt::format(" ({:.0f} % sure)", 100 * steps.confidence);
  if (steps.kinds.size() > 1) {
    text += fmt::format(", of {} kinds, such as training and evaluation: {}", steps.kinds.size(),
                        fmt::join(steps.kinds, steps.kinds.size() == 2 ? " and " : ", "));
  }
  return text;
}

// Whether the first finding, which is the fastest one, is half of all that leaks or more.
bool is_most(const Diagnosis& diagnosis) {
  double bytes = 0;  // of the first line, on all devices
  for (const auto& finding : diagnosis.findings) {
    if (finding.site == diagnosis.findings.front().site)
      bytes += finding.bytes_per_step.value_or(0);
  }
  return bytes * 2 >= diagnosis.bytes_per_step;
}

// ", up to 12 steps old (median 6)".
std::string ages_text(const Ages& ages) {
  std::string text;
  if (ages.oldest >= 0) {
    text = fmt::format(", up to {} old (median {})", counted(ages.oldest, "step"),
                       grouped(ages.median));
  }
  if (ages.before_trace > 0) {
    text += fmt::format(", {} of them from before the trace", grouped(ages.before_trace));
  }
  return text;
}

constexpr std::int64_t gibibyte = std::int64_t{1} << 30;

// As a caller says it, "80 GiB", "79.25 GiB", where that has few digits.
std::string memory_text(std::int64_t bytes) {
  return bytes % (gibibyte / 4) == 0 && bytes < 1024 * gibibyte
             ? fmt::format("{:g} GiB", static_cast<double>(bytes) / gibibyte)
             : size_text(bytes);
}

// How long until the device is full, as far as its size is known.
std::string time_left_text(const Diagnosis& diagnosis, const DiagnoseView& view) {
  const auto& left = view.time_left;
  if (diagnosis.rates.empty() || diagnosis.rates.front().block_bytes_per_step <= 0) return "";
  if (was_full(diagnosis)) {
    const auto step = diagnosis.oom->step;
    return fmt::format("The memory was full {}{}.",
                       step < 0 ? "at the dump" : fmt::format("in step {}", step),
                       view.device_memory > 0 ? ", whatever --device-memory says" : "");
  }
  if (left) {
    const auto when =
        left->steps == 0 ? "now" : fmt::format("after {}", counted(left->steps, "more step"));
    return fmt::format(
        "{} of {} is full {} ({} a step in whole blocks of {} B, up to {} needed by recent "
        "steps){}.",
        left->device > 0 ? fmt::format("Device {}", left->device) : "A device",
        memory_text(left->memory), when,
        is_irregular(diagnosis, left->device) ? "about " + about_text(left->bytes_per_step)
                                              : size_text(left->bytes_per_step),
        block_bytes, size_text(left->needed),
        left->reserved - left->needed >= left->memory / 10
            ? fmt::format(
                  ", or earlier: {} more is reserved, and a part of it may be in pieces that "
                  "are too short",
                  size_text(left->reserved - left->needed))
            : "");
  }
  const auto& fastest = diagnosis.rates.front();
  const auto steps = static_cast<std::int64_t>(std::ceil(gibibyte / fastest.block_bytes_per_step));
  return fmt::format(
      "In whole blocks of {} B, each {} another GiB{}; --device-memory 80GiB tells when a device "
      "of "
      "that size is full.",
      block_bytes, steps == 1 ? "step takes" : fmt::format("{} steps take", grouped(steps)),
      diagnosis.rates.size() > 1 ? " of " + devices_text({fastest.device}) : "");
}

std::string sentence(const Diagnosis& diagnosis, const DiagnoseView& view, const Style& style) {
  std::string text;
  if (diagnosis.verdict == Verdict::leak) {
    const auto& worst = diagnosis.findings.front();
    const auto more = leaking_lines(diagnosis) - 1;
    // Of one device the sentence is shorter.
    text = diagnosis.rates.size() > 1
               ? fmt::format("Left behind are {}, ", rates_text(diagnosis, size_text))
           : is_irregular(diagnosis, worst.device)
               ? fmt::format("About {} a step on average are left behind since step {}, ",
                             about_text(diagnosis.bytes_per_step), diagnosis.onset_step)
               : fmt::format("{} a step {} left behind since step {}, ",
                             size_text(diagnosis.bytes_per_step),
                             diagnosis.bytes_per_step == 1 ? "is" : "are", diagnosis.onset_step);
    text += fmt::format("{}allocated at {}{}.", more > 0 && is_most(diagnosis) ? "most of it " : "",
                        where(worst.site),
                        more == 0 || is_most(diagnosis)
                            ? ""
                            : fmt::format(" and {} more line{}", more, more == 1 ? "" : "s"));
    if (diagnosis.period > 1) text += fmt::format(" It repeats every {} steps.", diagnosis.period);
    text += " " + time_left_text(diagnosis, view);
  } else if (diagnosis.verdict == Verdict::clean) {
    text = "No line keeps leaving something behind, step by step or now and then.";
  } else if (!diagnosis.limits.empty()) {
    text = "The file can't tell: " + diagnosis.limits.front() + ".";
  }
  if (diagnosis.verdict != Verdict::undecided && !diagnosis.unjudged.empty()) {
    text += fmt::format(" {} could not be judged.", capital_devices_text(diagnosis.unjudged));
  }
  if (const auto clean = clean_devices(diagnosis); !clean.empty()) {
    text +=
        fmt::format(" {} {} clean.", capital_devices_text(clean), clean.size() == 1 ? "is" : "are");
  }
  return wrapped(text, 2, style) + '\n';
}

constexpr std::size_t least_plot = 16;

// Of bytes or of a number.
using ValueText = std::string (*)(std::int64_t);

// "step 0: 68.7 MiB, step 10: 69.0 MiB, ...": a few of the steps, the last one with them.
std::string points(const std::vector<std::int64_t>& values, std::int64_t first_step,
                   ValueText value_text) {
  constexpr std::size_t most = 4;
  const auto count = std::min(most, values.size());
  std::string text;
  for (std::size_t point = 0; point < count; ++point) {
    const auto at = point * (values.size() - 1) / (count - 1);
    text += fmt::format("{}step {}: {}", point == 0 ? "" : ", ",
                        first_step + static_cast<std::int64_t>(at), value_text(values[at]));
  }
  return text;
}

// As wide as the terminal allows.
std::string plot(std::string_view label, const std::vector<std::int64_t>& values,
                 std::int64_t first_step, const Style& style, ValueText value_text = size_text) {
  if (values.size() < 2) return "";
  constexpr std::size_t indent = 25;
  const auto room = [&](std::size_t most, std::size_t beside) {
    if (style.width == 0) return most;
    return std::min(most, std::max(least_plot + beside, style.width) - beside);
  };
  const auto range =
      fmt::format("  {} to {}", value_text(values.front()), value_text(values.back()));
  // The label has a line of its own where little is left beside it.
  const bool narrow = text_width(style) < indent + least_plot + range.size();
  const auto column = narrow ? 4 : indent;
  const auto start = narrow ? fmt::format("  {}", label) : fmt::format("  {:22} ", label);
  if (!style.unicode) {
    return labelled(start, points(values, first_step, value_text), column, style) + '\n';
  }
  return fmt::format("{}{}{}{}\n", start, narrow ? "\n    " : "",
                     sparkline(values, room(48, column + range.size())), range);
}

std::string finding_text(const Diagnosis& diagnosis, const Finding& finding, bool frames,
                         const Style& style) {
  const bool leak = diagnosis.verdict == Verdict::leak;
  std::string rate;
  if (finding.bytes_per_step) {
    rate = leak && finding.period == 0
               ? fmt::format("about {} a step on average, ", about_text(*finding.bytes_per_step))
               : size_text(*finding.bytes_per_step) + " a step, ";
  }
  auto place = where(finding.site);
  // What is merely live is summed over all devices.
  if (leak) place += its_device(diagnosis, finding.device);
  auto text = fmt::format("\n{}\n", tinted(wrapped(place, 2, style), Tint::bold, style));
  text +=
      wrapped(fmt::format(
                  "{}{} live in {}{}{}", rate, size_text(finding.live_bytes),
                  counted(finding.live_allocations, "allocation"), ages_text(finding.ages),
                  finding.onset_step < 0 ? "" : fmt::format(", since step {}", finding.onset_step)),
              4, style) +
      '\n';
  if (leak) {
    const auto* known = find_class(finding.taxonomy);
    text += wrapped(fmt::format("{}, class {}{}{}", finding.reason, finding.taxonomy,
                                known == nullptr ? "" : " ", known == nullptr ? "" : known->name),
                    4, style) +
            '\n';
    text += wrapped("fix: " + finding.fix, 4, style) + '\n';
  }
  if (frames) {
    for (const auto& frame : finding.frames) text += wrapped(frame, 6, style) + '\n';
  }
  return text;
}

constexpr std::size_t most_oom_sites = 5;
constexpr std::size_t most_peak_sites = 3;

using LiveSites = std::vector<std::pair<CodeSite, std::int64_t>>;

// Whether diagnose_text() lists one.
bool lists_unknown_line(const Diagnosis& diagnosis) {
  const auto is_unknown = [](const CodeSite& site) { return site.file.empty(); };
  const auto has_unknown = [&](const LiveSites& sites, std::size_t most) {
    return std::ranges::any_of(std::span(sites).first(std::min(most, sites.size())), is_unknown,
                               &LiveSites::value_type::first);
  };
  return std::ranges::any_of(diagnosis.findings, is_unknown, &Finding::site) ||
         std::ranges::any_of(diagnosis.lookalikes, is_unknown, &Lookalike::site) ||
         (diagnosis.oom ? has_unknown(diagnosis.oom->live_sites, most_oom_sites)
                        : has_unknown(diagnosis.peak_sites, most_peak_sites));
}

std::string sites_text(const LiveSites& sites, std::size_t most, const Style& style) {
  std::string text;
  for (std::size_t at = 0; at < std::min(most, sites.size()); ++at) {
    const auto& [site, bytes] = sites[at];
    text += labelled(fmt::format("  {:>10}  ", size_text(bytes)), where(site), 14, style) + '\n';
  }
  return text;
}

std::string oom_text(const FailedAllocation& oom, bool several, const Style& style) {
  auto text =
      '\n' +
      wrapped(fmt::format(
                  "out of memory{}: {} asked for{}{}",
                  several ? " on " + devices_text({oom.device}) : "", size_text(oom.request),
                  oom.step < 0 ? "" : fmt::format(" in step {}", oom.step), last_of_failed(oom)),
              0, style) +
      '\n';
  text +=
      wrapped(fmt::format("{} live, {} in segments of which {} hold nothing (longest stretch {}), "
                          "{} free on the device",
                          size_text(oom.live), size_text(oom.reserved), size_text(oom.cached),
                          size_text(oom.largest_free), size_text(oom.device_free)),
              2, style) +
      '\n';
  text += wrapped(oom.reason, 2, style) + '\n';
  return text + sites_text(oom.live_sites, most_oom_sites, style);
}

std::string lookalikes_text(const Diagnosis& diagnosis, const Style& style) {
  if (diagnosis.lookalikes.empty() && diagnosis.device_lookalikes.empty()) return "";
  std::string text = "\nno leak although it looks so\n";
  const auto add = [&](const Lookalike& each, const std::string& place) {
    text += wrapped(fmt::format("{}{}{}: {}", size_text(each.bytes), place,
                                its_device(diagnosis, each.device), each.reason),
                    2, style) +
            '\n';
  };
  for (const auto& each : diagnosis.lookalikes) add(each, " at " + where(each.site));
  for (const auto& each : diagnosis.device_lookalikes) add(each, "");
  return text;
}

// What is reserved at the dump beyond what is live, and in what pieces.
std::string cache_line(const Diagnosis& diagnosis, const Style& style) {
  const auto& cache = diagnosis.cache;
  if (cache.reserved == 0) return "";
  const auto devices = diagnosis.judged.size() + diagnosis.unjudged.size();
  auto text = fmt::format("at the dump{} {} are live and {} reserved",
                          devices > 1 ? fmt::format(", on {} devices together,", devices) : "",
                          size_text(diagnosis.live_bytes), size_text(cache.reserved));
  if (cache.bytes > 0) {
    text += fmt::format(", {} of it cached and unused in {}", size_text(cache.bytes),
                        counted(cache.stretches, "piece"));
    if (cache.stretches > 1) text += fmt::format(" of at most {}", size_text(cache.largest));
  }
  return '\n' + wrapped(text, 0, style) + '\n';
}

// Half a line number or a function that is cut off would be a wrong one; folders may go.
Table changes_table(const std::vector<SiteChange>& changes, bool devices, bool folders,
                    const Style& style) {
  Table table({{"more memory", Align::right},
               {"more allocations", Align::right},
               {"live memory", Align::right},
               {"device", Align::right},
               {"line"}});
  for (const auto& each : changes) {
    auto site = each.site;
    const auto slash = site.file.find_last_of("/\\");
    if (!folders && slash != std::string::npos) {
      site.file.replace(0, slash, style.unicode ? "…" : "...");
    }
    table.add({{size_text(each.bytes)},
               {grouped(each.allocations)},
               {size_text(each.live_bytes)},
               {devices ? std::to_string(each.device) : ""},
               {where(site)}});
  }
  return table;
}

}  // namespace

bool was_full(const Diagnosis& diagnosis) {
  const auto& oom = diagnosis.oom;
  return oom && oom->steps_after == 0 && oom->request <= oom->reserved + oom->device_free;
}

std::string diagnose_text(const std::string& file, const Diagnosis& diagnosis,
                          const DiagnoseView& view, const Style& style) {
  const bool leak = diagnosis.verdict == Verdict::leak;
  auto text = fmt::format("{}: {}{}{}\n", file, verdict_text(diagnosis.verdict, style),
                          on_devices(diagnosis), but_out_of_memory(diagnosis));
  text += sentence(diagnosis, view, style);
  if (const auto steps = steps_line(diagnosis); !steps.empty()) {
    text += '\n' + wrapped(steps, 2, style) + '\n';
  }
  const auto first_step = diagnosis.steps.count - diagnosis.steps.seen;
  text += plot("live after each step", diagnosis.steps.live_after, first_step, style);
  // A leak of small tensors shows in their number alone.
  if (leak) {
    text += plot("allocations live", diagnosis.steps.live_counts, first_step, style,
                 [](std::int64_t count) { return grouped(count); });
  }
  if (leak) text += plot("leaked so far", diagnosis.steps.leaked_after, first_step, style);
  if (leak) text += "\nwhat leaks\n";
  if (!leak && !diagnosis.findings.empty()) text += "\nlive at the dump\n";
  for (const auto& finding : diagnosis.findings) {
    text += finding_text(diagnosis, finding, view.frames, style);
  }
  text += lookalikes_text(diagnosis, style);
  if (diagnosis.oom) {
    text += oom_text(*diagnosis.oom, has_several_devices(diagnosis), style);
  } else if (diagnosis.peak_bytes > 0 && !diagnosis.peak_sites.empty()) {
    text += fmt::format("\npeak {}{}, of which\n", size_text(diagnosis.peak_bytes),
                        on_its_device(diagnosis));
    text += sites_text(diagnosis.peak_sites, most_peak_sites, style);
  }
  text += cache_line(diagnosis, style);
  // The first one of an undecided file is its verdict's sentence.
  const std::size_t told = diagnosis.verdict == Verdict::undecided ? 1 : 0;
  const bool unknown = lists_unknown_line(diagnosis);
  if (diagnosis.limits.size() > told || unknown) text += "\nwhat the recording can't tell\n";
  for (std::size_t at = told; at < diagnosis.limits.size(); ++at) {
    text += wrapped(diagnosis.limits[at], 2, style) + '\n';
  }
  if (unknown) {
    text +=
        wrapped("an unknown line is of a backward pass or a library, or recorded without frames", 2,
                style) +
        '\n';
  }
  return text;
}

std::string diff_text(const std::string& before, const std::string& after,
                      const std::vector<SiteChange>& changes, bool devices, const Style& style) {
  if (changes.empty()) {
    return wrapped(fmt::format("nothing lives in {} beyond {}", after, before), 0, style) + '\n';
  }
  auto text = wrapped(fmt::format("what lives in {} beyond {}", after, before), 0, style) + "\n\n";
  for (const bool folders : {true, false}) {
    const auto table = changes_table(changes, devices, folders, style);
    if (table.fits(style)) return text + table.text(style);
  }
  for (const auto& each : changes) {
    text += tinted(wrapped(where(each.site), 0, style), Tint::bold, style) + '\n' +
            wrapped(fmt::format("{} more, {}, {} live{}", size_text(each.bytes),
                                counted(each.allocations, "more allocation"),
                                size_text(each.live_bytes),
                                devices ? ", on " + devices_text({each.device}) : ""),
                    2, style) +
            '\n';
  }
  return text;
}

}  // namespace leaklab

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "../core/size_text.h"
#include "device_diagnosis.h"
#include "leaklab/diagnosis.h"
#include "lifetimes.h"
#include "memory_levels.h"
#include "out_of_memory.h"
#include "sites.h"

namespace leaklab {
namespace {

// Live blocks by line, those of which there are many alike first.
std::vector<Finding> live_findings(const Snapshot& snapshot, const Sites& sites) {
  struct Live {
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    std::int64_t alike = 0;  // bytes of sizes that the line has at least three times
  };
  std::map<std::pair<FrameId, std::int64_t>, std::int64_t> sizes;
  std::map<FrameId, Live> lines;
  for (const auto& block : snapshot.blocks) {
    if (!is_live(block)) continue;
    const auto frame = sites.stack(block.stack).site;
    const auto bytes = bytes_of(block);
    lines[frame].bytes += bytes;
    ++lines[frame].count;
    ++sizes[{frame, bytes}];
  }
  for (const auto& [key, count] : sizes) {
    if (count >= 3) lines[key.first].alike += key.second * count;
  }
  std::vector<std::pair<FrameId, Live>> order(lines.begin(), lines.end());
  std::ranges::sort(order, [](const auto& left, const auto& right) {
    return std::tuple(right.second.alike, right.second.bytes, left.first) <
           std::tuple(left.second.alike, left.second.bytes, right.first);
  });
  std::vector<Finding> found;
  for (const auto& [frame, live] : order) {
    if (found.size() == 10) break;
    Finding finding;
    finding.site = site_of(snapshot, frame);
    finding.live_bytes = live.bytes;
    finding.live_allocations = live.count;
    finding.confidence = 0;
    finding.reason = live.alike > 0 ? "live at the dump, many of one size" : "live at the dump";
    found.push_back(std::move(finding));
  }
  return found;
}

std::string verdict_sentence(const Diagnosis& diagnosis) {
  const auto& steps = diagnosis.steps;
  const auto unjudged = diagnosis.unjudged.empty() ? ""
                                                   : fmt::format("; {} could not be judged",
                                                                 devices_text(diagnosis.unjudged));
  if (diagnosis.verdict == Verdict::undecided) {
    return fmt::format("Undecided: {}.",
                       diagnosis.limits.empty() ? "the file can't tell" : diagnosis.limits.front());
  }
  if (diagnosis.verdict == Verdict::clean) {
    return fmt::format("No leak: over {} steps no line keeps leaving something behind{}.",
                       fmt::group_digits(steps.seen), unjudged);
  }
  auto text = fmt::format("Leak of {}, at {}", rates_text(diagnosis, bytes_text),
                          named(diagnosis.findings.front().site));
  if (const auto lines = leaking_lines(diagnosis); lines > 1) {
    text += fmt::format(" and {} more line{}", lines - 1, lines == 2 ? "" : "s");
  }
  return text + unjudged + ".";
}

std::string summary_of(const Diagnosis& diagnosis) {
  auto text = verdict_sentence(diagnosis);
  if (!diagnosis.oom) return text;
  const auto& oom = *diagnosis.oom;
  return text +
         fmt::format(" Out of memory{}{}{}: a request of {} failed, as {}.",
                     has_several_devices(diagnosis) ? " on " + devices_text({oom.device}) : "",
                     oom.step < 0 ? "" : fmt::format(" in step {}", oom.step), last_of_failed(oom),
                     size_text(oom.request), oom.reason);
}

// What a device's diagnosis says of the program: a leak before undecided before clean, then by how
// fast it leaks, then by steps. A device that did little next to the others has no doubts to raise.
auto weight(const Diagnosis& diagnosis, bool did_little) {
  const auto verdict = diagnosis.verdict == Verdict::leak    ? 3
                       : diagnosis.verdict == Verdict::clean ? 1
                       : did_little                          ? 0
                                                             : 2;
  return std::tuple(verdict, diagnosis.bytes_per_step, diagnosis.steps.seen);
}

DeviceRate rate_of(const Diagnosis& leaking) {
  DeviceRate rate{leaking.device, leaking.bytes_per_step, 0, leaking.onset_step, 0};
  double bytes = 0;
  for (const auto& finding : leaking.findings) {
    bytes += finding.bytes_per_step.value_or(0);
    rate.block_bytes_per_step += finding.block_bytes_per_step;
  }
  // Leaks together repeat after other periods than each by itself, and their rate is that.
  if (bytes > 0) rate.block_bytes_per_step *= leaking.bytes_per_step / bytes;
  rate.needed = needed_by_steps(leaking.steps.peaks, rate.block_bytes_per_step);
  return rate;
}

// Devices of which the file has live blocks and no history, beside others that have one.
std::map<std::int64_t, std::int64_t> live_without_trace(const Snapshot& snapshot) {
  std::map<std::int64_t, std::int64_t> live;
  for (const auto& segment : snapshot.segments) {
    const auto device = static_cast<std::size_t>(segment.device);
    if (device < snapshot.traces.size() && snapshot.traces[device].size() >= 2) continue;
    for (std::uint32_t each = 0; each < segment.blocks; ++each) {
      const auto& block = snapshot.blocks[segment.first_block + each];
      if (is_live(block)) live[segment.device] += bytes_of(block);
    }
  }
  return live;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::leak:
      return "leak";
    case Verdict::clean:
      return "clean";
    case Verdict::undecided:
      break;
  }
  return "undecided";
}

std::string rates_text(const Diagnosis& diagnosis, std::string (*text)(double bytes)) {
  std::vector<DeviceRate> rates;
  std::vector<std::vector<std::int64_t>> devices;  // of each of them
  for (const auto& each : diagnosis.rates) {
    const auto known = std::ranges::find_if(rates, [&](const DeviceRate& other) {
      return std::pair(other.bytes_per_step, other.onset_step) ==
             std::pair(each.bytes_per_step, each.onset_step);
    });
    if (known == rates.end()) {
      rates.push_back(each);
      devices.push_back({each.device});
    } else {
      devices[static_cast<std::size_t>(known - rates.begin())].push_back(each.device);
    }
  }
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < rates.size(); ++at) {
    const auto where = !has_several_devices(diagnosis) ? ""
                       : devices[at].size() == 1       ? " on " + devices_text(devices[at])
                                                       : " on each of " + devices_text(devices[at]);
    const auto bytes = rates[at].bytes_per_step;
    const auto rate = is_irregular(diagnosis, rates[at].device)
                          ? fmt::format("about {} a step on average", about_text(bytes))
                          : text(bytes) + " a step";
    parts.push_back(fmt::format("{}{} since step {}", rate, where, rates[at].onset_step));
  }
  return fmt::format("{}", fmt::join(parts, parts.size() == 2 ? " and " : ", "));
}

bool is_irregular(const Diagnosis& diagnosis, std::int64_t device) {
  // Leaks of several periods may repeat together after none that was seen; each is exact.
  return diagnosis.verdict == Verdict::leak && diagnosis.period == 0 &&
         std::ranges::any_of(diagnosis.findings, [&](const Finding& finding) {
           return finding.device == device && finding.period == 0 && finding.bytes_per_step;
         });
}

std::string devices_text(const std::vector<std::int64_t>& devices) {
  return fmt::format("device{} {}", devices.size() == 1 ? "" : "s",
                     fmt::join(devices, devices.size() == 2 ? " and " : ", "));
}

bool has_several_devices(const Diagnosis& diagnosis) {
  return diagnosis.judged.size() + diagnosis.unjudged.size() > 1;
}

std::size_t leaking_lines(const Diagnosis& diagnosis) {
  std::set<CodeSite> lines;
  for (const auto& finding : diagnosis.findings) lines.insert(finding.site);
  return lines.size();
}

std::string last_of_failed(const FailedAllocation& oom) {
  if (oom.count < 2) return "";
  return fmt::format(", the last of {} failed allocations", fmt::group_digits(oom.count));
}

Diagnosis diagnose(const Snapshot& snapshot, const DiagnoseOptions& options) {
  const Sites sites(snapshot);
  const auto unused = caches(snapshot);
  std::vector<Diagnosis> devices;
  for (std::size_t device = 0; device < snapshot.traces.size(); ++device) {
    // A single event is what recording of the state alone leaves, unless an allocation failed.
    const auto& trace = snapshot.traces[device];
    if (trace.empty() || (trace.size() == 1 && trace[0].kind != EventKind::oom)) continue;
    if (options.device >= 0 && options.device != static_cast<std::int64_t>(device)) continue;
    auto& each = devices.emplace_back(diagnose_device(snapshot, device, sites, options));
    if (each.verdict == Verdict::leak) each.rates = {rate_of(each)};
    const auto cache = unused.find(each.device);
    if (cache == unused.end()) continue;
    std::ranges::move(unused_memory(each.device, cache->second, snapshot.traces[device]),
                      std::back_inserter(each.device_lookalikes));
  }
  Diagnosis diagnosis;
  const bool is_empty =
      snapshot.segments.empty() &&
      std::ranges::all_of(snapshot.traces, [](const auto& trace) { return trace.empty(); });
  if (is_empty) {
    diagnosis.limits.emplace_back(
        "nothing was allocated in this process, or all was freed and none of it recorded: dump in "
        "the process and rank that uses the GPU");
  } else if (devices.empty()) {
    diagnosis.limits.push_back(
        fmt::format("there is no history in the file, only what is live: call {} before the loop, "
                    "and dump after ten steps or more; with a second snapshot from later, `leaklab "
                    "diff BEFORE AFTER` shows what grew",
                    record_call));
    if (!names_a_live_block(snapshot, sites)) {
      diagnosis.limits.emplace_back("blocks have no frames, so no line can be named");
    }
  } else {
    std::size_t longest = 0;
    for (const auto& trace : snapshot.traces) longest = std::max(longest, trace.size());
    const auto main = std::ranges::max_element(devices, {}, [&](const Diagnosis& each) {
      return weight(each,
                    snapshot.traces[static_cast<std::size_t>(each.device)].size() * 10 < longest);
    });
    std::vector<std::int64_t> judged;
    std::vector<std::int64_t> unjudged;
    for (auto at = devices.begin(); at != devices.end(); ++at) {
      (at->verdict == Verdict::undecided ? unjudged : judged).push_back(at->device);
      if (at == main) continue;
      if (at->verdict == Verdict::leak) {
        if (at->steps.seen != main->steps.seen) {
          main->limits.push_back(
              fmt::format("device {} has {} steps of its own, to which its bytes a step refer",
                          at->device, fmt::group_digits(at->steps.seen)));
        }
        // Only if they repeat together.
        if (at->period != main->period) main->period = 0;
        main->bytes_per_step += at->bytes_per_step;
        main->onset_step = std::min(main->onset_step, at->onset_step);
        std::ranges::move(at->findings, std::back_inserter(main->findings));
        std::ranges::move(at->rates, std::back_inserter(main->rates));
      } else if (at->verdict == Verdict::undecided) {
        main->limits.push_back(fmt::format("device {}: {}", at->device, at->limits.front()));
      }
      std::ranges::move(at->lookalikes, std::back_inserter(main->lookalikes));
      std::ranges::move(at->device_lookalikes, std::back_inserter(main->device_lookalikes));
      if (!main->oom) main->oom = std::move(at->oom);
    }
    diagnosis = std::move(*main);
    if (options.device < 0) {
      for (const auto& [device, bytes] : live_without_trace(snapshot)) {
        unjudged.push_back(device);
        diagnosis.limits.push_back(
            fmt::format("there is no trace of device {}, on which {} are live: call {} before "
                        "the loop",
                        device, size_text(bytes), record_call));
      }
    }
    std::ranges::sort(unjudged);
    diagnosis.judged = std::move(judged);
    diagnosis.unjudged = std::move(unjudged);
    std::ranges::stable_sort(diagnosis.rates, std::greater{}, &DeviceRate::block_bytes_per_step);
    std::ranges::stable_sort(diagnosis.lookalikes, std::greater{}, &Lookalike::bytes);
    std::ranges::stable_sort(diagnosis.device_lookalikes, std::greater{}, &Lookalike::bytes);
    diagnosis.lookalikes.resize(std::min(diagnosis.lookalikes.size(), most_lookalikes));
    std::ranges::stable_sort(diagnosis.findings, std::greater{}, [](const Finding& finding) {
      return finding.bytes_per_step.value_or(0);
    });
  }
  if (diagnosis.verdict == Verdict::undecided) diagnosis.findings = live_findings(snapshot, sites);
  for (const auto& block : snapshot.blocks) {
    if (is_live(block)) diagnosis.live_bytes += bytes_of(block);
  }
  for (const auto& [device, each] : unused) {
    diagnosis.cache.reserved += each.reserved;
    diagnosis.cache.bytes += each.bytes;
    diagnosis.cache.releasable += each.releasable;
    diagnosis.cache.releasable_later += each.releasable_later;
    diagnosis.cache.stretches += each.stretches;
    diagnosis.cache.largest = std::max(diagnosis.cache.largest, each.largest);
  }
  diagnosis.steps.asked = options.steps;
  diagnosis.summary = summary_of(diagnosis);
  return diagnosis;
}

}  // namespace leaklab

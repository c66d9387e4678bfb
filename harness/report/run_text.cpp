#include "run_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "leaklab/judging.h"
#include "movement.h"
#include "sparkline.h"
#include "table.h"

namespace leaklab {
namespace {

std::string heading(const Recording& recording) {
  const auto& environment = recording.environment;
  auto text = fmt::format(
      "{}, {} twin: {} steps, of which {} warm up, on {}, LibTorch {}\n", recording.scenario,
      to_string(recording.twin), recording.steps, recording.warmup,
      environment.backend == "cpu" ? "the CPU" : environment.device, environment.libtorch);
  if (recording.params.empty()) return text;
  std::vector<std::string> params;
  for (const auto& [name, value] : recording.params) {
    params.push_back(fmt::format("{}={}", name, value));
  }
  return text + fmt::format("{}\n", fmt::join(params, " "));
}

std::string signature_text(const Recording& recording, const std::string& channel,
                           const Series& series) {
  const auto signature = signature_of(recording, channel);
  if (signature.shape == Shape::flat) return "flat";
  auto text = fmt::format("{}", to_string(signature.shape));
  if (signature.shape != Shape::sawtooth) {
    text += fmt::format(" {}{}", signature.growth > 0 ? "+" : "", grouped(signature.growth));
  }
  if (signature.period > 1) text += fmt::format(" per {} steps", signature.period);
  if (signature.onset >= 0) text += fmt::format(" from {}", signature.onset);
  return series.trusted ? text : text + " (not trusted)";
}

}  // namespace

std::string run_text(const Recording& recording, const std::vector<std::string>& channels,
                     const Style& style) {
  Table table({{"channel", Align::left, Fit::cut},
               {"unit"},
               {style.unicode ? "series" : "gains", Align::left, Fit::left_out},
               {"start", Align::right},
               {"last", Align::right},
               {"settled", Align::right},
               {"signature"}});
  std::map<std::string, std::vector<std::string>> absent;
  for (const auto& [name, series] : recording.channels) {
    if (!channels.empty() && std::ranges::find(channels, name) == channels.end()) continue;
    if (!series.absent.empty()) {
      absent[series.absent].push_back(name);
      continue;
    }
    const auto signature = signature_text(recording, name, series);
    table.add(
        {{name},
         {series.unit},
         {style.unicode ? sparkline(series.values, 20) : gains(series.start, series.values, 20)},
         {grouped(series.start)},
         {grouped(series.values.empty() ? series.start : series.values.back())},
         {grouped(series.settled)},
         {signature, signature == "flat" ? Tint::dim : Tint::warning}});
  }
  auto text = heading(recording) + "\n" + table.text(style);
  if (!absent.empty()) text += "\nnot measured here\n";
  for (const auto& [reason, names] : absent) {
    text += wrapped(fmt::format("{}: {}", fmt::join(names, ", "), reason), 2, style) + '\n';
  }
  if (!recording.sites.empty()) text += "\nallocated after the warm-up and never freed\n";
  for (const auto& site : recording.sites) {
    text += fmt::format("  {} B in {}  {}\n", grouped(site.bytes), grouped(site.count), site.where);
  }
  return text + fmt::format("\n{} allocator events, hash {}\n", recording.events,
                            hash_text(recording.event_hash));
}

}  // namespace leaklab

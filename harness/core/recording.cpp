#include "leaklab/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "document.h"
#include "leaklab/error.h"
#include "leaklab/judging.h"

namespace leaklab {

std::string Environment::folder() const {
  if (backend == "cpu") return "cpu";
  // "NVIDIA H200" -> "cuda-h200", "NVIDIA GeForce RTX 4090" -> "cuda-geforce-rtx-4090".
  std::string slug;
  for (const char c : device.starts_with("NVIDIA ") ? device.substr(7) : device) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      slug += static_cast<char>(std::tolower(byte));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (slug.ends_with('-')) slug.pop_back();
  return "cuda-" + slug;
}

std::string Environment::difference(const Environment& other) const {
  const auto differs = [](std::string_view what, const std::string& here,
                          const std::string& there) {
    return here == there
               ? std::string()
               : fmt::format("{} is {} here, {} there", what, here.empty() ? "none" : here,
                             there.empty() ? "none" : there);
  };
  for (auto text :
       {differs("backend", backend, other.backend), differs("LibTorch", libtorch, other.libtorch),
        differs("CUDA", cuda, other.cuda), differs("device", device, other.device),
        differs("architecture", arch, other.arch),
        differs("allocator setting", allocator, other.allocator)}) {
    if (!text.empty()) return text;
  }
  return {};
}

nlohmann::json to_json(const Environment& environment) {
  return {{"backend", environment.backend},     {"libtorch", environment.libtorch},
          {"cuda", environment.cuda},           {"device", environment.device},
          {"arch", environment.arch},           {"driver", environment.driver},
          {"allocator", environment.allocator}, {"devices", environment.devices}};
}

Environment environment_from_json(const nlohmann::json& document, std::string_view origin) {
  const Document doc(document, origin);
  Environment environment;
  environment.backend = doc.text("backend");
  environment.libtorch = doc.text("libtorch");
  environment.cuda = doc.text("cuda");
  environment.device = doc.text("device");
  environment.arch = doc.text("arch");
  environment.driver = doc.text("driver");
  environment.allocator = doc.text("allocator");
  environment.devices = doc.integer("devices");
  return environment;
}

nlohmann::json to_json(const Recording& recording) {
  nlohmann::json channels = nlohmann::json::object();
  for (const auto& [name, series] : recording.channels) {
    if (!series.absent.empty()) {
      channels[name] = {{"absent", series.absent}};
      continue;
    }
    channels[name] = {{"unit", series.unit},       {"exact", series.exact},
                      {"trusted", series.trusted}, {"start", series.start},
                      {"series", series.values},   {"released", series.released},
                      {"settled", series.settled}};
    channels[name]["signature"] = to_json(signature_of(recording, name));
  }
  nlohmann::json sites = nlohmann::json::array();
  for (const auto& site : recording.sites) {
    sites.push_back({{"where", site.where}, {"bytes", site.bytes}, {"count", site.count}});
  }
  return {{"schema", schema_version},
          {"scenario", recording.scenario},
          {"twin", to_string(recording.twin)},
          {"params", recording.params},
          {"steps", recording.steps},
          {"warmup", recording.warmup},
          {"environment", to_json(recording.environment)},
          {"channels", channels},
          {"event_hash", hash_text(recording.event_hash)},
          {"events", recording.events},
          {"sites", sites},
          {"skipped", recording.skipped}};
}

Recording recording_from_json(const nlohmann::json& document, std::string_view origin) {
  const Document doc(document, origin);
  doc.require_schema(schema_version);
  Recording recording;
  recording.scenario = doc.text("scenario");
  recording.twin = doc.twin("twin");
  recording.params = doc.integers("params");
  recording.steps = doc.integer("steps");
  recording.warmup = doc.integer("warmup");
  recording.environment = environment_from_json(doc.object("environment"), origin);
  recording.event_hash = doc.hash("event_hash");
  recording.events = doc.integer("events");
  recording.skipped = doc.text("skipped");
  for (const auto& [name, value] : doc.object("channels").items()) {
    const Document channel(value, fmt::format("{}: channel {}", origin, name));
    Series series;
    if (value.contains("absent")) {
      series.absent = channel.text("absent");
    } else {
      series.unit = channel.text("unit");
      series.exact = channel.boolean("exact");
      series.trusted = channel.boolean("trusted");
      series.start = channel.integer("start");
      series.values = channel.series("series");
      series.released = channel.integer("released");
      series.settled = channel.integer("settled");
    }
    recording.channels.emplace(name, std::move(series));
  }
  for (const auto& value : doc.array("sites")) {
    const Document site(value, fmt::format("{}: site", origin));
    recording.sites.push_back({site.text("where"), site.integer("bytes"), site.integer("count")});
  }
  return recording;
}

Signature signature_of(const Recording& recording, std::string_view channel) {
  const auto found = recording.channels.find(channel);
  if (found == recording.channels.end() || !found->second.absent.empty()) {
    throw InternalError(
        fmt::format("recording of '{}' has no channel '{}'", recording.scenario, channel));
  }
  const auto& series = found->second;
  std::span<const std::int64_t> peaks;
  if (channel == "requested") {
    if (const auto peak = recording.channels.find("peak"); peak != recording.channels.end()) {
      peaks = peak->second.values;
    }
  }
  return classify(series.values, peaks, {recording.warmup, tolerance_of(channel, series)});
}

std::int64_t tolerance_of(std::string_view channel, const Series& series) {
  if (series.exact) return 0;
  const auto* known = find_channel(channel);
  return known != nullptr ? known->tolerance : inexact_gauge_tolerance;
}

}  // namespace leaklab

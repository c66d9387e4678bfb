#include "leaklab/baseline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "document.h"
#include "leaklab/error.h"
#include "leaklab/file.h"
#include "leaklab/judging.h"

namespace leaklab {
namespace {

// Gains of each step as [gain, steps] pairs; the first gain counts from `start`.
nlohmann::json encode(const BaselineChannel& channel) {
  nlohmann::json runs = nlohmann::json::array();
  std::int64_t level = channel.start;
  for (const auto value : channel.values) {
    const auto gain = value - level;
    level = value;
    if (!runs.empty() && runs.back()[0] == gain) {
      runs.back()[1] = runs.back()[1].get<std::int64_t>() + 1;
    } else {
      runs.push_back({gain, 1});
    }
  }
  return runs;
}

std::vector<std::int64_t> decode(const Document& channel, std::int64_t start, std::int64_t steps) {
  std::vector<std::int64_t> values;
  std::int64_t level = start;
  for (const auto& run : channel.array("gains")) {
    if (!run.is_array() || run.size() != 2 || !run[0].is_number_integer() ||
        !run[1].is_number_integer()) {
      channel.fail("has something else than [gain, steps] under 'gains'");
    }
    const auto count = run[1].get<std::int64_t>();
    // A broken count must not make us allocate what the document can't mean.
    if (count < 1 || count > steps - static_cast<std::int64_t>(values.size())) {
      channel.fail(fmt::format("has gains for more than its {} steps", steps));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      if (__builtin_add_overflow(level, run[0].get<std::int64_t>(), &level)) {
        channel.fail("has gains beyond the range of 64 bits");
      }
      values.push_back(level);
    }
  }
  if (static_cast<std::int64_t>(values.size()) != steps) {
    channel.fail(fmt::format("has gains for {} steps, not {}", values.size(), steps));
  }
  return values;
}

nlohmann::json to_json(const BaselineChannel& channel) {
  if (!channel.absent.empty()) return {{"absent", channel.absent}};
  nlohmann::json json{
      {"unit", channel.unit}, {"exact", channel.exact}, {"signature", to_json(channel.signature)}};
  if (channel.exact) {
    json["start"] = channel.start;
    json["gains"] = encode(channel);
    json["released"] = channel.released;
    json["settled"] = channel.settled;
  } else {
    json["growth"] = channel.growth;
  }
  return json;
}

BaselineChannel channel_from(const nlohmann::json& value, const std::string& origin,
                             std::int64_t steps) {
  const Document doc(value, origin);
  BaselineChannel channel;
  if (value.contains("absent")) {
    channel.absent = doc.text("absent");
    if (channel.absent.empty()) doc.fail("has no reason under 'absent'");
    return channel;
  }
  channel.unit = doc.text("unit");
  channel.exact = doc.boolean("exact");
  const Document signature(doc.object("signature"), origin + ": signature");
  channel.signature = {signature.shape("kind"), signature.integer("growth"),
                       signature.integer("period"), signature.integer("onset")};
  if (channel.exact) {
    channel.start = doc.integer("start");
    channel.values = decode(doc, channel.start, steps);
    channel.released = doc.integer("released");
    channel.settled = doc.integer("settled");
  } else {
    channel.growth = doc.integer("growth");
  }
  return channel;
}

}  // namespace

std::int64_t growth_of(const Recording& recording, const Series& series) {
  const auto base = static_cast<std::size_t>(recording.warmup - 1);
  if (series.values.size() <= base) return 0;
  return series.values.back() - series.values[base];
}

BaselineTwin baseline_of(const Recording& recording) {
  BaselineTwin twin{recording.event_hash, recording.events, {}};
  for (const auto& [name, series] : recording.channels) {
    // What a channel that lies has to say is no baseline.
    if (!series.trusted) continue;
    BaselineChannel channel;
    channel.absent = series.absent;
    if (series.absent.empty()) {
      channel.unit = series.unit;
      channel.exact = series.exact;
      channel.signature = signature_of(recording, name);
      channel.growth = growth_of(recording, series);
      if (series.exact) {
        channel.start = series.start;
        channel.values = series.values;
        channel.released = series.released;
        channel.settled = series.settled;
      }
    }
    twin.channels.emplace(name, std::move(channel));
  }
  return twin;
}

nlohmann::json to_json(const Baseline& baseline) {
  nlohmann::json twins = nlohmann::json::object();
  for (const auto& [name, twin] : baseline.twins) {
    nlohmann::json channels = nlohmann::json::object();
    for (const auto& [channel, stored] : twin.channels) channels[channel] = to_json(stored);
    twins[std::string(to_string(name))] = {{"event_hash", hash_text(twin.event_hash)},
                                           {"events", twin.events},
                                           {"channels", channels}};
  }
  return {{"schema", schema_version},
          {"scenario", baseline.scenario},
          {"environment", to_json(baseline.environment)},
          {"command", baseline.command},
          {"params", baseline.params},
          {"steps", baseline.steps},
          {"warmup", baseline.warmup},
          {"twins", twins}};
}

Baseline baseline_from_text(const std::string& text, const std::string& origin) {
  nlohmann::json document;
  try {
    document = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    // The parser counts the end of the text as one more byte.
    const auto what = error.byte > text.size()
                          ? fmt::format("is cut off after {} bytes", text.size())
                          : fmt::format("is not JSON at byte {} of {}", error.byte, text.size());
    throw UsageError(
        fmt::format("{} {}; restore it or record it anew with `leaklab record`", origin, what));
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(
        fmt::format("{} can't be read as JSON: {}; restore it or record it anew with "
                    "`leaklab record`",
                    origin, error.what()));
  }
  const Document doc(document, origin);
  doc.require_schema(schema_version);
  Baseline baseline;
  baseline.scenario = doc.text("scenario");
  baseline.environment = environment_from_json(doc.object("environment"), origin);
  baseline.command = doc.text("command");
  baseline.params = doc.integers("params");
  baseline.steps = doc.integer("steps");
  baseline.warmup = doc.integer("warmup");
  if (baseline.warmup < 1 || baseline.steps <= baseline.warmup || baseline.steps > 1'000'000) {
    doc.fail("has a number of steps or a warm-up that no run can have");
  }
  for (const auto& [name, value] : doc.object("twins").items()) {
    if (name != "fixed" && name != "leaky") doc.fail(fmt::format("has a twin named '{}'", name));
    const auto place = fmt::format("{}: {}", origin, name);
    const Document twin_doc(value, place);
    BaselineTwin twin{twin_doc.hash("event_hash"), twin_doc.integer("events"), {}};
    for (const auto& [channel, stored] : twin_doc.object("channels").items()) {
      twin.channels.emplace(
          channel, channel_from(stored, fmt::format("{}.{}", place, channel), baseline.steps));
    }
    baseline.twins.emplace(name == "leaky" ? Twin::leaky : Twin::fixed, std::move(twin));
  }
  return baseline;
}

std::filesystem::path baseline_path(const std::filesystem::path& root,
                                    const Environment& environment, const std::string& scenario) {
  return root / environment.folder() / (scenario + ".json");
}

std::optional<Baseline> load_baseline(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  auto baseline = baseline_from_text(read_file(path), path.string());
  if (baseline.scenario != path.stem()) {
    throw UsageError(
        fmt::format("{} is a baseline of '{}'; restore it or record it anew with "
                    "`leaklab record`",
                    path.string(), baseline.scenario));
  }
  return baseline;
}

void save_baseline(const std::filesystem::path& path, const Baseline& baseline) {
  write_file(path, to_text(to_json(baseline)));
}

}  // namespace leaklab

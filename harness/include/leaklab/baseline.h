// Stored growth, and what differs from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaklab/recording.h"
#include "leaklab/signature.h"

namespace leaklab {

// What a recording should have been on one channel, and was not.
struct Difference {
  enum class Direction { more, less, other };
  std::string channel;
  std::string unit;
  std::string source;  // "baseline" or "oracle"
  std::string expected;
  std::string got;
  std::string allowed;
  std::int64_t first_step = -1;  // the first step that differs; -1: not in a step
  Direction direction = Direction::other;
};

// One sentence: "requested grew 1024 B per step, expected 512 (oracle), allowed 0, from step 4".
std::string to_string(const Difference& difference);
nlohmann::json to_json(const Difference& difference);

// What is stored of one channel of one twin.
struct BaselineChannel {
  std::string unit;
  bool exact = false;
  std::string absent;
  Signature signature;
  std::int64_t growth = 0;           // gained over the judged steps; tolerant channels
  std::int64_t start = 0;            // exact channels, with all that follows
  std::vector<std::int64_t> values;  // stored as run-length-coded deltas
  std::int64_t released = 0;
  std::int64_t settled = 0;
};

struct BaselineTwin {
  std::uint64_t event_hash = 0;
  std::int64_t events = 0;
  std::map<std::string, BaselineChannel, std::less<>> channels;
};

// The stored growth of one scenario in one environment: baselines/FOLDER/ID.json.
struct Baseline {
  std::string scenario;
  Environment environment;
  std::string command;  // that recorded it
  std::map<std::string, std::int64_t, std::less<>> params;
  std::int64_t steps = 0;
  std::int64_t warmup = 0;
  std::map<Twin, BaselineTwin> twins;
};

BaselineTwin baseline_of(const Recording& recording);

nlohmann::json to_json(const Baseline& baseline);
// Throws UsageError naming `origin` for text that is cut off, not JSON, of another schema version
// or of another shape, and says how to record it anew.
Baseline baseline_from_text(const std::string& text, const std::string& origin);

std::filesystem::path baseline_path(const std::filesystem::path& root,
                                    const Environment& environment, const std::string& scenario);
// Nothing where the file does not exist. Throws as baseline_from_text.
std::optional<Baseline> load_baseline(const std::filesystem::path& path);
// Written whole or not at all; throws as write_file().
void save_baseline(const std::filesystem::path& path, const Baseline& baseline);

// Differences between what is stored and what was measured. Exact channels: to the byte, at every
// step from the end of the warm-up on, with the levels after release and after the caches were
// emptied, and the event hash of the whole run. Tolerant ones: growth over the judged steps.
std::vector<Difference> compare(const BaselineTwin& expected, const Recording& got);

// Differences between what the scenario predicts and what was measured. Needs no baseline.
std::vector<Difference> compare(const Growth& expected, const Recording& got);

// The differences between two recordings of the same run, for `record`: what was not the same, the
// warm-up included.
std::vector<Difference> compare(const Recording& first, const Recording& second);

}  // namespace leaklab

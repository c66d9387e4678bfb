#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/device_diagnosis.h"
#include "command.h"
#include "leaklab/import.h"
#include "leaklab/isolation.h"
#include "options.h"
#include "report/replay_text.h"

namespace leaklab {
namespace {

struct Options {
  std::string file;
  std::string env = "auto";
  std::int64_t device = -1;
  StepOptions steps;
  std::int64_t time_limit = 600;
  std::string json;
};

std::vector<ReplayedLevel> replayed(const History& history, const Environment& environment,
                                    const Options& options) {
  const Job job{[&] {
    auto rows = nlohmann::json::array();
    for (const auto& level : engine()->replay(history, environment.backend)) {
      rows.push_back({level.live.requested, level.live.allocations, level.reserved});
    }
    return rows.dump();
  }};
  IsolationOptions isolation;
  isolation.time_limit = std::chrono::seconds(options.time_limit);
  const auto child = run_isolated({job}, isolation).front();
  if (child.ending != Ending::finished) {
    std::fputs(child.log.c_str(), stderr);
    if (child.ending == Ending::oom) {
      throw UnavailableError(fmt::format("{} needs more memory than {} has: {}",
                                         input_name(options.file), environment.device,
                                         child.detail));
    }
    throw Error(
        child.ending == Ending::timeout ? Exit::nothing_ran : Exit::internal,
        fmt::format("the replay of {} did not finish: {}{}", input_name(options.file), child.detail,
                    child.ending == Ending::timeout ? "; --time-limit gives it more" : ""));
  }
  std::vector<ReplayedLevel> levels;
  for (const auto& row : nlohmann::json::parse(child.payload)) {
    levels.push_back({{row[0], row[1]}, row[2]});
  }
  return levels;
}

Exit run(const Options& options) {
  keep({options.file}, "--json", options.json);
  if (engine() == nullptr) resolve_environment(options.env);  // throws, and says what to do
  const auto snapshot = read_input(options.file);
  std::size_t device = 0;
  std::vector<std::int64_t> with_events;
  for (std::size_t i = 0; i < snapshot.traces.size(); ++i) {
    if (snapshot.traces[i].size() > snapshot.traces[device].size()) device = i;
    if (!snapshot.traces[i].empty()) with_events.push_back(static_cast<std::int64_t>(i));
  }
  if (with_events.empty()) {
    throw Error(Exit::undecided,
                fmt::format("{} has no events, so nothing can be replayed: record with {}",
                            input_name(options.file), record_call));
  }
  if (options.device >= 0) {
    if (std::ranges::find(with_events, options.device) == with_events.end()) {
      throw UsageError(fmt::format(
          "{} has no events of device {}, only of {}; give one that has or leave --device out",
          input_name(options.file), options.device, devices_text(with_events)));
    }
    device = static_cast<std::size_t>(options.device);
  }
  const auto asked = options.steps.asked();
  Replay replay;
  replay.filed = file_levels(snapshot, device, asked);
  if (!replay.filed.has_steps && (asked.steps > 0 || !asked.step_file.empty())) {
    throw Error(Exit::undecided,
                fmt::format("{}: {}", input_name(options.file), replay.filed.why_none));
  }
  const auto history = history_of(snapshot, device, asked);
  const auto environment = resolve_environment(options.env);
  replay.got = replayed(history, environment, options);
  replay.has_rest = history.has_rest;
  replay.segments = environment.backend == "cuda";  // the CPU's allocator has none
  replay.events = std::ssize(history.events);
  if (with_events.size() > 1) replay.device = static_cast<std::int64_t>(device);
  replay.on = environment.device;

  bool same = true;
  auto rows = nlohmann::json::array();
  for (std::size_t level = 0; level < replay.got.size(); ++level) {
    const auto& want = replay.filed.levels[level];
    const auto& got = replay.got[level];
    same = same && is_equal(replay, level);
    rows.push_back({{"requested", want.requested},
                    {"requested_replayed", got.live.requested},
                    {"live", want.allocations},
                    {"live_replayed", got.live.allocations},
                    {"reserved", replay.filed.reserved[level]}});
    if (replay.segments) rows.back()["reserved_replayed"] = got.reserved;
  }
  print(options.json,
        {{"file", options.file},
         {"device", device},
         {"environment", to_json(environment)},
         {"equal", same},
         {"levels", rows}},
        replay_text(replay, style_of(stdout)));
  return same ? Exit::ok : Exit::finding;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("FILE", options->file, "a memory snapshot; '-': standard input")->required();
  add_env(app, options->env);
  add_number(app, "--device", options->device, 0, 1023,
             "of the file; default: the one with most events");
  options->steps.add_to(app);
  add_time_limit(app, options->time_limit);
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"replay",
     "Performs the allocations of a memory snapshot and compares what the allocator says.",
     "  leaklab replay snapshot.pickle --env cpu\n"
     "  leaklab replay snapshot.pickle --json replay.json",
     {{Exit::ok, "all levels are equal"},
      {Exit::finding, "a level differs"},
      {Exit::nothing_ran, "it can't run here or not within the time limit"},
      {Exit::undecided, "the file has no events or not the steps that it is said to have"}},
     add}};

}  // namespace
}  // namespace leaklab

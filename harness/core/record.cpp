#include <fmt/format.h>

#include <algorithm>

#include "leaklab/suite.h"
#include "runner.h"

namespace leaklab {
namespace {

// Why two runs of one twin make no baseline, or "".
std::string refusal(const Task& task, const ChildResult& first, const ChildResult& second) {
  for (const auto* child : {&first, &second}) {
    if (child->ending != Ending::finished) {
      return fmt::format("{} was {}: {}", name_of(task), to_string(outcome_of(child->ending)),
                         child->detail);
    }
  }
  const auto recording = recording_of(task, first);
  if (!recording.skipped.empty()) return {};
  const auto differences = compare(recording, recording_of(task, second));
  if (!differences.empty()) {
    return fmt::format("two runs of {} differ: {}", name_of(task), to_string(differences.front()));
  }
  const auto judged = judge(*task.scenario, task.config, recording, std::nullopt);
  if (judged.outcome != Outcome::missing) {
    return fmt::format("{} is {}: {}", name_of(task), to_string(judged.outcome), judged.reason);
  }
  return {};
}

// The tasks of one scenario are at `first` and after it, their children two a task.
RecordResult conclude(const std::vector<Task>& tasks, std::size_t first, std::size_t count,
                      const std::vector<ChildResult>& children, const SuiteOptions& options,
                      const std::string& command) {
  RecordResult result;
  result.id = tasks[first].scenario->id;
  Baseline baseline;
  for (std::size_t i = first; i < first + count; ++i) {
    result.reason = refusal(tasks[i], children[2 * i], children[2 * i + 1]);
    if (!result.reason.empty()) return result;
    const auto recording = recording_of(tasks[i], children[2 * i]);
    if (!recording.skipped.empty()) {
      result.skipped = true;
      result.reason = recording.skipped;
      return result;
    }
    baseline.scenario = recording.scenario;
    baseline.environment = recording.environment;
    baseline.command =
        fmt::format("{} {} --env {}", command, result.id, recording.environment.backend);
    baseline.params = recording.params;
    baseline.steps = recording.steps;
    baseline.warmup = recording.warmup;
    baseline.twins[recording.twin] = baseline_of(recording);
  }
  result.file = baseline_path(options.baselines, baseline.environment, result.id);
  try {
    save_baseline(result.file, baseline);
    result.written = true;
  } catch (const Error& error) {
    // The others may still be written, and what was written is told.
    result.failed = true;
    result.code = error.code();
    result.reason = error.what();
  }
  return result;
}

}  // namespace

std::vector<RecordResult> record(const std::vector<const Scenario*>& selected,
                                 const SuiteOptions& options, const std::string& command) {
  const auto environment = resolve_environment(options.env);
  std::vector<RecordResult> results;
  std::vector<Task> tasks;
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const auto* scenario : in_order(selected)) {
    if (const auto reason = why_skipped(*scenario, environment); !reason.empty()) {
      results.push_back({scenario->id, false, true, false, reason, {}});
      continue;
    }
    const auto own = tasks_of(*scenario, environment, options);
    ranges.emplace_back(tasks.size(), own.size());
    tasks.insert(tasks.end(), own.begin(), own.end());
  }
  std::vector<Task> twice;
  for (const auto& task : tasks) twice.insert(twice.end(), 2, task);
  Runner runner(options);
  runner.expect(twice.size());
  const auto children = runner.run(twice);
  for (const auto& [first, count] : ranges) {
    results.push_back(conclude(tasks, first, count, children, options, command));
  }
  std::ranges::sort(results, {}, &RecordResult::id);
  return results;
}

}  // namespace leaklab

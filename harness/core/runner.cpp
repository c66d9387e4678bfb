#include "runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

namespace leaklab {
namespace {

Job job_of(const Task& task) {
  return {[task] { return to_json(engine()->execute(*task.scenario, task.config)).dump(); }};
}

}  // namespace

std::string name_of(const Task& task) {
  return fmt::format("{} ({})", task.scenario->id, to_string(task.config.twin));
}

Recording recording_of(const Task& task, const ChildResult& child) {
  return recording_from_json(nlohmann::json::parse(child.payload), name_of(task));
}

Outcome outcome_of(Ending ending) {
  if (ending == Ending::timeout) return Outcome::timeout;
  return ending == Ending::oom ? Outcome::oom : Outcome::crashed;
}

std::vector<Task> tasks_of(const Scenario& scenario, const Environment& environment,
                           const SuiteOptions& options) {
  std::vector<Task> tasks;
  for (const auto twin : scenario.twins()) {
    tasks.push_back({&scenario, make_config(scenario, environment, twin, options)});
  }
  return tasks;
}

std::vector<const Scenario*> in_order(std::vector<const Scenario*> selected) {
  const auto id = [](const Scenario* scenario) { return std::string_view(scenario->id); };
  std::ranges::sort(selected, {}, id);
  const auto same = [&](const auto* left, const auto* right) { return id(left) == id(right); };
  selected.erase(std::unique(selected.begin(), selected.end(), same), selected.end());
  return selected;
}

std::vector<ChildResult> Runner::run(const std::vector<Task>& tasks) {
  std::vector<Job> jobs;
  for (const auto& task : tasks) jobs.push_back(job_of(task));
  IsolationOptions isolation;
  isolation.at_once = options_.jobs != 0 ? options_.jobs : std::thread::hardware_concurrency();
  isolation.time_limit = options_.time_limit;
  const auto tell = [&](std::size_t job) {
    if (options_.progress) options_.progress(done_, all_, name_of(tasks[job]));
  };
  isolation.on_start = tell;
  isolation.on_end = [&](std::size_t job, const ChildResult&) { ++done_, tell(job); };
  return run_isolated(jobs, isolation);
}

ChildResult run_once(const Scenario& scenario, const RunConfig& config,
                     std::chrono::milliseconds time_limit) {
  IsolationOptions options;
  options.time_limit = time_limit;
  return run_isolated({job_of({&scenario, config})}, options).front();
}

}  // namespace leaklab

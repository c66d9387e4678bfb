#include <fmt/format.h>

#include <algorithm>

#include "leaklab/suite.h"
#include "runner.h"

namespace leaklab {
namespace {

// One scenario, with all that can be wrong about it known before anything runs.
struct Plan {
  const Scenario* scenario = nullptr;
  std::vector<Task> tasks;
  std::optional<Baseline> baseline;
  std::string skipped;
  std::string repeat;
};

Plan plan(const Scenario& scenario, const Environment& environment, const SuiteOptions& options) {
  Plan plan;
  plan.scenario = &scenario;
  plan.tasks = tasks_of(scenario, environment, options);
  plan.skipped = why_skipped(scenario, environment);
  if (plan.skipped.empty() && !options.baselines.empty()) {
    plan.baseline = load_baseline(baseline_path(options.baselines, environment, scenario.id));
  }
  plan.repeat = fmt::format("leaklab check {} --env {}", scenario.id, environment.backend);
  if (options.steps != 0) plan.repeat += fmt::format(" --steps {}", options.steps);
  return plan;
}

CheckResult conclude(const Plan& plan, const Task& task, const ChildResult* child) {
  CheckResult result;
  if (child != nullptr && child->ending == Ending::finished) {
    result = judge(*task.scenario, task.config, recording_of(task, *child), plan.baseline);
  } else {
    result.id = task.scenario->id;
    result.twin = task.config.twin;
    result.outcome = child == nullptr ? Outcome::skipped : outcome_of(child->ending);
    result.reason = child == nullptr ? plan.skipped : child->detail;
    if (child != nullptr) result.log = child->log;
  }
  result.repeat = plan.repeat;
  return result;
}

bool grew_too_much(const CheckResult& result) {
  return result.outcome == Outcome::regression ||
         std::ranges::any_of(result.differences, [](const auto& difference) {
           return difference.direction == Difference::Direction::more;
         });
}

// Runs what grew too much once more, to tell where.
void find_sites(Runner& runner, const std::vector<Task>& tasks,
                const std::vector<CheckResult*>& results) {
  std::vector<Task> again;
  std::vector<CheckResult*> grown;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!grew_too_much(*results[i])) continue;
    again.push_back(tasks[i]);
    again.back().config.sites = true;
    grown.push_back(results[i]);
  }
  runner.expect(again.size());
  const auto children = runner.run(again);
  for (std::size_t i = 0; i < again.size(); ++i) {
    if (children[i].ending != Ending::finished) continue;
    grown[i]->sites = recording_of(again[i], children[i]).sites;
  }
}

std::vector<CheckResult> run_plans(Runner& runner, const std::vector<Plan>& plans) {
  std::vector<Task> tasks;
  for (const auto& plan : plans) {
    if (plan.skipped.empty()) tasks.insert(tasks.end(), plan.tasks.begin(), plan.tasks.end());
  }
  const auto children = runner.run(tasks);
  std::vector<CheckResult> results;
  std::vector<std::size_t> ran;
  for (const auto& plan : plans) {
    for (const auto& task : plan.tasks) {
      const bool runs = plan.skipped.empty();
      const auto* child = runs ? &children[ran.size()] : nullptr;
      if (runs) ran.push_back(results.size());
      results.push_back(conclude(plan, task, child));
    }
  }
  std::vector<CheckResult*> of_tasks;
  for (const auto index : ran) of_tasks.push_back(&results[index]);
  find_sites(runner, tasks, of_tasks);
  return results;
}

// A control shows that the instruments see: its own expectation must be met, whatever its baseline
// says.
bool holds(const CheckResult& control) {
  switch (control.outcome) {
    case Outcome::crashed:
    case Outcome::timeout:
    case Outcome::oom:
    case Outcome::invalid:
      return false;
    default:
      return std::ranges::none_of(control.differences, [](const auto& difference) {
        return difference.source == "oracle";
      });
  }
}

void invalidate(CheckResult& result, const CheckResult& control) {
  if (result.outcome == Outcome::skipped) return;
  auto reason = fmt::format("control '{}' ({}) failed, so nothing else counts: {}", control.id,
                            to_string(control.twin), control.reason);
  if (result.outcome != Outcome::pass) {
    reason += fmt::format("; by itself this run was {}{}{}", to_string(result.outcome),
                          result.reason.empty() ? "" : ": ", result.reason);
  }
  result.outcome = Outcome::invalid;
  result.reason = std::move(reason);
}

}  // namespace

CheckReport check(const std::vector<const Scenario*>& selected, const SuiteOptions& options) {
  CheckReport report;
  report.environment = resolve_environment(options.env);
  std::vector<Plan> controls;
  std::vector<Plan> others;
  std::vector<std::string_view> wanted;
  for (const auto* scenario : in_order(selected)) {
    const bool first = options.controls && scenario->kind() == Kind::control;
    (first ? controls : others).push_back(plan(*scenario, report.environment, options));
    wanted.push_back(scenario->id);
  }
  const auto is_wanted = [&](const std::string& id) {
    return std::ranges::binary_search(wanted, id);
  };
  if (options.controls) {
    auto by_default = options;
    by_default.params.clear();
    by_default.steps = 0;
    for (const auto& scenario : scenarios()) {
      if (scenario.kind() != Kind::control || is_wanted(scenario.id)) continue;
      controls.push_back(plan(scenario, report.environment, by_default));
    }
  }

  Runner runner(options);
  for (const auto* plans : {&controls, &others}) {
    for (const auto& plan : *plans) {
      if (plan.skipped.empty()) runner.expect(plan.tasks.size());
    }
  }
  auto control_results = run_plans(runner, controls);
  report.results = run_plans(runner, others);
  const auto failed = std::ranges::find_if_not(control_results, holds);
  if (failed != control_results.end()) {
    for (auto& result : report.results) invalidate(result, *failed);
  }
  for (auto& result : control_results) {
    if (is_wanted(result.id) || !holds(result)) {
      report.results.push_back(std::move(result));
    } else if (result.outcome != Outcome::skipped) {
      ++report.controls;
    }
  }
  std::ranges::sort(report.results, {}, [](const auto& result) {
    return std::pair(std::string_view(result.id), result.twin);
  });
  return report;
}

}  // namespace leaklab

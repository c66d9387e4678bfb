// Many runs, each in a process of its own: what `check` and `record` have in common.
#pragma once

#include <string>
#include <vector>

#include "leaklab/suite.h"

namespace leaklab {

struct Task {
  const Scenario* scenario;
  RunConfig config;
};

// "zero_grad_sparse (leaky)".
std::string name_of(const Task& task);
Recording recording_of(const Task& task, const ChildResult& child);
Outcome outcome_of(Ending ending);
// One for each twin.
std::vector<Task> tasks_of(const Scenario& scenario, const Environment& environment,
                           const SuiteOptions& options);
// Sorted by id, each once.
std::vector<const Scenario*> in_order(std::vector<const Scenario*> selected);

// Runs tasks and tells its caller how many of all are done.
class Runner {
 public:
  explicit Runner(const SuiteOptions& options) : options_(options) {}
  // So many more runs will follow.
  void expect(std::size_t runs) { all_ += runs; }
  std::vector<ChildResult> run(const std::vector<Task>& tasks);

 private:
  const SuiteOptions& options_;
  std::size_t done_ = 0;
  std::size_t all_ = 0;
};

}  // namespace leaklab

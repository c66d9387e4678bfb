// Running many scenarios, each in a process of its own, and judging them.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "leaklab/baseline.h"
#include "leaklab/engine.h"
#include "leaklab/error.h"
#include "leaklab/isolation.h"
#include "leaklab/recording.h"

namespace leaklab {

enum class Outcome {
  pass,
  regression,  // grew more than stored or predicted, or differently
  win,         // grew less: record a new baseline
  missing,     // no baseline; the oracle was met
  ambiguous,   // the baseline is of another environment; the oracle was met
  invalid,     // a control failed, or the leaky twin did not leak
  skipped,
  crashed,
  timeout,
  oom,
};

std::string_view to_string(Outcome outcome);  // "PASS"
// True for the outcomes that make `check` fail.
bool is_failure(Outcome outcome);

struct CheckResult {
  std::string id;
  Twin twin = Twin::fixed;
  Outcome outcome = Outcome::pass;
  std::string reason;
  std::string repeat;  // the command that repeats it
  std::vector<Difference> differences;
  std::vector<Site> sites;  // of a run that grew where it should not
  std::string log;          // what the child printed; failed runs only
  Recording recording;      // empty unless the run finished
};

struct SuiteOptions {
  std::string env = "auto";  // "auto", "cpu" or "cuda"
  std::filesystem::path baselines;
  std::size_t jobs = 0;  // 0: one a core
  std::chrono::milliseconds time_limit{120000};
  std::map<std::string, std::int64_t> params = {};
  std::int64_t steps = 0;  // 0: the scenario's own
  bool controls = true;    // run the controls first, whatever was selected
  // Called as runs end, for progress.
  std::function<void(std::size_t done, std::size_t all, const std::string& running)> progress = {};
};

struct CheckReport {
  Environment environment;
  std::vector<CheckResult> results;  // sorted by id, then fixed before leaky
  // Runs of controls that nobody selected and that held; those that failed are among the results.
  std::int64_t controls = 0;
  std::map<Outcome, std::int64_t> counts() const;
  // Exit::nothing_ran where every result was skipped. `strict`: a missing or an ambiguous baseline
  // is a finding too.
  Exit exit_code(bool strict = false) const;
};

// Describes the environment asked for, in a child. "auto" is CUDA where there is a usable GPU, else
// the CPU. Throws UnavailableError with the reason where it can't be used.
Environment resolve_environment(const std::string& env);

// Why the scenario can't run there, or "".
std::string why_skipped(const Scenario& scenario, const Environment& environment);

// A scenario's parameters in an environment, with its ranks: one a GPU, two on the CPU.
Setting setting_of(const Scenario& scenario, const Environment& environment,
                   const std::map<std::string, std::int64_t>& params);

// Runs one twin in a child process of its own.
ChildResult run_once(const Scenario& scenario, const RunConfig& config,
                     std::chrono::milliseconds time_limit);
RunConfig make_config(const Scenario& scenario, const Environment& environment, Twin twin,
                      const SuiteOptions& options);

// The outcome of one finished run: pure, so that it is tested without running anything.
CheckResult judge(const Scenario& scenario, const RunConfig& config, const Recording& recording,
                  const std::optional<Baseline>& baseline);

// Runs the controls first: where a planted leak is missed, every result is INVALID. Throws
// UnavailableError where nothing can run, UsageError for a baseline that can't be read, for unknown
// parameters and for too few steps, all before anything runs.
CheckReport check(const std::vector<const Scenario*>& selected, const SuiteOptions& options);

nlohmann::json to_json(const CheckReport& report);

// What `record` did with one scenario: wrote it, or why not.
struct RecordResult {
  std::string id;
  bool written = false;
  bool skipped = false;
  bool failed = false;         // it could not be stored
  std::string reason;          // what differed between the two runs, or why it could not run
  std::filesystem::path file;  // where it was written
  Exit code = Exit::ok;        // of what failed
};

// Runs every twin twice, in separate processes, and writes the baselines that were equal and meet
// what the scenario predicts. `command`, with the scenario and the environment behind it, is stored
// as what recorded them. Throws as check() does.
std::vector<RecordResult> record(const std::vector<const Scenario*>& selected,
                                 const SuiteOptions& options, const std::string& command);

}  // namespace leaklab

// What every scenario must keep, run over the whole registry: a new file is tested by being there.
//
// Runs on the CPU; LEAKLAB_TEST_ENV=cuda runs the same tests on the GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostream>
#include <thread>

#include "leaklab/diagnosis.h"
#include "leaklab/error.h"
#include "leaklab/file.h"
#include "leaklab/judging.h"
#include "leaklab/suite.h"
#include "leaklab/taxonomy.h"

namespace leaklab {

// How GoogleTest names the parameter; its bytes would hold addresses.
static void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.id; }

namespace {

const Environment& environment() {
  static const Environment resolved = [] {
    const char* name = std::getenv("LEAKLAB_TEST_ENV");
    return resolve_environment(name == nullptr ? "cpu" : name);
  }();
  return resolved;
}

class Contract : public testing::TestWithParam<Scenario> {
 protected:
  const Scenario& scenario() const { return GetParam(); }

  void skip_where_it_cannot_run() const {
    if (const auto reason = why_skipped(scenario(), environment()); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
  }

  RunConfig config(Twin twin, const std::map<std::string, std::int64_t>& params = {}) const {
    SuiteOptions options;
    options.params = params;
    return make_config(scenario(), environment(), twin, options);
  }

  // Runs each configuration in a process of its own.
  std::vector<Recording> run(const std::vector<RunConfig>& configs) const {
    std::vector<Job> jobs;
    for (const auto& config : configs) {
      jobs.push_back(
          {[this, config] { return to_json(engine()->execute(scenario(), config)).dump(); }});
    }
    IsolationOptions options;
    options.at_once = std::max(1U, std::thread::hardware_concurrency());
    options.time_limit = std::chrono::minutes(4);
    std::vector<Recording> recordings;
    for (const auto& result : run_isolated(jobs, options)) {
      EXPECT_EQ(result.ending, Ending::finished) << result.detail << "\n" << result.log;
      if (result.ending != Ending::finished) return {};
      recordings.push_back(recording_from_json(nlohmann::json::parse(result.payload), "child"));
    }
    return recordings;
  }

  // The oracle alone: baselines are `check`'s business.
  void expect_predicted(const RunConfig& config, const Recording& recording) const {
    const auto result = judge(scenario(), config, recording, std::nullopt);
    std::string text;
    for (const auto& difference : result.differences) text += "\n  " + to_string(difference);
    EXPECT_EQ(result.outcome, Outcome::missing)
        << scenario().id << " " << to_string(config.twin) << " with "
        << nlohmann::json(config.setting.values()).dump() << ": " << to_string(result.outcome)
        << text;
  }
};

TEST(Registry, has_scenarios_without_faults) {
  EXPECT_FALSE(scenarios().empty());
  for (const auto& fault : registry_faults()) ADD_FAILURE() << fault;
}

TEST_P(Contract, its_twins_grow_as_its_shapes_predict) {
  skip_where_it_cannot_run();
  if (IsSkipped()) return;
  std::vector<RunConfig> configs;
  for (const auto twin : scenario().twins()) configs.push_back(config(twin));
  const auto recordings = run(configs);
  for (std::size_t i = 0; i < recordings.size(); ++i) expect_predicted(configs[i], recordings[i]);
}

// Each process has its addresses elsewhere.
TEST_P(Contract, twenty_processes_give_the_same_exact_channels_and_hash) {
  skip_where_it_cannot_run();
  if (IsSkipped()) return;
  for (const auto twin : scenario().twins()) {
    const auto recordings = run(std::vector<RunConfig>(20, config(twin)));
    if (recordings.empty()) return;
    for (const auto& recording : recordings) {
      for (const auto& [name, series] : recordings[0].channels) {
        if (!series.exact) continue;
        EXPECT_EQ(series.values, recording.channels.at(name).values) << name;
      }
      EXPECT_EQ(recordings[0].event_hash, recording.event_hash) << to_string(twin);
    }
  }
}

// The growth of requested bytes, as somebody reads it off a memory snapshot of the run.
TEST_P(Contract, a_snapshot_of_it_is_diagnosed_as_it_grows) {
  skip_where_it_cannot_run();
  if (IsSkipped() || scenario().kind() == Kind::control) return;
  for (const auto twin : scenario().twins()) {
    auto recorded = config(twin);
    const auto file = std::filesystem::temp_directory_path() /
                      fmt::format("leaklab_{}_{}.pickle", getpid(), scenario().id);
    recorded.snapshot = file;
    const auto recordings = run({recorded});
    ASSERT_FALSE(recordings.empty());
    Diagnosis found;
    ASSERT_NO_THROW(found = diagnose(read_snapshot(file)));
    std::filesystem::remove(file);
    const auto growth = scenario().growth(recorded.setting, twin);
    // A lookalike may fill a cache up to its bound.
    const auto added = twin == Twin::leaky ? growth.per_period("requested") : 0;
    const auto rate = static_cast<double>(added) / static_cast<double>(growth.period());
    EXPECT_EQ(found.verdict, rate > 0 ? Verdict::leak : Verdict::clean)
        << to_string(twin) << ": " << found.summary;
    // What leaks may take the place of something smaller, and the warm-up counts as well.
    EXPECT_NEAR(found.bytes_per_step, rate, 0.02 * rate) << to_string(twin);
  }
}

// Every parameter at the ends of its range and beside its default, the others at their defaults;
// then all at their lower ends.
TEST_P(Contract, other_parameters_give_the_growth_that_they_predict) {
  skip_where_it_cannot_run();
  if (IsSkipped()) return;
  std::vector<std::map<std::string, std::int64_t>> settings;
  std::map<std::string, std::int64_t> lowest;
  for (const auto& param : scenario().params) {
    lowest[param.name] = param.min;
    for (const auto value : {param.min, std::min(param.value + 1, param.max), param.max}) {
      if (value != param.value) settings.push_back({{param.name, value}});
    }
  }
  if (settings.empty()) GTEST_SKIP() << "it has no parameters";
  settings.push_back(lowest);
  std::vector<RunConfig> configs;
  for (const auto& setting : settings) {
    for (const auto twin : scenario().twins()) configs.push_back(config(twin, setting));
  }
  const auto recordings = run(configs);
  for (std::size_t i = 0; i < recordings.size(); ++i) expect_predicted(configs[i], recordings[i]);
}

TEST_P(Contract, its_metadata_says_what_a_reader_needs) {
  EXPECT_NE(find_class(scenario().taxonomy), nullptr);
  EXPECT_FALSE(scenario().summary.ends_with('.')) << "a summary is a clause, without a full stop";
  EXPECT_EQ(scenario().reports.empty(), scenario().kind() == Kind::control);
  for (const auto& param : scenario().params) EXPECT_FALSE(param.help.empty()) << param.name;
}

TEST_P(Contract, its_file_is_short_and_its_twins_differ_by_the_fault_alone) {
  const auto text = read_file(scenario().file);
  const auto lines = std::ranges::count(text, '\n');
  EXPECT_GE(lines, 15);
  EXPECT_LE(lines, 60);
  EXPECT_TRUE(text.starts_with("// ")) << "the first line is one sentence of cause";
  EXPECT_EQ(text.find("Twin"), std::string::npos) << "the body knows its twin by run.fault() alone";
  const bool asks = text.find("run.fault()") != std::string::npos;
  EXPECT_EQ(asks, scenario().twins().size() == 2) << "a fault has two twins, and two twins a fault";
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Contract, testing::ValuesIn(scenarios()),
                         [](const auto& tested) { return tested.param.id; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Contract);

}  // namespace
}  // namespace leaklab

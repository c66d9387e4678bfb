#include "leaklab/registry.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "leaklab/isolation.h"

namespace leaklab {
namespace {

using testing::HasSubstr;

// In a process of its own: what is registered stays so.
std::string faults_of(const std::vector<Scenario>& scenarios) {
  const Job job{[&] {
    for (const auto& scenario : scenarios) static_cast<void>(Registration(scenario));
    return fmt::format("{}", fmt::join(registry_faults(), "\n"));
  }};
  return run_isolated({job}, {}).front().payload;
}

Scenario good(const std::string& id) {
  Scenario scenario;
  scenario.id = id;
  scenario.file = "scenarios/" + id + ".cpp";
  scenario.taxonomy = "L20";
  scenario.summary = "a tensor is kept";
  scenario.fix = "keep none";
  scenario.expect = [](const Setting&) { return Growth().tensor(512); };
  return scenario;
}

TEST(Registry, has_no_faults_where_every_scenario_says_what_it_must) {
  EXPECT_EQ(faults_of({good("a"), good("b")}), "");
}

TEST(Registry, tells_all_faults_together_each_with_its_file) {
  auto twice = good("a");
  twice.file = "scenarios/a_again.cpp";
  auto mute = good("mute");
  mute.summary.clear();
  mute.fix.clear();
  mute.expect = nullptr;
  auto lost = good("lost");
  lost.taxonomy = "L99";
  lost.needs = {"cdua", "gpus:two"};
  auto short_run = good("short_run");
  short_run.steps = short_run.warmup;
  const auto faults = faults_of({good("a"), twice, mute, lost, short_run});
  for (const auto* fault : {
           "scenarios/a_again.cpp: scenario 'a' has an id that scenarios/a.cpp has already",
           "scenarios/a_again.cpp: scenario 'a' must be in a file named a.cpp",
           "scenarios/mute.cpp: scenario 'mute' has no summary",
           "scenarios/mute.cpp: scenario 'mute' is a leak with no fix",
           "scenarios/mute.cpp: scenario 'mute' is a leak with no expectation",
           "scenarios/lost.cpp: scenario 'lost' has the unknown class 'L99'",
           "scenarios/lost.cpp: scenario 'lost' needs 'cdua'",
           "scenarios/lost.cpp: scenario 'lost' needs 'gpus:two'",
           "scenarios/short_run.cpp: scenario 'short_run' needs at least one step of warm-up",
       }) {
    EXPECT_THAT(faults, HasSubstr(fault));
  }
}

}  // namespace
}  // namespace leaklab

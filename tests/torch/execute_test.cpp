// What the engine makes of a scenario that can't go on.
#include <gtest/gtest.h>

#include "leaklab/isolation.h"
#include "leaklab/scenario.h"
#include "leaklab/suite.h"

namespace leaklab {
namespace {

ChildResult ran(const std::function<void(Run&)>& body, const std::string& env) {
  Scenario scenario;
  scenario.id = "made";
  scenario.taxonomy = "C02";
  scenario.body = body;
  const auto environment = resolve_environment(env);
  return run_once(scenario, make_config(scenario, environment, Twin::fixed, {}),
                  std::chrono::minutes(1));
}

void ask_for_a_pebibyte(Run& run) {
  run.step([&](Step) {
    const auto bytes = std::int64_t{1} << 50;
    torch::empty({bytes}, torch::dtype(torch::kByte).device(run.device()));
  });
}

TEST(Execute, memory_that_the_cpu_does_not_have_ends_the_run_as_out_of_memory) {
  const auto child = ran(&ask_for_a_pebibyte, "cpu");
  EXPECT_EQ(child.ending, Ending::oom);
  EXPECT_NE(child.detail.find("1125899906842624 bytes"), std::string::npos) << child.detail;
}

TEST(Execute, memory_that_a_gpu_does_not_have_ends_the_run_as_out_of_memory) {
  try {
    resolve_environment("cuda");
  } catch (const UnavailableError& error) {
    GTEST_SKIP() << error.what();
  }
  const auto child = ran(&ask_for_a_pebibyte, "cuda");
  EXPECT_EQ(child.ending, Ending::oom);
  EXPECT_NE(child.detail.find("out of memory"), std::string::npos) << child.detail;
}

TEST(Execute, what_this_build_lacks_skips_the_run_with_its_reason) {
  const auto child = ran([](auto&) { throw UnavailableError("this build has no NCCL"); }, "cpu");
  EXPECT_EQ(child.ending, Ending::finished);
  EXPECT_NE(child.payload.find("this build has no NCCL"), std::string::npos);
}

}  // namespace
}  // namespace leaklab

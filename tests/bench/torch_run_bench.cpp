// What a run costs beyond the scenario's own work: from the fork to the recording in the parent.
#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>
#include <string>

#include "leaklab/scenario.h"
#include "leaklab/suite.h"

namespace leaklab {
namespace {

// A scenario without any work of its own.
Scenario empty_scenario() {
  Scenario scenario;
  scenario.id = "empty";
  scenario.taxonomy = "C02";
  scenario.body = [](Run& run) { run.step([](Step) {}); };
  return scenario;
}

// The parent never touches CUDA: all of it is in the children.
void fork_to_recording(benchmark::State& state, const std::string& env) {
  const auto scenario = empty_scenario();
  Environment environment;
  try {
    environment = resolve_environment(env);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
    return;
  }
  const auto config = make_config(scenario, environment, Twin::fixed, {});
  for (auto _ : state) {
    const auto child = run_once(scenario, config, std::chrono::minutes(1));
    if (child.ending != Ending::finished) state.SkipWithError(child.detail.c_str());
    benchmark::DoNotOptimize(recording_from_json(nlohmann::json::parse(child.payload), "child"));
  }
}

BENCHMARK_CAPTURE(fork_to_recording, cpu, std::string("cpu"))
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(fork_to_recording, cuda, std::string("cuda"))
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(10);

}  // namespace
}  // namespace leaklab

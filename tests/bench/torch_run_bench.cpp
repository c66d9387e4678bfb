// What a run costs beyond the scenario's own work: from the fork to the recording in the parent.
#include <benchmark/benchmark.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "leaklab/isolation.h"
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
  using Clock = std::chrono::steady_clock;
  const Job job{[&] { return to_json(engine()->execute(scenario, config)).dump(); }};
  for (auto _ : state) {
    const auto begin = Clock::now();
    Clock::time_point end;
    IsolationOptions options;
    options.on_end = [&](std::size_t, const ChildResult& child) {
      if (child.ending != Ending::finished) state.SkipWithError(child.detail.c_str());
      benchmark::DoNotOptimize(recording_from_json(nlohmann::json::parse(child.payload), "child"));
      end = Clock::now();
    };
    run_isolated({job}, options);
    // The next run would start now, while the child's process is being taken down.
    state.SetIterationTime(std::chrono::duration<double>(end - begin).count());
  }
}

BENCHMARK_CAPTURE(fork_to_recording, cpu, std::string("cpu"))
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime();
BENCHMARK_CAPTURE(fork_to_recording, cuda, std::string("cuda"))
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(10);

}  // namespace
}  // namespace leaklab

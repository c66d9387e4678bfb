// What one sample of the default channels costs, and what all recording adds to a step of 5 ms.
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <limits>

#include "leaklab/engine.h"
#include "leaklab/error.h"
#include "leaklab/event_log.h"
#include "leaklab/nets.h"
#include "leaklab/probe.h"
#ifdef LEAKLAB_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace leaklab {
namespace {

using Microseconds = std::chrono::duration<double, std::micro>;

Microseconds time_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - begin;
}

// One training step of a net, and what the engine does around it once recording began.
class Training {
 public:
  explicit Training(const Environment& environment)
      : environment_(environment),
        device_(environment.backend == "cuda" ? torch::kCUDA : torch::kCPU),
        net_(mlp({width, width, width, width, width}, device_)),
        optimizer_(net_->parameters(), torch::optim::SGDOptions(0.01)) {
    input_ = torch::ones({batch_, width}, device_);
    for (int i = 0; i < 3; ++i) step();
    while (batch_ < 1 << 20 && fastest(5) < Microseconds(5000)) {
      batch_ += batch_ / 8;
      input_ = torch::ones({batch_, width}, device_);
      step();
    }
  }

  void record() {
    for (const auto& named : probes()) {
      auto probe = named.make();
      Microseconds start(0);
      std::string reason;
      start = time_of([&] { reason = probe->start(environment_); });
      if (!reason.empty()) continue;
      std::cerr << environment_.backend << ": starting " << named.name << " took " << start.count()
                << " us\n";
      probes_.push_back(std::move(probe));
    }
  }

  void step() {
    event_log().begin_step();
    for (const auto& probe : probes_) probe->begin_step(0);
    optimizer_.zero_grad();
    mean_square(net_->forward(input_)).backward();
    optimizer_.step();
    synchronize();
    event_log().end_step();
    if (!probes_.empty()) sample();
  }

  Sample sample() {
    Sample values;
    for (const auto& probe : probes_) probe->sample(values);
    return values;
  }

  const std::vector<std::unique_ptr<Probe>>& probes_in_use() const { return probes_; }

  Microseconds fastest(int steps) {
    Microseconds best(std::numeric_limits<double>::max());
    for (int i = 0; i < steps; ++i) best = std::min(best, time_of([&] { step(); }));
    return best;
  }

  std::int64_t batch() const { return batch_; }

 private:
  static constexpr std::int64_t width = 512;

  void synchronize() const {
#ifdef LEAKLAB_WITH_CUDA
    if (device_ == torch::kCUDA) cudaDeviceSynchronize();
#endif
  }

  Environment environment_;
  torch::DeviceType device_;
  std::int64_t batch_ = 16;
  torch::nn::Sequential net_;
  torch::optim::SGD optimizer_;
  torch::Tensor input_;
  std::vector<std::unique_ptr<Probe>> probes_;
};

// In this order: recording can't be taken off again.
void register_for(const Environment& environment) {
  const auto training = std::make_shared<std::unique_ptr<Training>>();
  const auto bare = std::make_shared<Microseconds>();
  benchmark::RegisterBenchmark((environment.backend + "/step_bare").c_str(),
                               [=](benchmark::State& state) {
                                 // LibTorch starts the threads of one engine only: ours has
                                 // to be there before the first backward pass.
                                 for (const auto& named : probes()) {
                                   if (named.name == "autograd_nodes") {
                                     named.make()->start(environment);
                                   }
                                 }
                                 torch::autograd::AnomalyMode::set_enabled(false);
                                 *training = std::make_unique<Training>(environment);
                                 *bare = Microseconds(std::numeric_limits<double>::max());
                                 for (auto _ : state)
                                   *bare = std::min(*bare, (*training)->fastest(1));
                                 state.counters["fastest_us"] = bare->count();
                                 state.counters["batch"] =
                                     static_cast<double>((*training)->batch());
                               })
      ->Iterations(300)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((environment.backend + "/step_recorded").c_str(),
                               [=](benchmark::State& state) {
                                 (*training)->record();
                                 Microseconds recorded(std::numeric_limits<double>::max());
                                 for (auto _ : state)
                                   recorded = std::min(recorded, (*training)->fastest(1));
                                 const auto extra = recorded - *bare;
                                 state.counters["fastest_us"] = recorded.count();
                                 state.counters["extra_us"] = extra.count();
                                 state.counters["share_of_5ms"] = extra / Microseconds(5000);
                               })
      ->Iterations(300)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((environment.backend + "/sample").c_str(),
                               [=](benchmark::State& state) {
                                 for (auto _ : state) {
                                   benchmark::DoNotOptimize((*training)->sample());
                                 }
                               })
      ->Unit(benchmark::kMicrosecond);
  for (const auto& named : probes()) {
    benchmark::RegisterBenchmark((environment.backend + "/sample/" + named.name).c_str(),
                                 [=](benchmark::State& state) {
                                   const auto probe = named.make();
                                   if (!probe->start(environment).empty()) {
                                     state.SkipWithError("not in this environment");
                                     return;
                                   }
                                   Sample values;
                                   for (auto _ : state) {
                                     probe->sample(values);
                                     benchmark::DoNotOptimize(values);
                                   }
                                 })
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace leaklab

int main(int argc, char** argv) {
  using namespace leaklab;
  at::set_num_threads(1);
  try {
    register_for(engine()->describe("cuda"));
  } catch (const UnavailableError& error) {
    std::cerr << "CUDA is left out: " << error.what() << '\n';
  }
  register_for(engine()->describe("cpu"));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// What one sample of the default channels costs, and what all recording adds to a step of 5 ms.
#include <benchmark/benchmark.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>

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

// A training loop whose steps are recorded or not, as asked for each.
class Training {
 public:
  explicit Training(const Environment& environment)
      : environment_(environment),
        device_(environment.backend == "cuda" ? torch::kCUDA : torch::kCPU) {
    // Before the first backward pass: LibTorch starts the threads of one engine only.
    for (const auto& named : probes()) {
      auto probe = named.make();
      if (probe->start(environment_).empty()) probes_.push_back(std::move(probe));
    }
    net_ = mlp({width, width, width, width, width}, device_);
    optimizer_ =
        std::make_unique<torch::optim::SGD>(net_->parameters(), torch::optim::SGDOptions(0.01));
    do {
      batch_ += batch_ / 8;
      input_ = torch::ones({batch_, width}, device_);
      step(false);
    } while (batch_ < 1 << 20 && std::min(step(false), step(false)) < Microseconds(5000));
  }

  // How long it took. The allocator's events are followed either way: a tracker can't be taken off.
  Microseconds step(bool recorded) {
    torch::autograd::AnomalyMode::set_enabled(recorded, /*check_nan=*/false);
    return time_of([&] {
      if (recorded) {
        event_log().begin_step();
        for (const auto& probe : probes_) probe->begin_step(steps_);
        ++steps_;
      }
      optimizer_->zero_grad();
      mean_square(net_->forward(input_)).backward();
      optimizer_->step();
      synchronize();
      if (!recorded) return;
      event_log().end_step();
      sample();
    });
  }

  Sample sample() {
    Sample values;
    for (const auto& probe : probes_) probe->sample(values);
    return values;
  }

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
  std::int64_t steps_ = 0;
  torch::nn::Sequential net_ = nullptr;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  torch::Tensor input_;
  std::vector<std::unique_ptr<Probe>> probes_;
};

Microseconds median(std::vector<Microseconds> times) {
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return times[times.size() / 2];
}

void register_for(const Environment& environment) {
  const auto training = std::make_shared<std::unique_ptr<Training>>();
  // Bare and recorded steps take turns, so that both see the same clocks.
  benchmark::RegisterBenchmark((environment.backend + "/step").c_str(),
                               [=](benchmark::State& state) {
                                 if (!*training)
                                   *training = std::make_unique<Training>(environment);
                                 std::vector<Microseconds> bare;
                                 std::vector<Microseconds> recorded;
                                 const auto events = event_log().events();
                                 for (auto _ : state) {
                                   bare.push_back((*training)->step(false));
                                   recorded.push_back((*training)->step(true));
                                 }
                                 const auto extra = median(recorded) - median(bare);
                                 state.counters["bare_us"] = median(bare).count();
                                 state.counters["extra_us"] = extra.count();
                                 state.counters["share_of_5ms"] = extra / Microseconds(5000);
                                 state.counters["events"] =
                                     static_cast<double>(event_log().events() - events) /
                                     static_cast<double>(2 * bare.size());
                               })
      ->Iterations(300)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((environment.backend + "/sample").c_str(),
                               [=](benchmark::State& state) {
                                 if (!*training) {
                                   *training = std::make_unique<Training>(environment);
                                 }
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

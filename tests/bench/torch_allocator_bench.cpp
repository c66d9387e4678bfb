// What recording costs an allocation: pairs of alloc and free, bare against recorded.
#include <benchmark/benchmark.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <limits>

#include "leaklab/engine.h"
#include "leaklab/error.h"
#include "leaklab/probe.h"
#ifdef LEAKLAB_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace leaklab {
namespace {

constexpr std::size_t bytes = 4096;
constexpr int pairs = 1000;

// The fastest of the rounds of `pairs` pairs so far: what a busy machine disturbs least.
class Fastest {
 public:
  // Returns the seconds that the round took.
  template <class Pair>
  double round(Pair pair) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < pairs; ++i) pair();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    best_ = std::min(best_, time.count());
    return time.count();
  }
  double nanoseconds_of_a_pair() const { return best_ * 1e9 / pairs; }

 private:
  double best_ = std::numeric_limits<double>::max();
};

void malloc_pair() {
  void* block = std::malloc(bytes);
  benchmark::DoNotOptimize(block);
  std::free(block);
}

void allocator_pair(c10::Allocator& allocator) {
  const auto block = allocator.allocate(bytes);
  benchmark::DoNotOptimize(block.get());
}

// Rounds of malloc and of the allocator take turns, so that both see the same machine.
void against_malloc(benchmark::State& state, c10::Allocator& allocator) {
  Fastest yardstick;
  Fastest measured;
  for (auto _ : state) {
    yardstick.round(&malloc_pair);
    state.SetIterationTime(measured.round([&] { allocator_pair(allocator); }));
  }
  state.counters["pair_ns"] = measured.nanoseconds_of_a_pair();
  state.counters["malloc_ns"] = yardstick.nanoseconds_of_a_pair();
  state.counters["ratio_to_malloc"] =
      measured.nanoseconds_of_a_pair() / yardstick.nanoseconds_of_a_pair();
}

std::unique_ptr<Probe> started(const std::string& name, const Environment& environment) {
  for (const auto& named : probes()) {
    if (named.name != name) continue;
    auto probe = named.make();
    if (const auto reason = probe->start(environment); !reason.empty()) {
      throw InternalError(fmt::format("{}: {}", name, reason));
    }
    return probe;
  }
  throw InternalError("there is no probe " + name);
}

void register_cpu() {
  auto& usual = *c10::GetDefaultCPUAllocator();
  // Keeps the probe for the life of the process: its allocator stays installed.
  static const auto probe = started("cpu_allocator", engine()->describe("cpu"));
  auto& recording = *c10::GetCPUAllocator();
  benchmark::RegisterBenchmark("cpu/libtorch_pair",
                               [&](benchmark::State& state) { against_malloc(state, usual); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("cpu/recorded_pair",
                               [&](benchmark::State& state) { against_malloc(state, recording); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

#ifdef LEAKLAB_WITH_CUDA
Fastest bare_cuda;

void cuda_pair() { allocator_pair(*c10::cuda::CUDACachingAllocator::get()); }

void cuda_bare(benchmark::State& state) {
  for (auto _ : state) state.SetIterationTime(bare_cuda.round(&cuda_pair));
  state.counters["pair_ns"] = bare_cuda.nanoseconds_of_a_pair();
}

// A tracker can't be taken off again, so this one comes second.
void cuda_recorded(benchmark::State& state, const Environment& environment) {
  const auto probe = started("cuda_caching_allocator", environment);
  Fastest measured;
  for (auto _ : state) state.SetIterationTime(measured.round(&cuda_pair));
  state.counters["pair_ns"] = measured.nanoseconds_of_a_pair();
  state.counters["ns_per_event"] =
      (measured.nanoseconds_of_a_pair() - bare_cuda.nanoseconds_of_a_pair()) / 2;
}

void register_cuda() {
  try {
    const auto environment = engine()->describe("cuda");
    benchmark::RegisterBenchmark("cuda/bare_pair", &cuda_bare)
        ->UseManualTime()
        ->MinTime(2)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark("cuda/recorded_pair", &cuda_recorded, environment)
        ->UseManualTime()
        ->MinTime(2)
        ->Unit(benchmark::kMicrosecond);
  } catch (const UnavailableError& error) {
    std::cerr << "CUDA is left out: " << error.what() << '\n';
  }
}
#else
void register_cuda() { std::cerr << "CUDA is left out: this build has none\n"; }
#endif

}  // namespace
}  // namespace leaklab

int main(int argc, char** argv) {
  leaklab::register_cpu();
  leaklab::register_cuda();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <thread>

#include "leaklab/event_log.h"

namespace leaklab {
namespace {

constexpr std::int64_t size = 4096;

// The yardstick: what is recorded costs less than this.
void bare_malloc_and_free(benchmark::State& state) {
  for (auto _ : state) {
    void* block = std::malloc(size);
    benchmark::DoNotOptimize(block);
    std::free(block);
  }
}
BENCHMARK(bare_malloc_and_free);

void add_a_pair(benchmark::State& state, EventLog& log) {
  for (auto _ : state) {
    log.add(Action::alloc, size);
    benchmark::ClobberMemory();
    log.add(Action::free, size);
    benchmark::ClobberMemory();
  }
}

void pair_of_the_first_thread(benchmark::State& state) {
  static EventLog log;
  add_a_pair(state, log);
}
BENCHMARK(pair_of_the_first_thread);

void pair_of_another_thread(benchmark::State& state) {
  static EventLog log;
  std::thread([] { log.add(Action::alloc, 0); }).join();
  add_a_pair(state, log);
}
BENCHMARK(pair_of_another_thread);

void pair_of_two_threads_at_once(benchmark::State& state) {
  static EventLog log;
  add_a_pair(state, log);
}
BENCHMARK(pair_of_two_threads_at_once)->Threads(2);

// Every allocation is a new peak.
void event_of_a_growing_step(benchmark::State& state) {
  static EventLog log;
  for (auto _ : state) {
    log.add(Action::alloc, size);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(event_of_a_growing_step);

}  // namespace
}  // namespace leaklab

BENCHMARK_MAIN();

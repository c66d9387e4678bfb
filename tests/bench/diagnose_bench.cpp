// What a diagnosis costs beyond reading: a leaking training loop of up to ten million events.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "leaklab/diagnosis.h"

namespace leaklab {
namespace {

// Steps of 500 allocations on 50 lines, each freed in the step, and one that stays.
Snapshot made(std::int64_t events, bool frames) {
  constexpr std::int64_t per_step = 500;
  Snapshot snapshot;
  const auto file = snapshot.strings.intern("/home/me/train.py");
  const auto package =
      snapshot.strings.intern("/lib/python3.11/site-packages/torch/nn/functional.py");
  const auto function = snapshot.strings.intern("train");
  std::vector<StackId> lines;
  for (std::uint64_t line = 10; line < 61; ++line) {
    const auto id = static_cast<FrameId>(snapshot.frames.size());
    snapshot.frames.push_back({package, function, 1000 + line});
    snapshot.frames.push_back({file, function, line});
    const FrameId stack[] = {id, id + 1};
    lines.push_back(frames ? snapshot.stacks.intern(stack) : 0);
  }
  snapshot.traces.resize(1);
  auto& trace = snapshot.traces[0];
  trace.reserve(static_cast<std::size_t>(events));
  std::int64_t time = 0;
  const auto push = [&](EventKind kind, std::uint64_t address, std::int64_t size, StackId stack) {
    TraceEvent event;
    event.kind = kind;
    event.address = address;
    event.size = size;
    event.stack = stack;
    event.time_us = ++time;
    trace.push_back(event);
  };
  constexpr std::uint64_t base = 0x7f0000000000;
  Segment segment;
  segment.address = base;
  for (std::int64_t step = 0; static_cast<std::int64_t>(trace.size()) + 1501 <= events; ++step) {
    for (std::int64_t each = 0; each < per_step; ++each) {
      push(EventKind::alloc, base + static_cast<std::uint64_t>(each) * 4096, 512 + each * 8,
           lines[static_cast<std::size_t>(each / 10)]);
    }
    for (std::int64_t each = 0; each < per_step; ++each) {
      const auto address = base + static_cast<std::uint64_t>(each) * 4096;
      push(EventKind::free_requested, address, 512 + each * 8, lines[49]);
      push(EventKind::free_completed, address, 512 + each * 8, lines[49]);
    }
    const auto kept = base + static_cast<std::uint64_t>(per_step + step) * 4096;
    push(EventKind::alloc, kept, 640, lines[50]);
    snapshot.blocks.push_back(
        {kept, 1024, 640, lines[50], BlockState::active_allocated, Block::usual_keys});
  }
  segment.blocks = static_cast<std::uint32_t>(snapshot.blocks.size());
  snapshot.segments.push_back(segment);
  return snapshot;
}

void diagnosis(benchmark::State& state, bool frames) {
  const auto snapshot = made(state.range(0), frames);
  for (auto _ : state) {
    const auto found = diagnose(snapshot);
    if (found.verdict != Verdict::leak) state.SkipWithError("the leak was not found");
    benchmark::DoNotOptimize(found);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK_CAPTURE(diagnosis, with_frames, true)
    ->Arg(100'000)
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(diagnosis, without_frames, false)
    ->Arg(1'000'000)
    ->Arg(10'000'000)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace
}  // namespace leaklab

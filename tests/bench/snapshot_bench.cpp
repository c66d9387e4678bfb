// Reads and writes snapshots of a training run that never was. Besides the benchmarks, for
// snapshot_vs_cpython.py:
//   snapshot_bench --make FILE EVENTS SHAPE   writes one of a shape that `shapes` names
//   snapshot_bench --read FILE                prints {"seconds", "peak_bytes", "events"}
// and for tests/viewer/check.py:
//   snapshot_bench --copy FROM TO             reads a file and writes what it says
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "leaklab/error.h"
#include "leaklab/snapshot.h"

namespace leaklab {
namespace {

struct Shape {
  std::string_view name;
  std::size_t devices = 1;
  std::uint8_t keys =
      TraceEvent::usual_keys | TraceEvent::has_compile_context | TraceEvent::has_user_metadata;
};
constexpr std::uint8_t oldest_keys =
    TraceEvent::has_address | TraceEvent::has_size | TraceEvent::has_stream;
// What PyTorch 2.11 writes; the same of a whole machine; and the shortest entries that there are,
// those of PyTorch 2.0 without frames, and with them.
constexpr std::array<Shape, 4> shapes = {
    {{.name = "usual"},
     {.name = "devices", .devices = 8},
     {.name = "short", .keys = oldest_keys},
     {.name = "framed", .keys = oldest_keys | TraceEvent::has_frames}}};

// A loop of 400 allocations, each from a site of its own with 8 to 40 frames, and their frees;
// every 50th allocation stays. All devices have as many events.
Snapshot made(std::size_t events, const Shape& shape) {
  constexpr std::size_t sites = 400;
  Snapshot snapshot;
  const StringId none = snapshot.strings.intern("N/A");
  std::vector<StackId> stacks;
  for (std::size_t site = 0; site < sites; ++site) {
    std::vector<FrameId> frames;
    const std::size_t depth = 8 + site * 7 % 33;
    for (std::size_t level = 0; level < depth; ++level) {
      // The outer frames are the same for all, the innermost the site's own.
      const std::size_t which = level == 0 ? 1000 + site : depth - level + site / 40;
      while (snapshot.frames.size() <= which) {
        const std::size_t number = snapshot.frames.size();
        snapshot.frames.push_back(
            {.file = snapshot.strings.intern(fmt::format(
                 "/usr/lib/python3/dist-packages/torch/nn/modules/module_{}.py", number % 60)),
             .function = snapshot.strings.intern(fmt::format("forward_{}", number % 500)),
             .line = 10 + number * 13 % 2000});
      }
      frames.push_back(static_cast<FrameId>(which));
    }
    stacks.push_back(snapshot.stacks.intern(frames));
  }

  std::vector<TraceEvent> all;
  all.reserve(events);
  const auto add = [&](EventKind kind, std::size_t site, std::uint64_t address, std::int64_t size) {
    if (all.size() == events) return;
    const auto time = static_cast<std::int64_t>(1796151208531904 + 7 * all.size());
    all.push_back({.address = address,
                   .size = size,
                   .time_us = time,
                   .stack = stacks[site],
                   .compile_context = none,
                   .kind = kind,
                   .keys = shape.keys});
  };
  std::uint64_t kept = 0;
  while (all.size() < events) {
    for (std::size_t site = 0; site < sites; ++site) {
      const auto size = static_cast<std::int64_t>(512 * (1 + site * 97 % 4096));
      const bool stays = site % 50 == 0;
      const std::uint64_t address = 0x7fc309a00000 + (stays ? ++kept << 21 : site << 22);
      add(EventKind::alloc, site, address, size);
      if (stays) continue;
      add(EventKind::free_requested, (site + 1) % sites, address, size);
      add(EventKind::free_completed, (site + 1) % sites, address, size);
    }
  }

  for (std::size_t device = 0; device < shape.devices; ++device) {
    Trace& trace = snapshot.traces.emplace_back();
    const std::size_t end = events * (device + 1) / shape.devices;
    for (std::size_t at = events * device / shape.devices; at < end; ++at) trace.push_back(all[at]);
  }

  for (std::uint64_t row = 0; row < kept; ++row) {
    const std::uint64_t address = 0x7fc309a00000 + (row << 21);
    snapshot.segments.push_back({.address = address,
                                 .total_size = 2 << 20,
                                 .allocated_size = 1 << 20,
                                 .active_size = 1 << 20,
                                 .requested_size = 1 << 20,
                                 .type = snapshot.strings.intern("large"),
                                 .first_block = static_cast<std::uint32_t>(row),
                                 .blocks = 1});
    snapshot.blocks.push_back({.address = address,
                               .size = 2 << 20,
                               .requested = 1 << 20,
                               .stack = stacks[row % sites],
                               .state = BlockState::active_allocated});
  }
  snapshot.allocator_settings = {{"expandable_segments", false}};
  return snapshot;
}

void report(benchmark::State& state, std::size_t bytes) {
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

void reading(benchmark::State& state, const Shape& shape,
             SnapshotFormat format = SnapshotFormat::pickle) {
  const std::string bytes =
      snapshot_bytes(made(static_cast<std::size_t>(state.range(0)), shape), format);
  for (auto _ : state) benchmark::DoNotOptimize(read_snapshot(bytes, "made"));
  report(state, bytes.size());
}

void read_pickle(benchmark::State& state) { reading(state, shapes[0]); }
BENCHMARK(read_pickle)->Range(1000, 1'000'000)->Unit(benchmark::kMillisecond);

void read_devices(benchmark::State& state) { reading(state, shapes[1]); }
BENCHMARK(read_devices)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void read_short(benchmark::State& state) { reading(state, shapes[2]); }
BENCHMARK(read_short)->Arg(1'000'000)->Unit(benchmark::kMillisecond);

void read_json(benchmark::State& state) { reading(state, shapes[0], SnapshotFormat::json); }
BENCHMARK(read_json)->Arg(10'000)->Unit(benchmark::kMillisecond);

void write_pickle(benchmark::State& state) {
  const Snapshot snapshot = made(static_cast<std::size_t>(state.range(0)), shapes[0]);
  std::size_t bytes = 0;
  for (auto _ : state) bytes = snapshot_bytes(snapshot).size();
  report(state, bytes);
}
BENCHMARK(write_pickle)->Arg(100'000)->Unit(benchmark::kMillisecond);

void read_and_tell(const std::filesystem::path& path) {
  const auto start = std::chrono::steady_clock::now();
  const Snapshot snapshot = read_snapshot(path);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::size_t events = 0;
  for (const Trace& trace : snapshot.traces) events += trace.size();
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  fmt::print("{{\"seconds\": {:.6f}, \"peak_bytes\": {}, \"events\": {}}}\n", took.count(),
             used.ru_maxrss * 1024, events);
}

}  // namespace
}  // namespace leaklab

int main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--make") == 0) {
    const auto* shape = std::ranges::find(leaklab::shapes, argv[4], &leaklab::Shape::name);
    if (shape == leaklab::shapes.end()) return 2;
    leaklab::write_snapshot(leaklab::made(std::strtoull(argv[3], nullptr, 10), *shape), argv[2]);
    return 0;
  }
  if (argc == 3 && std::strcmp(argv[1], "--read") == 0) {
    leaklab::read_and_tell(argv[2]);
    return 0;
  }
  if (argc == 4 && std::strcmp(argv[1], "--copy") == 0) {
    const std::filesystem::path to = argv[3];
    leaklab::write_snapshot(leaklab::read_snapshot(std::filesystem::path(argv[2])), to,
                            to.extension() == ".json" ? leaklab::SnapshotFormat::json
                                                      : leaklab::SnapshotFormat::pickle);
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

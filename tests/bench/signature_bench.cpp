// What deciding costs over a large suite: 1,000 recordings of 1,000 steps by 12 channels.
#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "leaklab/baseline.h"
#include "leaklab/judging.h"
#include "leaklab/signature.h"

namespace leaklab {
namespace {

constexpr std::size_t recordings = 1000;
constexpr std::size_t steps = 1000;

struct Made {
  std::vector<std::int64_t> values;
  SignatureOptions options;
};

std::int64_t noise(std::size_t step, std::size_t seed, std::int64_t amplitude) {
  std::uint64_t bits = step * 0x9e3779b97f4a7c15U + seed * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 29U)) * 0x94d049bb133111ebU;
  return static_cast<std::int64_t>((bits >> 32U) % static_cast<std::uint64_t>(2 * amplitude + 1)) -
         amplitude;
}

// One kind of series a channel; each makes the classifier go through other rules.
constexpr std::array<const char*, 12> kinds = {
    "flat",        "step",    "linear",    "stairs",     "late_linear",  "long_period",
    "superlinear", "plateau", "irregular", "noisy_flat", "noisy_linear", "noisy_sawtooth",
};

Made made(std::size_t kind, std::size_t seed) {
  Made series{std::vector<std::int64_t>(steps), {.warmup = 3, .tolerance = 0}};
  if (kind >= 9) series.options.tolerance = 4096;
  for (std::size_t i = 0; i < steps; ++i) {
    const auto step = static_cast<std::int64_t>(i);
    const auto s = static_cast<std::int64_t>(seed);
    std::int64_t value = 0;
    switch (kind) {
      case 0:
        value = 7000 + s;
        break;
      case 1:
        value = step < 500 ? 0 : 4096 + s;
        break;
      case 2:
        value = step * (512 + s);
        break;
      case 3:
        value = step / 7 * (512 + s);
        break;
      case 4:
        value = step < 300 ? 0 : (step - 300) * 64;
        break;
      case 5:
        value = step / 450 * 4096 + step % 450 * 8;
        break;
      case 6:
        value = step * step * 4;
        break;
      case 7:
        value = (step < 600 ? step : 600) * 512;
        break;
      case 8:
        value = step * 512 + noise(i, seed, 300);
        break;
      case 9:
        value = noise(i, seed, 2000);
        break;
      case 10:
        value = step * 100 + noise(i, seed, 2000);
        break;
      default:
        value = step % 90 * 1000 + noise(i, seed, 2000);
    }
    series.values[i] = value;
  }
  return series;
}

void classify_recordings(benchmark::State& state) {
  std::vector<Made> all;
  for (std::size_t i = 0; i < recordings; ++i) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) all.push_back(made(kind, i));
  }
  for (auto _ : state) {
    for (const Made& series : all) {
      benchmark::DoNotOptimize(classify(series.values, {}, series.options));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(all.size()));
}
BENCHMARK(classify_recordings)->Unit(benchmark::kMillisecond);

// A recording whose channels are all exact, which is the dear case.
Recording made_recording(std::size_t seed) {
  Recording recording;
  recording.steps = steps;
  recording.warmup = 3;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    auto& series = recording.channels[kinds[kind]];
    series.exact = true;
    series.values = made(kind, seed).values;
  }
  return recording;
}

void classify_and_compare_recordings(benchmark::State& state) {
  std::vector<Recording> all;
  std::vector<BaselineTwin> baselines;
  for (std::size_t i = 0; i < recordings; ++i) {
    all.push_back(made_recording(i));
    baselines.push_back(baseline_of(all.back()));
  }
  const auto growth = Growth().on("linear", 512).on("stairs", 512);
  for (auto _ : state) {
    for (std::size_t i = 0; i < recordings; ++i) {
      for (const auto* kind : kinds) benchmark::DoNotOptimize(signature_of(all[i], kind));
      benchmark::DoNotOptimize(compare(baselines[i], all[i]));
      benchmark::DoNotOptimize(compare(growth, all[i]));
    }
  }
}
BENCHMARK(classify_and_compare_recordings)->Unit(benchmark::kMillisecond);

void classify_one(benchmark::State& state) {
  const auto kind = static_cast<std::size_t>(state.range(0));
  const Made series = made(kind, 1);
  for (auto _ : state) benchmark::DoNotOptimize(classify(series.values, {}, series.options));
  state.SetLabel(kinds[kind]);
}
BENCHMARK(classify_one)->DenseRange(0, 11)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace leaklab

BENCHMARK_MAIN();

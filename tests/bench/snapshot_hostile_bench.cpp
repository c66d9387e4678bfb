// Reads files made to be slow to read: in each, one part could have to do with every other. The
// time must grow with the file, so the bytes a second stay what they are.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "leaklab/snapshot.h"

namespace leaklab {
namespace {

using namespace std::string_literals;
using Make = std::function<std::string(std::size_t)>;

std::vector<std::pair<const char*, Make>> kinds() {
  const auto top = [](const std::string& items) {
    return "\x80\x04}(" + items + "\x8c\x08segments]u.";
  };
  const auto integer = [](std::size_t number) {
    std::string made = "J";
    for (int byte = 0; byte < 4; ++byte) made += static_cast<char>(number >> 8 * byte & 0xff);
    return made;
  };
  const auto times = [](std::size_t number, const auto& make) {
    std::string made;
    for (std::size_t k = 0; k < number; ++k) made += make(k);
    return made;
  };
  const auto key = [](std::size_t number) { return fmt::format("\x8c\x07{:07}", number); };
  const std::string event =
      "}(\x8c\x06"
      "action\x8c\x05"
      "alloc\x8c\x04sizeK\x01\x8c\x01xK\x01u";
  return {
      {"as many traces, each with an unknown key",
       [=](std::size_t size) {
         return top(
             "\x8c\x0d"
             "device_traces](" +
             times(size, [&](std::size_t) { return "](" + event + "e"; }) + "e");
       }},
      {"as many keys of history entries that are not kept",
       [=](std::size_t size) {
         return "\x80\x04" +
                times(6 * size,
                      [&](std::size_t k) { return "}(\x8c\x09real_sizeK\x01" + key(k) + "Nu0"; }) +
                "}(\x8c\x08segments]u.";
       }},
      {"as many references to a value that has as many parts",
       [=](std::size_t size) {
         return top(key(size) + "]\x94(" + std::string(20 * size, 'N') + "e" +
                    times(size, [&](std::size_t k) { return key(k) + "h\0"s; }));
       }},
      {"as many references to a frame that has as many parts",
       [=](std::size_t size) {
         return top(key(size) + "](}\x94(\x8c\x08"s +
                    "filename\x8c\x01x\x8c\x04lineK\x01\x8c\x01x](" + std::string(size, 'N') +
                    "eu" + times(size, [](std::size_t) { return "h\0"s; }) + "Ne");
       }},
      {"as many dicts with a key as long",
       [=](std::size_t size) {
         return top(key(size) + "](X" + integer(20 * size).substr(1) + std::string(20 * size, 'k') +
                    "\x94" + "0" + times(size, [](std::size_t) { return "}h\0Ns"s; }) + "e");
       }},
  };
}

void read(benchmark::State& state, const Make& make) {
  const auto bytes = make(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) benchmark::DoNotOptimize(read_snapshot(bytes, "made"));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
  state.SetComplexityN(state.range(0));
}

}  // namespace
}  // namespace leaklab

int main(int argc, char** argv) {
  for (const auto& [name, make] : leaklab::kinds()) {
    benchmark::RegisterBenchmark(name, leaklab::read, make)
        ->RangeMultiplier(4)
        ->Range(1000, 16000)
        ->Unit(benchmark::kMillisecond)
        ->Complexity(benchmark::oN);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

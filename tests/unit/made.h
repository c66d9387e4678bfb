// Recordings made by hand, for tests of what decides over them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leaklab/recording.h"

namespace leaklab::made {

inline Environment cpu() {
  Environment environment;
  environment.backend = "cpu";
  environment.libtorch = "2.11.0";
  environment.device = "cpu";
  return environment;
}

// `steps` values that rise by `gain` in each step from `start` on.
inline std::vector<std::int64_t> line(std::int64_t start, std::int64_t gain, std::int64_t steps) {
  std::vector<std::int64_t> values;
  for (std::int64_t step = 0; step < steps; ++step) values.push_back(start + gain * (step + 1));
  return values;
}

inline Series exact(std::vector<std::int64_t> values, std::int64_t settled = 0) {
  Series series;
  series.unit = "B";
  series.exact = true;
  series.values = std::move(values);
  series.settled = settled;
  return series;
}

inline Series tolerant(std::vector<std::int64_t> values) {
  Series series;
  series.unit = "B";
  series.values = std::move(values);
  return series;
}

inline Series absent(std::string reason) {
  Series series;
  series.absent = std::move(reason);
  return series;
}

// A run of 20 steps, 4 of them warm-up, that gains `gain` bytes in one tensor a step.
inline Recording recording(Twin twin, std::int64_t gain) {
  Recording recording;
  recording.scenario = "made";
  recording.twin = twin;
  recording.steps = 20;
  recording.warmup = 4;
  recording.environment = cpu();
  recording.channels["requested"] = exact(line(1000, gain, 20));
  recording.channels["peak"] = exact(line(2000, gain, 20));
  recording.channels["live_allocations"] = exact(line(5, gain == 0 ? 0 : 1, 20));
  recording.channels["graph_nodes"] = exact(line(7, 0, 20));
  recording.channels["host_rss"] = tolerant(line(1'000'000, 4096, 20));
  recording.channels["reserved"] = absent("records CUDA only");
  recording.event_hash = 0x1234;
  recording.events = 200;
  return recording;
}

}  // namespace leaklab::made

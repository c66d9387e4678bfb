// The allocator events of one run, in order: what a run keeps on request and what a replay
// performs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leaklab/snapshot.h"

namespace leaklab {

struct History {
  struct Frame {
    std::string file;
    std::string function;
    std::uint64_t line = 0;
    friend auto operator<=>(const Frame&, const Frame&) = default;
  };
  struct Event {
    bool alloc = true;
    std::uint32_t allocation = 0;  // numbered by birth, from 0
    std::uint32_t stack = 0;       // index into stacks; of an allocation
    std::int64_t bytes = 0;        // requested
  };
  std::vector<Event> events;
  // Number of events before the first step and after each: steps + 1 values.
  std::vector<std::size_t> boundaries;
  bool has_rest = false;  // the last boundary is the end of the recording and ends no step
  // Innermost frame first. The first entry has no frames.
  std::vector<std::vector<Frame>> stacks = {{}};
};

// What is live at one boundary.
struct Level {
  std::int64_t requested = 0;  // bytes
  std::int64_t allocations = 0;
  friend bool operator==(const Level&, const Level&) = default;
};

// One for each boundary.
std::vector<Level> levels(const History& history);

// A snapshot that says the same: one segment with what is live at the end, one trace with an
// annotation around each step. It has no clock and no addresses of the machine: entry n of the
// trace is from microsecond 2 n + 1, and no address is used twice.
Snapshot to_snapshot(const History& history);

}  // namespace leaklab

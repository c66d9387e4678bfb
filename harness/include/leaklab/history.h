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
  struct Event {
    bool alloc = true;
    std::uint32_t allocation = 0;  // numbered by birth, from 0
    std::uint32_t stack = 0;       // index into stacks
    std::int64_t bytes = 0;        // requested
  };
  std::vector<Event> events;
  // Number of events before the first step and after each: steps + 1 values.
  std::vector<std::size_t> boundaries;
  // Operators that were running, innermost first. The first entry is none at all.
  std::vector<std::vector<std::string>> stacks = {{}};
  std::string file;  // of the program that ran, for the frames
  std::string name;
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
// annotation around each step. It has no clock and no addresses of the machine: event n happens at
// microsecond 2 n, and no address is used twice.
Snapshot to_snapshot(const History& history);

}  // namespace leaklab

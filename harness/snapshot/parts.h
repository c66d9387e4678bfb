// What a snapshot is put together from while its file is read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "leaklab/snapshot.h"
#include "source.h"

namespace leaklab {

constexpr std::size_t pickle_batch = 1000;  // Python puts at most so many elements at a time

// Rows of a table that follow each other.
struct Range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

struct TraceAndExtras {
  Trace events;
  std::vector<Extra> extras;  // in the order of rows
};

// As Snapshot has them: of each device.
struct Traces {
  std::vector<Trace> events;
  std::vector<std::vector<Extra>> extras;
};

// Events that were made one after the other and that, as far as can be told then, go into the same
// list. A list that gets all of a run, and nothing else, takes it without a copy.
struct Run {
  std::size_t place;    // the mark below them
  std::uint32_t first;  // the number of its first event
  TraceAndExtras trace;
};

struct Parts {
  explicit Parts(const Source& bytes) : source(bytes) { snapshot.keys = 0; }

  const Source& source;  // tells how much was read, and how much is still to come
  Snapshot snapshot;
  std::vector<std::uint64_t> wide;  // numbers that a Value can't hold
  std::vector<Range> ranges;        // lists of rows
  std::vector<std::size_t> marks;   // of the Builder's stack: how many values are below each
  std::vector<Run> runs;            // the events that no trace has yet, in the order of numbers
  std::vector<Traces> trace_lists;
  std::string odd_entry;  // the first that made a list of rows a list of anything, in words
};

// The run that the event with this number is in.
inline auto run_of(std::vector<Run>& runs, std::uint32_t event) {
  return std::ranges::upper_bound(runs, event, {}, &Run::first) - 1;
}

inline std::uint32_t row_number(std::size_t rows) {
  if (rows >= HashIndex::none) throw Refusal("holds more than 4 billion entries of one kind");
  return static_cast<std::uint32_t>(rows);
}

// Room for one more where the rest of the file may hold more elements, each of `bytes` or more:
// reserved at once, so that the table isn't copied, and touched only as far as it is filled.
template <typename Table>
void make_room(Table& table, const Source& source, std::uint64_t bytes) {
  if (table.size() < table.capacity() || table.size() < 4096) [[likely]]
    return;
  table.reserve(table.size() + std::max<std::size_t>(table.size() / 2, source.left() / bytes));
}

}  // namespace leaklab

// What a snapshot is put together from while its file is read.
#pragma once

#include <algorithm>
#include <cstdint>
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

struct Trace {
  std::vector<TraceEvent> events;
  std::vector<Extra> extras;
};

struct Parts {
  explicit Parts(const Source& bytes) : source(bytes) { snapshot.keys = 0; }

  const Source& source;  // tells how much was read, and how much is still to come
  Snapshot snapshot;
  std::vector<std::uint64_t> wide;  // numbers that a Value can't hold
  std::vector<Range> ranges;        // lists of rows
  std::vector<TraceEvent> events;   // of the traces that are not complete
  std::vector<Extra> event_extras;
  std::vector<Trace> closed_traces;
  // Indices into closed_traces; HashIndex::none: a trace without an event.
  std::vector<std::vector<std::uint32_t>> trace_lists;
};

inline std::uint32_t row_number(std::size_t rows) {
  if (rows >= HashIndex::none) throw Refusal("holds more than 4 billion entries of one kind");
  return static_cast<std::uint32_t>(rows);
}

// Room for one more where the rest of the file may hold more elements, each of `bytes` or more:
// reserved at once, so that the table isn't copied, and touched only as far as it is filled.
template <typename T>
void make_room(std::vector<T>& table, const Source& source, std::uint64_t bytes) {
  if (table.size() < table.capacity() || table.size() < 4096) [[likely]]
    return;
  table.reserve(table.size() + std::max<std::size_t>(table.size() / 2, source.left() / bytes));
}

}  // namespace leaklab

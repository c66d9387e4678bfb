// A replay of a memory snapshot, for a person.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leaklab/engine.h"
#include "leaklab/import.h"
#include "style.h"

namespace leaklab {

struct Replay {
  FileLevels filed;                    // what the file says...
  std::vector<ReplayedLevel> got;      // ...and the allocator, at the same boundaries
  bool has_rest = false;               // the last one is the dump, after the last step
  bool segments = false;               // the allocator takes memory from segments
  std::int64_t events = 0;             // that were performed
  std::optional<std::int64_t> device;  // of the file, where that has several
  std::string on;                      // what performed them: "cpu", "NVIDIA H200"
};

// Whether that level is the file's: of live memory, as segments are taken by rules that change.
bool is_equal(const Replay& replay, std::size_t level);

// The levels in a table, of many only the first ones, the last ones and some that differ; then
// whether they are equal.
std::string replay_text(const Replay& replay, const Style& style);

}  // namespace leaklab

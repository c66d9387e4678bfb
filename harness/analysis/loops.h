// Finds the loop over steps in a trace without marks.
#pragma once

#include <cstdint>
#include <vector>

#include "lifetimes.h"
#include "sites.h"

namespace leaklab {

struct LoopsFound {
  std::vector<EventIndex> begin;   // where each step of any kind begins
  std::vector<std::uint8_t> kind;  // of each of them
  double covered = 0;              // part of the trace's allocations that lies in the loops
  double alike = 0;                // how much one iteration is like the next, 0 to 1
};

enum class LoopBy {
  stacks,  // iterations pass the same lines of the user's code
  // For traces without frames:
  sizes,  // iterations ask for the same sizes
  lives,  // iterations free what they allocate after as many events, whatever its size
};

struct LoopWish {
  std::int64_t count = 0;  // iterations that the caller knows of; 0: not known
  // Stacks one of whose frames every iteration passes; empty: not known.
  std::vector<bool> stacks;
};

LoopsFound find_loops(const Trace& trace, const Sites& sites, const Lifetimes& lifetimes, LoopBy by,
                      const LoopWish& wish);

}  // namespace leaklab

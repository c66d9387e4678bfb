// The steps of the loop that a trace was recorded in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leaklab/diagnosis.h"
#include "lifetimes.h"
#include "sites.h"

namespace leaklab {

struct Steps {
  // Event at which each whole step begins, and at which the last one ends: count() + 1 values, or
  // none where no steps were found.
  std::vector<EventIndex> begin;
  // Of each whole step: steps of one kind run the same code. Numbered from 0 by frequency.
  std::vector<std::uint8_t> kind;
  std::string source = "none";  // as in Diagnosis::steps
  double confidence = 0;
  std::int64_t before = 0;  // steps known to have run before begin.front()
  bool first_cut = false;   // the trace begins inside a step
  bool last_cut = false;    // the trace ends inside a step
  bool ends_whole = false;  // marks say that the last step was finished
  std::string why_none;     // where there are none

  std::int64_t count() const {
    return begin.empty() ? 0 : static_cast<std::int64_t>(begin.size()) - 1;
  }
  // Steps of a training and of the evaluation that comes between, where each of them is as long as
  // the trace shows; 0: it shows none of both kinds from its beginning to its end.
  struct Cycle {
    std::int64_t trains = 0;
    std::int64_t others = 0;
    std::int64_t length() const { return trains + others; }
  };
  Cycle cycle;
  // By kind, its steps, sorted.
  std::vector<std::vector<std::int64_t>> steps_of_kind;
  // By kind, whether nearly all of its steps allocate without frames, as a backward pass does.
  std::vector<bool> trains;
  // The first of the steps at the end that are of one kind.
  std::int64_t last_phase() const;
  // The whole step that the event is in; -1 before the first one, count() after the last one.
  std::int64_t of(EventIndex event) const;
};

// The steps of one device's trace, from the best of: `options`, step marks among the annotations or
// in the metadata, the loop that the call stacks go round in, snapshots taken by the program, steps
// of an optimizer, the loop that the sizes go round in.
Steps find_steps(const Snapshot& snapshot, std::size_t device, const Sites& sites,
                 const Lifetimes& lifetimes, const DiagnoseOptions& options);

}  // namespace leaklab

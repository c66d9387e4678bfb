// What each place of a program leaves behind, step by step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lifetimes.h"
#include "sites.h"
#include "steps.h"

namespace leaklab {

// What one place left behind in one step: born in it and still live at the dump.
struct Left {
  std::int64_t step = 0;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

// Allocations that one stack asks for again and again: of one size, or of sizes that vary.
struct Group {
  StackId stack = 0;
  std::int64_t size = -1;  // requested bytes; -1: they vary
  std::vector<Left> left;  // by step, whole steps only
  // Born in each step, held beyond it and freed or replaced since; bytes by step.
  std::vector<Left> held;
  // Of these what was freed two steps after its birth or later, and the first step that did so.
  std::vector<Left> dropped;
  std::vector<Left> removed;       // the same by the step that freed it, in any order
  std::int64_t first_drop = -1;    // -1: none
  std::int64_t births = 0;         // in whole steps
  std::int64_t freed = 0;          // of them
  std::int64_t longest_life = -1;  // steps that the longest-lived of the freed ones lived; -1: none
  std::int64_t early_bytes = 0;    // live at the dump and born in the trace before the first step
  std::int64_t early_count = 0;
  std::int64_t unborn_bytes = 0;  // live at the dump and born before the trace
  std::int64_t unborn_count = 0;
  std::int64_t sizes = 0;       // how many different ones are left
  std::int64_t first_size = 0;  // of what is left
  std::int64_t last_size = 0;
  EventIndex first_left = 0;  // where the first and the last of it were allocated
  EventIndex last_left = 0;
  std::uint32_t pool = 0;
};

// By stack and size. `framed`: any stack of the file has frames; without, blocks from before the
// trace are told by their sizes alone.
std::vector<Group> groups(const Trace& trace, const Lifetimes& lifetimes, const Steps& steps,
                          bool framed);

enum class Judgement {
  none,
  leak,
  stopped,     // grew for a while and no longer does: a cache that is full, a list of what was seen
  bounded,     // held for some steps and then freed, always
  suspect,     // too few times to tell
  replaced,    // one tensor that is replaced by a larger one in each step
  multiplied,  // tensors that each step replaces, and now and then by one more
  outrun,      // a queue to which more is added than is taken away
  ended,       // grew as long as its steps came, and was freed for the first time behind them
  one_phase,   // in a phase that came once
};

struct Judged {
  Judgement judgement = Judgement::none;
  std::int64_t onset = -1;   // step of the trace
  std::int64_t trusted = 0;  // steps before this one show what is left for good
  std::vector<Left> growth;  // what it adds in each step for good
  std::int64_t times = 0;    // steps that are evidence
};

Judged judge(const Group& group, const Steps& steps, const Sites& sites);

// Growth per step over one period.
struct Rate {
  double bytes_per_step = 0;
  std::int64_t period = 0;  // 0: none found, the mean over all steps
  std::int64_t begin = 0;   // the step from which it holds: not what came once in the first steps
};

// Of what is added in the steps from `begin` to before `end`; `added` is sorted by step, and each
// step is in it once at most.
Rate rate_of(std::span<const Left> added, std::int64_t begin, std::int64_t end);

// Whether levels by step grow evenly: the least of each quarter is larger than that of the one
// before, and by half the mean or more. False for fewer than twelve.
bool rises_evenly(std::span<const std::int64_t> levels);

// Sorted by step, what has the same step added up.
std::vector<Left> summed(std::vector<Left> parts);

}  // namespace leaklab

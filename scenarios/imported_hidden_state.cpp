// 10590208 bytes in 24 steps stay, allocated in train.py line 29.
#include "leaklab/performer.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// The allocations of the loop; leaklab/pattern.h says how to read them.
static Pattern pattern() {
  return parse_pattern(
#include "imported_hidden_state.pattern"
  );
}

LEAKLAB_SCENARIO(
    imported_hidden_state, .taxonomy = "L03",
    // As the file was diagnosed.
    .summary = "10590208 bytes in 24 steps stay, allocated in train.py line 29",
    // Where it comes from.
    .reports = {"hidden_state.pickle"},
    // What ends it.
    .fix = "detach the state between steps: h = h.detach()",
    // After the warm-up all repeats with period 24.
    .steps = 97, .warmup = 1, .expect = [](const Setting&) { return pattern().growth(); }) {
  Performer performer(pattern(), run.device());
  run.step([&](Step step) { performer.step(step.index, run.fault()); });
}

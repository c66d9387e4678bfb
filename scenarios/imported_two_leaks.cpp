// 76288 bytes in 3 steps stay, allocated in d09.py line 401 and d09.py line 395.
#include "leaklab/performer.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// The allocations of the loop; leaklab/pattern.h says how to read them.
static Pattern pattern() {
  return parse_pattern(
#include "imported_two_leaks.pattern"
  );
}

LEAKLAB_SCENARIO(
    imported_two_leaks, .taxonomy = "L17",
    // As the file was diagnosed.
    .summary = "76288 bytes in 3 steps stay, allocated in d09.py line 401 and d09.py line 395",
    // Where it comes from.
    .reports = {"d09_two_leaks.pickle"},
    // What ends it.
    .fix = "clear it, bound it, or move what it collects to the host",
    // After the warm-up all repeats with period 3.
    .steps = 23, .warmup = 7, .expect = [](const Setting&) { return pattern().growth(); }) {
  Performer performer(pattern(), run.device());
  run.step([&](Step step) { performer.step(step.index, run.fault()); });
}

// 147456 bytes in 4 steps stay, allocated in attention_log.py line 38.
#include "leaklab/performer.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// The allocations of the loop; leaklab/pattern.h says how to read them.
static Pattern pattern() {
  return parse_pattern(
#include "imported_attention_log.pattern"
  );
}

LEAKLAB_SCENARIO(
    imported_attention_log, .taxonomy = "L11",
    // As the file was diagnosed.
    .summary = "147456 bytes in 4 steps stay, allocated in attention_log.py line 38",
    // Where it comes from.
    .reports = {"attention_log.pickle"},
    // What ends it.
    .fix = "release it on that path too, or move what is logged to the host",
    // After the warm-up all repeats with period 4.
    .steps = 25, .warmup = 9, .expect = [](const Setting&) { return pattern().growth(); }) {
  Performer performer(pattern(), run.device());
  run.step([&](Step step) { performer.step(step.index, run.fault()); });
}

// 32768 bytes a step stay, allocated in d19.py line 621 and d19.py line 624.
#include "leaklab/performer.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// The allocations of the loop; leaklab/pattern.h says how to read them.
static Pattern pattern() {
  return parse_pattern(
#include "imported_cuda_graph_per_step.pattern"
  );
}

LEAKLAB_SCENARIO(
    imported_cuda_graph_per_step, .taxonomy = "L17",
    // As the file was diagnosed.
    .summary = "32768 bytes a step stay, allocated in d19.py line 621 and d19.py line 624",
    // Where it comes from.
    .reports = {"d19_cuda_graph_per_step_leak.pickle"},
    // What ends it.
    .fix = "clear it, bound it, or move what it collects to the host",
    // After the warm-up all repeats with period 1.
    .steps = 20, .warmup = 4, .expect = [](const Setting&) { return pattern().growth(); }) {
  Performer performer(pattern(), run.device());
  run.step([&](Step step) { performer.step(step.index, run.fault()); });
}

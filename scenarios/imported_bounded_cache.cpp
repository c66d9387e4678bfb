// 2097152 bytes, held for up to 8 steps and then freed: bounded.
#include "leaklab/performer.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// The allocations of the loop; leaklab/pattern.h says how to read them.
static Pattern pattern() {
  return parse_pattern(
#include "imported_bounded_cache.pattern"
  );
}

LEAKLAB_SCENARIO(
    imported_bounded_cache, .taxonomy = "N17",
    // As the file was diagnosed.
    .summary = "2097152 bytes, held for up to 8 steps and then freed: bounded",
    // Where it comes from.
    .reports = {"bounded_cache_clean.pickle"},
    // After the warm-up all repeats with period 1.
    .steps = 34, .warmup = 18, .expect = [](const Setting&) { return pattern().growth(); }) {
  Performer performer(pattern(), run.device());
  run.step([&](Step step) { performer.step(step.index, false); });
}

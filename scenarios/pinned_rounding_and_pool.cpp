// The pinned allocator rounds up to powers of two and keeps what it took: a jump, and then nothing.
#include "leaklab/pinned_loader.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(pinned_rounding_and_pool, .taxonomy = "N10",
                 .summary = "page-locked memory stays far above what lives, but does not grow",
                 .reports = {"pytorch/pytorch#134332", "pytorch/pytorch#106606"},
                 .needs = {"pinned"},
                 .params = {{"batch", 1000, 1, 2048, "samples in a step"},
                            {"features", 300, 1, 1024, "values of a sample"}}) {
  const auto features = run.param("features");
  PinnedLoader loader(
      {.batches = run.steps() + 1, .rows = run.param("batch"), .length = [=](std::int64_t index) {
         return index == 0 ? 2 * features : features;
       }});
  run.before_sampling([&] { loader.wait_for_workers(); });
  run.step([&](Step step) {
    // A check on a larger batch before the training proper, as trainers make one.
    if (step.index == 0) loader.next().to(run.device(), /*non_blocking=*/true);
    const auto batch = loader.next();
    const auto input = batch.to(run.device(), /*non_blocking=*/true);
    const auto mean = input.mean();
  });
}

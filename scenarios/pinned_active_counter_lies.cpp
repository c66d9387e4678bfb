// The pinned allocator forgets to count down, so that its active_bytes grows while memory does not.
#include "leaklab/pinned_loader.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// LibTorch 2.11: a block without pending events goes back to the pool uncounted, and one with them
// is counted down by -1, the size that stands for "any". So a batch copied with non_blocking adds
// its block and 1 B to active_bytes for good, and one copied without adds its block.
LEAKLAB_SCENARIO(
    pinned_active_counter_lies, .taxonomy = "N10",
    .summary = "a pinned batch is copied and dropped in each step, and active_bytes keeps growing",
    .reports = {"pytorch/pytorch#179380", "pytorch/pytorch#182404", "pytorch/pytorch#169561"},
    .needs = {"pinned"},
    .params = {{"batch", 1000, 1, 2048, "samples in a step"},
               {"features", 300, 1, 1024, "values of a sample"},
               {"non_blocking", 1, 0, 1, "whether the host runs ahead of the copy"}}) {
  const auto features = run.param("features");
  PinnedLoader loader({.batches = run.steps(),
                       .rows = run.param("batch"),
                       .length = [=](std::int64_t) { return features; }});
  run.before_sampling([&] { loader.wait_for_workers(); });
  run.step([&](Step) {
    const auto batch = loader.next();
    const auto input = batch.to(run.device(), run.param("non_blocking") != 0);
    const auto mean = input.mean();
  });
}

// Each power of two has a pool that gives nothing back, so batches of varying length fill several.
#include "leaklab/pinned_loader.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// Samples are sorted by length, so of the micro-batches that a step holds at once ever more are
// long and ever fewer short: the pool takes one more long block every few steps and keeps the short
// ones.
LEAKLAB_SCENARIO(
    pinned_varying_sizes, .taxonomy = "L42",
    .summary = "each pinned micro-batch is as long as its longest sample",
    .reports = {"vllm-project/vllm#48165", "pytorch/pytorch#124456", "pytorch/pytorch#97432"},
    .needs = {"pinned"}, .fix = "pad to one length (or to few), or copy from pageable memory",
    .params = {{"batch", 16, 1, 64, "samples in a micro-batch"},
               {"length", 256, 1, 512, "values of a short sample; a long one has twice as many"},
               {"window", 24, 22, 32, "micro-batches that a step holds at once"},
               {"every", 3, 1, 5, "steps from one more long micro-batch to the next"}},
    .expect = [](const Setting& at) {
      return Growth()
          .on("pinned_owned", pinned_block(4 * at["batch"] * 2 * at["length"]))
          .every(at["every"])
          .until(at["every"] * (at["window"] - 1) + 1);
    }) {
  const auto length = run.param("length");
  const auto window = run.param("window");
  const auto every = run.param("every");
  PinnedLoader loader({.batches = run.steps() * window,
                       .rows = run.param("batch"),
                       .length = [=, fault = run.fault()](std::int64_t index) {
                         const bool is_short = index % window > index / window / every;
                         return fault && is_short ? length : 2 * length;
                       }});
  run.before_sampling([&] { loader.wait_for_workers(); });
  run.step([&](Step) {
    std::vector<torch::Tensor> held;
    for (std::int64_t i = 0; i < window; ++i) {
      held.push_back(loader.next());
      const auto input = held.back().to(run.device(), /*non_blocking=*/true);
      const auto mean = input.mean();
    }
  });
}

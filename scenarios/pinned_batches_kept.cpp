// Batches that are kept after their step keep page-locked memory, and the pool takes more for the
// next.
#include "leaklab/pinned_loader.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    pinned_batches_kept, .taxonomy = "L42",
    .summary = "pinned batches are kept on the host after they were copied to the device",
    .reports = {"pytorch/pytorch#97432"}, .needs = {"pinned"},
    .fix = "let a batch go once it is on the device, or keep batch.clone(), which is pageable",
    .params = {{"batch", 1000, 1, 2048, "samples in a step"},
               {"features", 300, 1, 1024, "values of a sample"}},
    .expect = [](const Setting& at) {
      return Growth().on("pinned_owned", pinned_block(4 * at["batch"] * at["features"]));
    }) {
  const auto features = run.param("features");
  PinnedLoader loader({.batches = run.steps(),
                       .rows = run.param("batch"),
                       .length = [=](std::int64_t) { return features; }});
  run.before_sampling([&] { loader.wait_for_workers(); });
  std::vector<torch::Tensor> seen;
  run.step([&](Step) {
    const auto batch = loader.next();
    const auto input = batch.to(run.device(), /*non_blocking=*/true);
    const auto mean = input.mean();
    if (run.fault()) seen.push_back(batch);
  });
}

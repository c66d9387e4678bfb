// Gradients are accumulated under no_sync and synchronised once a window: they come and go.
#include <optional>

#include "leaklab/ddp.h"
#include "leaklab/nets.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    ddp_no_sync_correct, .taxonomy = "N12",
    .summary =
        "all micro-steps of a window but the last are under no_sync, a micro-step being a "
        "step: gradients are held until the window ends",
    .reports = {"hpcaitech/ColossalAI#4483", "pytorch/pytorch#53443"}, .needs = {"nccl"},
    .params = {{"window", 4, 2, 6, "micro-steps"},
               {"batch", 16, 1, 128, "samples in a micro-step"},
               {"width", 64, 1, 256, "of each layer"}},
    // Buckets are rebuilt in the first step of the second window.
    .steps = 32, .warmup = 8,
    .expect = [](const Setting& at) { return Growth().every(at["window"]); }) {
  const auto window = run.param("window");
  const auto batch = run.param("batch");
  const auto width = run.param("width");
  ddp::World world(run, [&](torch::Device device) { return mlp({width, width, width}, device); });
  std::int64_t unsynchronised = 0;
  run.step([&](Step step) {
    const bool ends_window = (step.index + 1) % window == 0;
    const auto reduced_before = world.rank(0).reduced_bytes();
    world.each([&](ddp::Rank& rank) {
      std::optional<ddp::NoSync> quiet;
      if (!ends_window) quiet.emplace(rank);
      mean_square(rank.forward(torch::ones({batch, width}, rank.device()))).backward();
      if (ends_window) rank.zero_grad();
    });
    const bool reduced = world.rank(0).reduced_bytes() != reduced_before;
    unsynchronised = reduced ? 0 : unsynchronised + 1;
    run.gauge("steps_unsynchronised", unsynchronised);
  });
}

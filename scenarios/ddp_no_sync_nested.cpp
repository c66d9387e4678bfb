// no_sync within no_sync: leaving the inner one does not end the outer one.
#include "leaklab/ddp.h"
#include "leaklab/nets.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    ddp_no_sync_nested, .taxonomy = "N12",
    .summary =
        "a helper enters and leaves no_sync inside the window's own no_sync, and the window "
        "is still synchronised once, by its last pass",
    .reports = {"pytorch/pytorch#21736", "hpcaitech/ColossalAI#4483"}, .needs = {"nccl"},
    .params = {{"micro_steps", 2, 1, 4, "pairs of a guarded and a plain pass in a window"},
               {"width", 64, 1, 256, "of each layer"}},
    .expect = [](const Setting&) { return Growth(); }) {
  const auto micro_steps = run.param("micro_steps");
  const auto width = run.param("width");
  ddp::World world(run, [&](torch::Device device) { return mlp({width, width, width}, device); });
  const auto pass = [&](ddp::Rank& rank) {
    mean_square(rank.forward(torch::ones({8, width}, rank.device()))).backward();
  };
  const auto guarded_pass = [&](ddp::Rank& rank) {
    const auto inner = rank.no_sync();
    pass(rank);
  };
  run.step([&](Step step) {
    world.each([&](ddp::Rank& rank) {
      {
        const auto outer = rank.no_sync();
        for (std::int64_t i = 0; i < micro_steps; ++i) {
          guarded_pass(rank);
          pass(rank);
        }
      }
      pass(rank);
      rank.zero_grad();
    });
    const auto needed = (step.index + 1) * 2 * 4 * (width * width + width);
    run.gauge("surplus_reduced_bytes", world.rank(0).reduced_bytes() - needed, "B");
  });
}

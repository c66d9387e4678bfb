// Losses of passes under no_sync are collected for a backward pass that never comes.
#include "leaklab/ddp.h"
#include "leaklab/nets.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    ddp_no_sync_outputs_kept, .taxonomy = "L02",
    .summary =
        "losses of forward passes under no_sync are collected for a later backward pass "
        "that never comes, each with everything that its pass saved",
    .reports = {"pytorch/pytorch#19577", "recursionpharma/gflownet#130"}, .needs = {"nccl"},
    .fix = "run the backward pass of each micro-step inside the window and drop its loss",
    .params = {{"micro_steps", 3, 1, 4, "passes under no_sync in a step"},
               {"batch", 16, 1, 128, "samples in a pass"},
               {"width", 64, 8, 512, "of each layer"}},
    .expect = [](const Setting& at) {
      const auto activation = 4 * at["batch"] * at["width"];
      const auto passes = at["micro_steps"] * ddp::recorded_ranks(at);
      // A pass keeps its input, three hidden layers, the output and the loss; and nodes for four
      // products, four transposed weights, three ReLUs, the squares and their mean.
      return Growth()
          .tensor(activation, 5 * passes)
          .tensor(4, passes)
          .nodes(13 * at["micro_steps"] * at.ranks());
    }) {
  const auto micro_steps = run.param("micro_steps");
  const auto batch = run.param("batch");
  const auto width = run.param("width");
  ddp::World world(run, [&](torch::Device device) {
    return mlp({width, width, width, width, width}, device);
  });
  std::vector<std::vector<torch::Tensor>> losses(world.size());
  run.step([&](Step) {
    world.each([&](ddp::Rank& rank) {
      auto& pending = losses[rank.index()];
      const auto loss = [&] {
        return mean_square(rank.forward(torch::ones({batch, width}, rank.device())));
      };
      for (std::int64_t i = 0; i < micro_steps; ++i) {
        const auto quiet = rank.no_sync();
        pending.push_back(loss());
      }
      if (!run.fault()) {
        for (const auto& collected : pending) collected.backward();
        pending.clear();
      }
      loss().backward();
      rank.zero_grad();
    });
  });
}

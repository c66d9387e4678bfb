// The last micro-step of a window is still under no_sync, so that ranks train on their own.
#include <optional>

#include "leaklab/ddp.h"
#include "leaklab/nets.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    ddp_no_sync_never_left, .taxonomy = "N12",
    .summary =
        "the last micro-step of each window is under no_sync as well: nothing is ever "
        "all-reduced, and the ranks' weights drift apart while memory stays flat",
    .reports = {"huggingface/picotron#5", "pytorch/pytorch#53443"}, .needs = {"nccl"},
    .fix = "leave no_sync before the forward pass of the window's last micro-step",
    .params = {{"micro_steps", 2, 1, 4, "passes in a window, which is a step"},
               {"width", 32, 1, 256, "of the layer"}},
    .expect =
        [](const Setting& at) {
          // Weights of rank r move by r + 1 eighths a pass.
          return Growth()
              .on("gauge.steps_unsynchronised", 1)
              .on("gauge.ranks_apart", 125 * at["micro_steps"] * (at.ranks() - 1));
        },
    .kind_override = Kind::leak) {
  const auto micro_steps = run.param("micro_steps");
  const auto width = run.param("width");
  ddp::World world(run, [&](torch::Device device) { return mlp({width, width}, device); });
  std::vector<torch::optim::SGD> optimizers;
  for (std::size_t i = 0; i < world.size(); ++i) {
    optimizers.emplace_back(world.rank(i).parameters(), torch::optim::SGDOptions(0.125));
  }
  auto& first = world.rank(0);
  auto& last = world.rank(world.size() - 1);
  std::int64_t unsynchronised = 0;
  run.step([&](Step) {
    const auto reduced_before = first.reduced_bytes();
    world.each([&](ddp::Rank& rank) {
      const auto value = static_cast<double>(rank.index() + 1);
      for (std::int64_t i = 0; i < micro_steps; ++i) {
        std::optional<ddp::NoSync> quiet;
        if (run.fault() || i + 1 < micro_steps) quiet.emplace(rank);
        const auto input = torch::full({8, width}, value, rank.device());
        rank.forward(input).mean(0).sum().backward();
      }
      optimizers[rank.index()].step();
      optimizers[rank.index()].zero_grad();
    });
    unsynchronised = first.reduced_bytes() == reduced_before ? unsynchronised + 1 : 0;
    run.gauge("steps_unsynchronised", unsynchronised);
    const auto difference =
        first.parameters().front().detach().cpu() - last.parameters().front().detach().cpu();
    run.gauge("ranks_apart", difference.abs().max().item<double>());
  });
}

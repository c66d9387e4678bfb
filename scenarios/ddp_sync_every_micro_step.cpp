// no_sync is entered after the forward pass, which has armed the synchronisation by then.
#include <optional>

#include "leaklab/ddp.h"
#include "leaklab/nets.h"

using namespace leaklab;

namespace {

std::int64_t gradient_bytes(const Setting& at) {
  return 2 * 4 * (at["width"] * at["width"] + at["width"]);
}

}  // namespace

LEAKLAB_SCENARIO(
    ddp_sync_every_micro_step, .taxonomy = "N12",
    .summary =
        "only the backward pass lies inside no_sync, so every micro-step of a window "
        "all-reduces all gradients instead of the last one alone",
    .reports = {"facebookresearch/ClassyVision#706", "KellerJordan/modded-nanogpt#31",
                "pytorch/PiPPy#1133", "huggingface/accelerate#1726"},
    .needs = {"nccl"}, .fix = "enter no_sync before the forward pass of the micro-step",
    .params = {{"micro_steps", 4, 2, 8, "passes in a window, which is a step"},
               {"width", 32, 1, 256, "of each layer"}},
    .expect =
        [](const Setting& at) {
          return Growth().on("gauge.surplus_reduced_bytes",
                             (at["micro_steps"] - 1) * gradient_bytes(at));
        },
    .kind_override = Kind::leak) {
  const auto micro_steps = run.param("micro_steps");
  const auto width = run.param("width");
  ddp::World world(run, [&](torch::Device device) { return mlp({width, width, width}, device); });
  run.step([&](Step step) {
    world.each([&](ddp::Rank& rank) {
      for (std::int64_t i = 0; i < micro_steps; ++i) {
        const bool accumulates = i + 1 < micro_steps;
        std::optional<ddp::NoSync> quiet;
        if (accumulates && !run.fault()) quiet.emplace(rank);
        const auto input = torch::ones({8, width}, rank.device());
        const auto loss = mean_square(rank.forward(input));
        if (accumulates && run.fault()) quiet.emplace(rank);
        loss.backward();
      }
      rank.zero_grad();
    });
    // One synchronisation a window is what the accumulated gradients need.
    const auto needed = (step.index + 1) * gradient_bytes(run.setting());
    run.gauge("surplus_reduced_bytes", world.rank(0).reduced_bytes() - needed, "B");
  });
}

// The path of a skipped step keeps its scaled loss, and with it the whole graph of the step.
#include <cmath>

#include "leaklab/amp.h"
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    amp_skipped_step_keeps_loss, .taxonomy = "L11",
    .summary =
        "the scaled loss of a step that the gradient scaler skipped is kept with its graph, "
        "to look at it later",
    .reports = {"EleutherAI/DeeperSpeed#66", "pytorch/pytorch#82218"},
    .fix = "keep the number of the skipped step, or the loss detached from its graph",
    .params = {{"batch", 64, 1, 512, "samples in a step"},
               {"width", 48, 1, 256, "of each layer"},
               {"every", 4, 1, 8, "steps from one overflow to the next"}},
    .expect = [](const Setting& at) {
      // In bfloat16 the input, two outputs of ReLU and the weights but the first layer's, in
      // float32 what is squared, and the loss.
      const auto activation = at["batch"] * at["width"];
      const auto weight = at["width"] * at["width"];
      return Growth()
          .tensor(2 * activation, 3)
          .tensor(2 * weight, 2)
          .tensor(4 * activation)
          .tensor(4)
          .nodes(19)
          .every(at["every"]);
    }) {
  const auto every = run.param("every");
  const auto width = run.param("width");
  auto net = mlp({width, width, width, width}, run.device());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
  GradScaler scaler;
  std::vector<torch::Tensor> skipped_losses;
  std::vector<std::int64_t> skipped_steps;
  run.step([&](Step step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    const auto target = torch::full_like(input, step.index % every == 0 ? INFINITY : 0.0);
    torch::Tensor scaled;
    {
      const Autocast scope(run.device(), torch::kBFloat16);
      const auto output = net->forward(input).to(torch::kFloat);
      scaled = scaler.scale(mean_square(output - target));
    }
    scaled.backward({}, /*retain_graph=*/true);  // to run it again at a lower scale
    if (!scaler.step(optimizer)) {
      if (run.fault()) {
        skipped_losses.push_back(scaled);
      } else {
        skipped_steps.push_back(step.index);
      }
    }
    scaler.update();
    optimizer.zero_grad();
  });
}

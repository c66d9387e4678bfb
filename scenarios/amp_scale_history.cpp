// The scale of each step kept as a device tensor: four bytes a step, and a block of 512 for them.
#include "leaklab/amp.h"
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    amp_scale_history, .taxonomy = "L23",
    .summary = "the gradient scaler's scale is kept each step as a device tensor, to plot it later",
    .reports = {"Lightning-AI/pytorch-lightning#4556"},
    .fix = "keep scaler.get_scale(), a number on the host, or one tensor that is overwritten",
    .params = {{"width", 64, 1, 512, "of each layer"},
               {"every", 1, 1, 4, "steps between two values kept"}},
    .expect = [](const Setting& at) { return Growth().tensor(4).every(at["every"]); }) {
  const auto width = run.param("width");
  const auto every = run.param("every");
  auto net = mlp({width, width, width}, run.device());
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
  GradScaler scaler;
  const auto one = torch::ones({}, run.device());
  std::vector<torch::Tensor> history;
  std::vector<float> plot;
  run.step([&](Step step) {
    const auto input = torch::ones({16, width}, run.device());
    scaler.scale(mean_square(net->forward(input))).backward();
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    if (step.index % every != 0) return;
    const auto scale = scaler.scale(one);
    if (run.fault()) {
      history.push_back(scale);
    } else {
      plot.push_back(scale.item<float>());
    }
  });
}

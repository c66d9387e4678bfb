// Losses summed over a window keep the window's graphs until its backward pass: a sawtooth.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_accumulation_window, .taxonomy = "N12",
    .summary =
        "losses are summed over a window of steps, whose graphs live until its backward pass",
    .reports = {"hpcaitech/ColossalAI#4483"},
    .params = {{"batch", 64, 1, 256, "samples in a step"},
               {"width", 128, 8, 512, "of each layer"},
               {"window", 5, 1, 8, "steps whose losses are summed"}},
    .steps = 32, .warmup = 9,
    .expect = [](const Setting& at) { return Growth().every(at["window"]); }) {
  const auto width = run.param("width");
  const auto window = run.param("window");
  auto net = mlp({width, width, width, width}, run.device());
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  torch::Tensor total;
  run.step([&](Step step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    const auto loss = mean_square(net->forward(input)) / window;
    total = total.defined() ? total + loss : loss;
    if ((step.index + 1) % window != 0) return;
    total.backward();
    optimizer.step();
    optimizer.zero_grad();
    total.reset();
  });
}

// A plain training step, which moves no channel.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(control_flat, .taxonomy = "C02",
                 .summary = "a net is trained with Adam and everything is released in time",
                 .params = {{"batch", 32, 1, 256, "samples in a step"},
                            {"width", 64, 8, 512, "of each layer"}}) {
  const auto width = run.param("width");
  auto net = mlp({width, width, width, width}, run.device());
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  double sum = 0;
  run.step([&](Step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    optimizer.zero_grad();
    const auto loss = mean_square(net->forward(input));
    loss.backward();
    optimizer.step();
    sum += loss.item<double>();
  });
}

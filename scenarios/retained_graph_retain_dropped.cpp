// A graph that is retained for a second loss dies with the step: a higher peak and no leak.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_retain_dropped, .taxonomy = "N18",
    .summary = "two losses share a graph, which is retained for the second and dropped with both",
    .reports = {"GBLin5566/toward-controlled-generation#9"},
    .params = {{"batch", 64, 1, 256, "samples in a step"},
               {"width", 128, 8, 512, "of each layer"}}) {
  const auto width = run.param("width");
  auto net = mlp({width, width, width, width}, run.device());
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  run.step([&](Step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    optimizer.zero_grad();
    const auto output = net->forward(input);
    mean_square(output).backward({}, /*retain_graph=*/true);
    output.mean().backward();
    optimizer.step();
  });
}

// A loss that is declared outside the loop lives until the next one is there: two graphs at once.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_two_alive, .taxonomy = "N18",
    .summary = "the last step's loss lives until it is assigned anew, so two graphs are alive",
    .reports = {"pytorch/pytorch#4890"},
    .params = {{"batch", 64, 1, 256, "samples in a step"},
               {"width", 128, 8, 512, "of each layer"}}) {
  const auto width = run.param("width");
  auto net = mlp({width, width, width, width}, run.device());
  torch::Tensor loss;
  run.step([&](Step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    loss = mean_square(net->forward(input));
  });
}

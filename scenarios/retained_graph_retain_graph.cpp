// backward(retain_graph=true) frees nothing: whoever keeps the loss keeps all that was saved.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_retain_graph, .taxonomy = "L02",
    .summary = "the backward pass retains the graph and the loss is kept with its history",
    .reports = {"GBLin5566/toward-controlled-generation#9"},
    .fix = "drop retain_graph, and keep loss.item<float>() instead of the loss",
    .params = {{"batch", 64, 1, 256, "samples in a step"},
               {"width", 128, 8, 512, "of each layer"},
               {"layers", 3, 1, 8, "linear, with ReLU between them"}},
    .expect = [](const Setting& at) {
      // Each layer saves its input, the square saves the output; the loss is a tensor of its own.
      // Nodes of a layer: linear, its weight's transpose and ReLU, the last without; square, mean.
      return Growth()
          .tensor(4 * at["batch"] * at["width"], at["layers"] + 1)
          .tensor(4)
          .nodes(3 * at["layers"] + 1);
    }) {
  const auto width = run.param("width");
  const auto layers = static_cast<std::size_t>(run.param("layers"));
  auto net = mlp(std::vector<std::int64_t>(layers + 1, width), run.device());
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  std::vector<torch::Tensor> losses;
  double sum = 0;
  run.step([&](Step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    optimizer.zero_grad();
    const auto loss = mean_square(net->forward(input));
    loss.backward({}, /*retain_graph=*/true);
    optimizer.step();
    if (run.fault()) {
      losses.push_back(loss);
    } else {
      sum += loss.item<double>();
    }
  });
}

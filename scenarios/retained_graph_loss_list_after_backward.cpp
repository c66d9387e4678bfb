// Losses kept in a vector after backward() hold one scalar and the nodes of their graph each.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_loss_list_after_backward, .taxonomy = "L02",
    .summary = "losses are kept in a vector with their history after the backward pass",
    .reports = {"pytorch/pytorch#64586", "Lightning-AI/pytorch-lightning#4556"},
    .fix = "keep loss.item<float>(), never the loss itself",
    .params = {{"batch", 32, 1, 256, "samples in a step"},
               {"width", 64, 8, 512, "of each layer"},
               {"layers", 2, 1, 8, "linear, with ReLU between them"}},
    // A layer: linear, its weight's transpose and ReLU, the last without; then square and mean.
    .expect = [](const Setting& at) { return Growth().tensor(4).nodes(3 * at["layers"] + 1); }) {
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
    loss.backward();
    optimizer.step();
    if (run.fault()) {
      losses.push_back(loss);
    } else {
      sum += loss.item<double>();
    }
  });
}

// Losses kept in a vector for a later average keep every step's graph and all that it saved.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_loss_list, .taxonomy = "L02",
    .summary = "losses are kept in a vector with their history and never used for a backward pass",
    .reports = {"recursionpharma/gflownet#130", "Metta-AI/metta#1139"},
    .fix = "keep loss.item<float>(), never the loss itself",
    .params = {{"batch", 64, 1, 256, "samples in a step"},
               {"width", 512, 8, 1024, "of each layer"},
               {"layers", 4, 1, 8, "linear, with ReLU between them"}},
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
  std::vector<torch::Tensor> losses;
  double sum = 0;
  run.step([&](Step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    const auto loss = mean_square(net->forward(input));
    if (run.fault()) {
      losses.push_back(loss);
    } else {
      sum += loss.item<double>();
    }
  });
}

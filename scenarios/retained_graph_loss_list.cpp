// Losses kept in a vector for a later average keep every step's graph alive.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_loss_list, .taxonomy = "L02",
    .summary = "losses are kept in a vector with their history and never used for a backward pass",
    .reports = {"recursionpharma/gflownet#130", "Metta-AI/metta#1139"},
    .fix = "keep loss.detach() or loss.item<float>(), never the loss itself",
    .params = {{"batch", 64, 1, 1024, "samples in a step"},
               {"width", 512, 8, 2048, "of each layer"}},
    .expect = [](const Setting& at) {
      const auto activation = 4 * at["batch"] * at["width"];
      return Growth().tensor(activation, 5).tensor(4).nodes(9);
    }) {
  const auto batch = run.param("batch");
  const auto width = run.param("width");
  auto net = mlp({width, width, width, width, width}, run.device());
  std::vector<torch::Tensor> losses;
  run.step([&](Step) {
    const auto input = torch::ones({batch, width}, run.device());
    const auto loss = mean_square(net->forward(input));
    losses.push_back(run.fault() ? loss : loss.detach());
  });
}

// A running total of losses keeps the graph of every loss, even when backward() freed its tensors.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    retained_graph_running_total, .taxonomy = "L01",
    .summary = "losses are summed for the log with their history: total = total + loss",
    .reports = {"pytorch/pytorch#1840", "https://pytorch.org/docs/stable/notes/faq.html"},
    .fix = "sum loss.item<double>() or loss.detach()",
    .params = {{"batch", 32, 1, 256, "samples in a step"},
               {"width", 64, 8, 512, "of each layer"},
               {"layers", 2, 1, 8, "linear, with ReLU between them"}},
    // A layer: linear, its weight's transpose and ReLU, the last without; then square, mean and
    // sum.
    .expect = [](const Setting& at) { return Growth().nodes(3 * at["layers"] + 2); }) {
  const auto width = run.param("width");
  const auto layers = static_cast<std::size_t>(run.param("layers"));
  auto net = mlp(std::vector<std::int64_t>(layers + 1, width), run.device());
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  auto total = torch::zeros({}, run.device());
  run.step([&](Step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    optimizer.zero_grad();
    const auto loss = mean_square(net->forward(input));
    loss.backward();
    optimizer.step();
    total = total + (run.fault() ? loss : loss.detach());
  });
}

// A gradient made with create_graph has a history; one that is never reset keeps every step's.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    zero_grad_create_graph, .taxonomy = "L06",
    .summary = "backward(create_graph=true) fills .grad with a history that is never reset",
    .reports = {"pytorch/pytorch#1346", "pytorch/pytorch#7343", "pytorch/pytorch#16744"},
    .fix = "use torch::autograd::grad(), or reset .grad at the end of every step",
    .params = {{"batch", 32, 1, 256, "samples in a step"},
               {"width", 64, 8, 512, "of each layer"},
               {"layers", 3, 1, 6, "linear, with ReLU between them"}},
    .expect = [](const Setting& at) {
      // Saved by the forward pass: each layer's input, and the output. By the backward pass: the
      // gradient of the mean, and of each layer's output but the first's, whose input is data.
      // Nodes: 3 a layer and 1 forward, 11 a layer less 2 backward.
      return Growth()
          .tensor(4 * at["batch"] * at["width"], 2 * at["layers"] + 1)
          .nodes(14 * at["layers"] - 1)
          .outlives_scope();
    }) {
  const auto width = run.param("width");
  const auto layers = static_cast<std::size_t>(run.param("layers"));
  auto net = mlp(std::vector<std::int64_t>(layers + 1, width), run.device());
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  run.step([&](Step) {
    const auto input = torch::ones({run.param("batch"), width}, run.device());
    const auto loss = mean_square(net->forward(input));
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    optimizer.step();
    // At the end of the step: the gradients of the last one would outlive the net.
    if (!run.fault()) optimizer.zero_grad();
  });
}

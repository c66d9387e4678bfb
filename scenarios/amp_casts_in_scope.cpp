// Weights are cast once in an autocast scope, kept while it lasts, and gone when it ends.
#include "leaklab/amp.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    amp_casts_in_scope, .taxonomy = "N08",
    .summary =
        "an autocast scope of several steps keeps the casts of the weights, half their "
        "bytes, and gives them back when it ends",
    .reports = {"ecmwf/anemoi-core#134", "pytorch/pytorch#61173"},
    .params = {{"width", 64, 1, 512, "of each of the three layers"},
               {"window", 4, 1, 6, "steps in one scope"}},
    .expect = [](const Setting& at) { return Growth().every(at["window"]); }) {
  const auto width = run.param("width");
  const auto window = run.param("window");
  std::vector<torch::Tensor> weights;
  for (int layer = 0; layer < 3; ++layer) {
    weights.push_back(torch::full({width, width}, 0.01, run.device()).requires_grad_());
  }
  std::optional<Autocast> scope;
  run.step([&](Step step) {
    if (step.index % window == 0) scope.emplace(run.device(), torch::kBFloat16);
    auto activation = torch::ones({1, width}, run.device());
    // Not torch::nn::Linear, which multiplies by a view of its weight: views are never cached.
    for (const auto& weight : weights) activation = torch::linear(activation, weight);
    if (step.index % window == window - 1) scope.reset();
  });
}

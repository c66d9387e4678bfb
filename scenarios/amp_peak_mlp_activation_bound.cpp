// In a net whose activations outweigh its weights, mixed precision lowers the peak of a step.
#include "leaklab/amp.h"
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    amp_peak_mlp_activation_bound, .taxonomy = "N08",
    .summary =
        "every second step of an MLP with many activations runs under autocast: the peak "
        "inside the steps moves and nothing is kept",
    .reports = {"pytorch/pytorch#61173", "Lightning-AI/pytorch-lightning#3382"},
    .params = {{"batch", 256, 1, 4096, "samples in a step"},
               {"width", 32, 1, 128, "of each of the eight layers"}},
    .expect = [](const Setting&) { return Growth().every(2); }) {
  const auto width = run.param("width");
  const auto input = torch::ones({run.param("batch"), width}, run.device());
  std::vector<torch::Tensor> weights;
  for (int layer = 0; layer < 8; ++layer) {
    weights.push_back(torch::full({width, width}, 0.01, run.device()).requires_grad_());
  }
  compare_precisions(run, weights, [&] {
    auto activation = input;
    for (const auto& weight : weights) activation = torch::linear(activation, weight).relu();
    return mean_square(activation.to(torch::kFloat));
  });
}

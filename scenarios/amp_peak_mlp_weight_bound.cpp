// In a net whose weights outweigh its activations, mixed precision raises the peak of a step.
#include "leaklab/amp.h"
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// The last step of the warm-up is one in FP32, as the lower of the two, so that the peak rises.
LEAKLAB_SCENARIO(
    amp_peak_mlp_weight_bound, .taxonomy = "N08",
    .summary =
        "every second step of an MLP with few activations runs under autocast: the casts of "
        "its weights raise the peak inside the step and are gone after it",
    .reports = {"pytorch/pytorch#61173", "ecmwf/anemoi-core#134"},
    .params = {{"batch", 4, 1, 64, "samples in a step"},
               {"width", 128, 8, 512, "of each of the eight layers"}},
    .steps = 21, .warmup = 5, .expect = [](const Setting&) { return Growth().every(2); }) {
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

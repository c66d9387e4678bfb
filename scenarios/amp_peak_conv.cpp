// In a convolutional net, mixed precision lowers the peak of a step by part of its activations.
#include "leaklab/amp.h"
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    amp_peak_conv, .taxonomy = "N08",
    .summary =
        "every second step of a convolutional net runs under autocast: the peak inside the "
        "steps moves and nothing is kept",
    .reports = {"pytorch/pytorch#61173", "Lightning-AI/pytorch-lightning#3382"},
    .params = {{"batch", 4, 1, 32, "images in a step"},
               {"channels", 8, 1, 24, "of each of the four convolutions"},
               {"size", 16, 3, 48, "of an image, height and width"}},
    .expect = [](const Setting&) { return Growth().every(2); }) {
  const auto channels = run.param("channels");
  const auto size = run.param("size");
  const auto weight = torch::TensorOptions(run.device()).dtype(torch::kFloat).requires_grad(true);
  std::vector<torch::Tensor> weights;
  for (int layer = 0; layer < 4; ++layer) {
    weights.push_back(torch::full({channels, channels, 3, 3}, 0.01, weight));
  }
  const auto images = torch::ones({run.param("batch"), channels, size, size}, run.device());
  compare_precisions(run, weights, [&] {
    auto activation = images;
    for (const auto& filter : weights) {
      activation = torch::conv2d(activation, filter, {}, 1, 1).relu();
    }
    return mean_square(activation.to(torch::kFloat));
  });
}

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
  const auto batch = run.param("batch");
  const auto width = run.param("width");
  auto net = mlp(std::vector<std::int64_t>(9, width), run.device());
  const auto input = torch::ones({batch, width}, run.device());
  compare_precisions(run, net->parameters(),
                     [&] { return mean_square(net->forward(input).to(torch::kFloat)); });
}

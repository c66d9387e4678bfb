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
  const auto batch = run.param("batch");
  const auto width = run.param("width");
  auto net = mlp(std::vector<std::int64_t>(9, width), run.device());
  const auto input = torch::ones({batch, width}, run.device());
  compare_precisions(run, net->parameters(),
                     [&] { return mean_square(net->forward(input).to(torch::kFloat)); });
}

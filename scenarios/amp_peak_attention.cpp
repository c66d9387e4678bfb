// In an encoder layer, mixed precision lowers the peak of a step, with its softmax in FP32 too.
#include "leaklab/amp.h"
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    amp_peak_attention, .taxonomy = "N08",
    .summary =
        "every second step of a transformer's encoder layer runs under autocast: the peak "
        "inside the steps moves and nothing is kept",
    .reports = {"pytorch/pytorch#61173", "Lightning-AI/pytorch-lightning#3382"},
    .params = {{"batch", 2, 1, 16, "sequences in a step"},
               {"tokens", 32, 1, 128, "in a sequence"},
               {"width", 16, 1, 32, "of each of the four heads"}},
    .expect = [](const Setting&) { return Growth().every(2); }) {
  const auto batch = run.param("batch");
  const auto tokens = run.param("tokens");
  const auto width = run.param("width");
  const auto all = 4 * width;
  std::vector<torch::Tensor> weights;
  for (const auto& [out, in] :
       {std::pair{3 * all, all}, {all, all}, {4 * all, all}, {all, 4 * all}}) {
    weights.push_back(torch::full({out, in}, 0.01, run.device()).requires_grad_());
  }
  const auto input = torch::ones({batch, tokens, all}, run.device());
  compare_precisions(run, weights, [&] {
    const auto projected = torch::linear(input, weights[0]).view({batch, tokens, 3, 4, width});
    const auto parts = projected.permute({2, 0, 3, 1, 4}).unbind();
    // Autocast runs softmax in FP32 on CUDA only; asked for, it does so on both.
    const auto attention = parts[0].matmul(parts[1].transpose(-2, -1)).softmax(-1, torch::kFloat);
    const auto attended = attention.matmul(parts[2]).transpose(1, 2).flatten(2);
    const auto middle = input + torch::linear(attended, weights[1]);
    const auto hidden = torch::linear(middle, weights[2]).relu();
    return mean_square(middle + torch::linear(hidden, weights[3]));
  });
}

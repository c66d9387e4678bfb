// A sparse gradient that is never zeroed gets longer by every row that was looked up.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

namespace {

constexpr std::int64_t words = 128;  // of a sentence

}  // namespace

LEAKLAB_SCENARIO(
    zero_grad_sparse_embedding, .taxonomy = "L37",
    .summary = "sparse gradients of an embedding are never zeroed: their rows are concatenated",
    .reports = {"pytorch/pytorch#17919", "pytorch/pytorch#3139"},
    .fix = "call optimizer.zero_grad() in every step, or coalesce the gradient",
    .params = {{"sentences", 2, 1, 3, "of 128 words in a step"},
               {"dim", 16, 4, 32, "floats of a row"}},
    .expect = [](const Setting& at) {
      // A row is its index and its values. Adding makes the longer gradient beside the old one.
      const auto bytes = words * at["sentences"] * (8 + 4 * at["dim"]);
      Growth growth;
      growth.on("requested", bytes).on("allocated", bytes).on("peak", 2 * bytes);
      // There the peak is in the optimizer, which sorts the rows in a library's scratch memory.
      if (at.on_cuda()) growth.unpredicted("peak");
      return growth;
    }) {
  const auto rows = words * run.param("sentences");
  // Every step reads words that no step read before: rows of the same word may be summed instead.
  torch::nn::Embedding table(
      torch::nn::EmbeddingOptions(rows * run.steps(), run.param("dim")).sparse(true));
  fill_deterministically(*table);
  table->to(run.device());
  torch::optim::SGD optimizer(table->parameters(), 1e-3);
  run.step([&](Step step) {
    const auto first = rows * step.index;
    const auto text = torch::arange(first, first + rows, torch::dtype(torch::kLong));
    if (!run.fault()) optimizer.zero_grad();
    mean_square(table->forward(text.to(run.device()))).backward();
    optimizer.step();
  });
}

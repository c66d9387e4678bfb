// A cache keyed by shape that evicts nothing grows with every shape that it has not seen.
#include <map>

#include "leaklab/scenario.h"

using namespace leaklab;

namespace {

constexpr std::size_t bound = 2;  // entries that the fixed twin keeps

}  // namespace

LEAKLAB_SCENARIO(
    tensor_cache_by_shape, .taxonomy = "L20",
    .summary = "sampling positions are cached by input length and none is ever evicted",
    .reports = {"LibreYOLO/libreyolo#541", "lucidrains/rotary-embedding-torch#15"},
    .fix = "bound the cache and evict what was not used for longest",
    .params = {{"width", 4096, 1, 131072, "points that every signal is resampled to"}},
    .expect = [](const Setting& at) { return Growth().tensor(8 * at["width"]); }) {
  const auto width = run.param("width");
  const auto signal = torch::ones({width + run.steps()}, run.device());
  const auto indices = torch::dtype(torch::kLong).device(run.device());
  std::map<std::int64_t, torch::Tensor> positions;  // by length
  run.step([&](Step step) {
    const auto input = signal.narrow(0, 0, width + step.index);
    auto& entry = positions[input.numel()];
    if (!entry.defined()) entry = torch::linspace(0, input.numel() - 1, width, indices);
    const auto resampled = input.index_select(0, entry);
    if (!run.fault() && positions.size() > bound) positions.erase(positions.begin());
  });
}

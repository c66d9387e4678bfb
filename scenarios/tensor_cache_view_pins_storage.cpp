// A small view that is kept keeps the whole storage that it looks into.
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    tensor_cache_view_pins_storage, .taxonomy = "L22",
    .summary = "the first row of every batch is kept as a view, which pins the whole batch",
    .reports = {"pytorch/pytorch#33101", "pytorch/pytorch#1995"},
    .fix = "copy the row, by copy_() into a tensor of its size or by clone()",
    .params = {{"rows", 64, 2, 512, "of a batch"}, {"width", 256, 1, 512, "floats of a row"}},
    .expect = [](const Setting& at) {
      // The view takes the place of a tensor for one row, which dies.
      const auto row = 4 * at["width"];
      return Growth().tensor(at["rows"] * row).tensor(row, -1);
    }) {
  const auto width = run.param("width");
  std::vector<torch::Tensor> first_rows;
  for (std::int64_t i = 0; i < run.steps(); ++i) {
    first_rows.push_back(torch::zeros({1, width}, run.device()));
  }
  run.step([&](Step step) {
    const auto batch = torch::ones({run.param("rows"), width}, run.device());
    auto& kept = first_rows[static_cast<std::size_t>(step.index)];
    if (run.fault()) {
      kept = batch.narrow(0, 0, 1);
    } else {
      kept.copy_(batch.narrow(0, 0, 1));
    }
  });
}

// An autocast scope around the whole loop keeps the cast of every weight that it ever saw.
#include "leaklab/amp.h"
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    amp_cast_cache_open_scope, .taxonomy = "L28",
    .summary =
        "weights that are loaded anew each step are evaluated within one autocast scope, "
        "whose cache keeps every cast of them until it ends",
    .reports = {"pytorch/pytorch#48049", "pytorch/pytorch#45910"},
    .fix = "begin and end the autocast scope in each step, or switch its cache off",
    .params = {{"width", 64, 1, 512, "of each layer"}, {"layers", 3, 1, 8, "loaded in a step"}},
    .expect = [](const Setting& at) {
      // The history of a cast holds the weight itself.
      const auto weight = at["width"] * at["width"];
      return Growth()
          .tensor(2 * weight, at["layers"])
          .tensor(4 * weight, at["layers"])
          .nodes(2 * at["layers"]);
    }) {
  const auto width = run.param("width");
  std::optional<Autocast> whole_loop;
  if (run.fault()) whole_loop.emplace(run.device(), torch::kBFloat16);
  run.step([&](Step) {
    // Within another scope, this one leaves the cache as it is.
    const Autocast scope(run.device(), torch::kBFloat16);
    auto activation = torch::ones({1, width}, run.device());
    for (std::int64_t layer = 0; layer < run.param("layers"); ++layer) {
      const auto weight = torch::full({width, width}, 0.01, run.device()).requires_grad_();
      // Not torch::nn::Linear, which multiplies by a view of its weight: views are never cached.
      activation = torch::linear(activation, weight);
    }
  });
}

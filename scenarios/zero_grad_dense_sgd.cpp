// Gradients of a dense net that are never zeroed are summed in place: wrong, but not one byte more.
#include "leaklab/nets.h"
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    zero_grad_dense_sgd, .taxonomy = "N13",
    .summary =
        "zero_grad() is never called, so each step adds its dense gradients to all earlier ones",
    .reports = {"pytorch/pytorch#18643"}, .fix = "call optimizer.zero_grad() in every step",
    .params = {{"batch", 32, 1, 256, "samples in a step"}, {"width", 64, 8, 512, "of each layer"}},
    .expect = [](const Setting&) { return Growth().on("gauge.grad_norm_ratio", 1000); },
    .kind_override = Kind::leak) {
  const auto width = run.param("width");
  auto net = mlp({width, width, width, width}, run.device());
  // So small that float32 weights stay as they are: every step has the same gradient, and the norm
  // counts the steps that were summed.
  torch::optim::SGD optimizer(net->parameters(), 1e-9);
  const auto input = torch::ones({run.param("batch"), width}, run.device());
  double first_norm = 0;
  run.step([&](Step step) {
    if (!run.fault()) optimizer.zero_grad();
    mean_square(net->forward(input)).backward();
    optimizer.step();
    const auto norm = gradient_norm(*net);
    if (step.index == 0) first_norm = norm;
    run.gauge("grad_norm_ratio", norm / first_norm);
  });
}

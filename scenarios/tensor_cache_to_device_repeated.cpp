// .to(device) of a tensor that is there already returns the same tensor, however often it is kept.
#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    tensor_cache_to_device_repeated, .taxonomy = "N14",
    .summary = "a tensor is moved to the device that it is on and the result kept, in every step",
    .reports = {"https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html"},
    .params = {{"batch", 64, 1, 512, "samples"}, {"width", 128, 1, 512, "floats of a sample"}}) {
  auto batch = torch::ones({run.param("batch"), run.param("width")}, run.device());
  std::vector<torch::Tensor> moved;
  run.step([&](Step) {
    batch = batch.to(run.device());
    moved.push_back(batch);
    const auto output = batch * 2;
  });
}

// A bounded cache that fills for longer than the warm-up grows up to its bound, and no further.
#include <deque>

#include "leaklab/scenario.h"

using namespace leaklab;

LEAKLAB_SCENARIO(
    tensor_cache_bounded, .taxonomy = "N17",
    .summary = "a replay buffer gains a batch in every step until it has reached its capacity",
    .reports = {"BY571/IQN-and-Extensions#3"},
    .params = {{"capacity", 12, 1, 16, "batches that the buffer holds"},
               {"batch", 64, 1, 512, "samples in a step"},
               {"width", 128, 1, 512, "floats of a sample"}},
    .steps = 24, .expect = [](const Setting& at) {
      return Growth().tensor(4 * at["batch"] * at["width"]).until(at["capacity"]);
    }) {
  const auto capacity = static_cast<std::size_t>(run.param("capacity"));
  std::deque<torch::Tensor> replay;
  run.step([&](Step) {
    if (replay.size() == capacity) replay.pop_front();
    replay.push_back(torch::ones({run.param("batch"), run.param("width")}, run.device()));
  });
}

// For scenarios that `leaklab import` wrote: performs a pattern step by step.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "leaklab/pattern.h"
#include "leaklab/torch.h"

namespace leaklab {

// Holds what the pattern holds: the scenario's state.
class Performer {
 public:
  Performer(Pattern pattern, torch::Device device);
  // Performs one step. With `fault` the leaks stay; without, they are freed at the end of the step.
  void step(std::int64_t index, bool fault);

 private:
  Pattern pattern_;
  torch::Device device_;
  std::size_t reach_;                             // how many steps ago a step frees at most
  std::deque<std::vector<torch::Tensor>> steps_;  // that can still be freed, the running one first
  std::vector<torch::Tensor> held_;               // what no step frees, and what leaked
};

}  // namespace leaklab

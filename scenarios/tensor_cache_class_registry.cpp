// A class that registers the tensors of every object and forgets to take them out again.
#include <map>

#include "leaklab/scenario.h"

using namespace leaklab;

namespace {

class Adapter {
 public:
  Adapter(const torch::Tensor& weight, bool unregisters) : unregisters_(unregisters) {
    registry().emplace(number_, weight);
  }
  ~Adapter() {
    if (unregisters_) registry().erase(number_);
  }
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  torch::Tensor forward(const torch::Tensor& input) const { return input * registry().at(number_); }

 private:
  static std::map<std::int64_t, torch::Tensor>& registry() {
    // Never destroyed: the device may be gone before static objects are.
    static auto* tensors = new std::map<std::int64_t, torch::Tensor>;
    return *tensors;
  }
  static inline std::int64_t last_number = 0;
  std::int64_t number_ = ++last_number;
  bool unregisters_;
};

}  // namespace

LEAKLAB_SCENARIO(
    tensor_cache_class_registry, .taxonomy = "L16",
    .summary = "a static registry of the class holds the weights of every adapter ever loaded",
    .reports = {"huggingface/peft#738", "turboderp-org/exllamav2#100"},
    .fix = "take the weights out of the registry in the destructor",
    .params = {{"rank", 16, 1, 128, "rows of an adapter"}, {"width", 512, 1, 2048, "its columns"}},
    .expect = [](const Setting& at) {
      return Growth().tensor(4 * at["rank"] * at["width"]).outlives_scope();
    }) {
  const auto width = run.param("width");
  const auto input = torch::ones({width}, run.device());
  run.step([&](Step) {
    const Adapter adapter(torch::ones({run.param("rank"), width}, run.device()), !run.fault());
    const auto output = adapter.forward(input);
  });
}

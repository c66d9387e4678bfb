// Grows by a known amount in every channel: what fails to see this sees nothing.
#ifdef LEAKLAB_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#include "leaklab/scenario.h"

using namespace leaklab;

namespace {

constexpr std::int64_t MiB = 1024 * 1024;
constexpr auto heap_plant = 2 * MiB, pinned_plant = MiB / 4, driver_plant = 4 * MiB;

// Device memory that the caching allocator does not know of.
std::shared_ptr<void> raw_device_memory([[maybe_unused]] std::size_t bytes) {
#ifdef LEAKLAB_WITH_CUDA
  void* block = nullptr;
  TORCH_CHECK(cudaMalloc(&block, bytes) == cudaSuccess, "cudaMalloc gave no ", bytes, " bytes");
  return {block, &cudaFree};
#else
  return nullptr;
#endif
}

}  // namespace

LEAKLAB_SCENARIO(
    control_planted, .taxonomy = "C01", .summary = "every channel is given a known growth",
    .params = {{"segments", 1, 1, 3, "of the caching allocator, filled by two tensors each"},
               {"nodes", 3, 1, 8, "of autograd"}},
    .expect = [](const Setting& at) {
      const auto bytes = 2 * MiB * at["segments"];
      auto growth = Growth().tensor(MiB, 2 * at["segments"]).nodes(at["nodes"]);
      growth.on("gauge.planted", 1);
      if (!at.on_cuda()) {
        return growth.on("host_heap", heap_plant + bytes).on("host_rss", heap_plant + bytes);
      }
      growth.on("active", bytes).on("reserved", bytes).on("segments", at["segments"]);
      growth.on("inactive_split", 0).on("pinned_owned", pinned_plant);
      growth.on("driver", driver_plant + bytes).on("driver_gap", driver_plant);
      return growth.on("host_heap", heap_plant).on("host_rss", heap_plant);
    }) {
  const auto leaf = torch::ones({1}, torch::device(run.device()).requires_grad(true));
  std::vector<torch::Tensor> kept;
  std::vector<std::string> heap;
  std::vector<std::shared_ptr<void>> raw;
  run.step([&](Step step) {
    run.gauge("planted", run.fault() ? step.index + 1 : 0);
    if (!run.fault()) return;
    const auto count = 2 * run.param("segments");
    for (std::int64_t i = 0; i < count; ++i) kept.push_back(torch::ones({MiB / 4}, run.device()));
    // A view has a node and no memory of its own.
    for (std::int64_t i = 0; i < run.param("nodes"); ++i) kept.push_back(leaf.view({1}));
    heap.emplace_back(heap_plant, 'x');
    if (!run.device().is_cuda()) return;
    kept.push_back(torch::empty({pinned_plant}, torch::dtype(torch::kByte).pinned_memory(true)));
    raw.push_back(raw_device_memory(driver_plant));
  });
}

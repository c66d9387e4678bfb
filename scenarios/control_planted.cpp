// Grows by a known amount in every channel: what fails to see this sees nothing.
#ifdef LEAKLAB_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#include "leaklab/scenario.h"

using namespace leaklab;

namespace {
constexpr std::int64_t MiB = 1024 * 1024;
constexpr auto heap_plant = 2 * MiB, pinned_plant = MiB / 4, driver_plant = 4 * MiB;
constexpr auto gap = MiB / 4;  // in a segment of 2 MiB; too small for the tensors that follow

// Device memory that the caching allocator does not know of.
std::shared_ptr<void> raw_device_memory([[maybe_unused]] std::size_t bytes) {
#ifdef LEAKLAB_WITH_CUDA
  void* block = nullptr;
  if (cudaMalloc(&block, bytes) != cudaSuccess) throw std::bad_alloc();
  return {block, &cudaFree};
#else
  return nullptr;
#endif
}
}  // namespace

LEAKLAB_SCENARIO(
    control_planted, .taxonomy = "C01", .summary = "every channel is given a known growth",
    .params = {{"segments", 1, 1, 3, "of the caching allocator, with two tensors each"},
               {"nodes", 3, 1, 8, "of autograd"}},
    .expect = [](const Setting& at) {
      const auto segments = at["segments"], bytes = (2 * MiB - gap) * segments;
      auto growth = Growth().tensor(MiB, segments).tensor(MiB - gap, segments).nodes(at["nodes"]);
      const auto host = heap_plant + (at.on_cuda() ? 0 : bytes);
      growth.on("host_heap", host).on("host_rss", host).on("gauge.planted", 1);
      if (!at.on_cuda()) return growth;
      growth.on("active", bytes).on("reserved", 2 * MiB * segments).on("segments", segments);
      growth.on("inactive_split", gap * segments).on("pinned_owned", pinned_plant);
      return growth.on("driver", driver_plant + 2 * MiB * segments).on("driver_gap", driver_plant);
    }) {
  const auto leaf = torch::ones({1}, torch::device(run.device()).requires_grad(true));
  std::vector<torch::Tensor> kept;
  std::vector<std::string> heap;
  std::vector<std::shared_ptr<void>> raw;
  run.step([&](Step step) {
    run.gauge("planted", run.fault() ? step.index + 1 : 0);
    if (!run.fault()) return;
    const auto bytes = torch::dtype(torch::kByte);
    for (std::int64_t i = 0; i < run.param("segments"); ++i) {
      kept.push_back(torch::ones({MiB}, bytes.device(run.device())));
      kept.push_back(torch::ones({MiB - gap}, bytes.device(run.device())));
    }
    // A view has a node and no memory of its own.
    for (std::int64_t i = 0; i < run.param("nodes"); ++i) kept.push_back(leaf.view({1}));
    heap.emplace_back(heap_plant, 'x');
    if (!run.device().is_cuda()) return;
    kept.push_back(torch::empty({pinned_plant}, bytes.pinned_memory(true)));
    raw.push_back(raw_device_memory(driver_plant));
  });
}

// LibTorch's allocator of page-locked host memory.
#include <ATen/core/CachingHostAllocator.h>

#include "leaklab/probe.h"

namespace leaklab {
namespace {

at::HostAllocator& allocator() { return *at::getHostAllocator(at::kCUDA); }

// What was reserved_bytes is allocated_bytes since LibTorch 2.10, and what was allocated_bytes is
// active_bytes.
template <class Stats>
std::int64_t owned_bytes(const Stats& stats) {
  if constexpr (requires { stats.reserved_bytes; }) {
    return stats.reserved_bytes.current;
  } else {
    return stats.allocated_bytes.current;
  }
}

template <class Stats>
std::int64_t active_bytes(const Stats& stats) {
  if constexpr (requires { stats.active_bytes; }) {
    return stats.active_bytes.current;
  } else {
    return stats.allocated_bytes.current;
  }
}

class CudaPinnedHost final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override {
    return {"pinned_active", "pinned_owned"};
  }

  std::string do_start(const Environment& environment) override {
    return environment.backend == "cuda" ? "" : "measures the CUDA environment only";
  }

  void do_sample(Sample& into) override {
    const auto stats = allocator().get_stats();
    into["pinned_active"] = active_bytes(stats);
    into["pinned_owned"] = owned_bytes(stats);
  }

  void do_empty_caches() override { allocator().empty_cache(); }
};

LEAKLAB_PROBE(cuda_pinned_host, CudaPinnedHost);

}  // namespace
}  // namespace leaklab

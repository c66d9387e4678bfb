// LibTorch's caching allocator on the GPU of the run: its events and its statistics.
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>

#include "context.h"
#include "leaklab/event_log.h"
#include "leaklab/probe.h"

namespace leaklab {
namespace {

namespace cca = c10::cuda::CUDACachingAllocator;

constexpr c10::DeviceIndex device = 0;
constexpr std::size_t all_pools = 0;  // c10::CachingAllocator::StatType::AGGREGATE

// Runs under the allocator's lock, for any thread: may not call LibTorch.
void on_event(const cca::TraceEntry& event) {
  if (event.device_ != device) return;
  const auto bytes = static_cast<std::int64_t>(event.size_);  // as requested
  const auto* block = reinterpret_cast<const void*>(event.addr_);
  if (event.action_ == cca::TraceEntry::ALLOC) {
    event_log().add(Action::alloc, bytes);
    if (auto* sites = site_table()) sites->on_alloc(block, bytes);
  } else if (event.action_ == cca::TraceEntry::FREE_REQUESTED) {
    // Not FREE_COMPLETED, whose moment depends on when another stream was done.
    event_log().add(Action::free, bytes);
    if (auto* sites = site_table()) sites->on_free(block);
  }
}

class CudaCachingAllocator final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override {
    return {"active", "allocated", "inactive_split", "live_allocations",
            "peak",   "requested", "reserved",       "segments"};
  }

  std::string do_start(const Environment& environment) override {
    if (environment.backend != "cuda") return "measures the CUDA environment only";
    if (const auto name = cca::get()->name(); name != "native") {
      return fmt::format("the allocator backend {} tells no events", name);
    }
    if (!cca::isEnabled()) return "PYTORCH_NO_CUDA_MEMORY_CACHING switches the allocator off";
    // A tracker can't be taken off again: only the first probe of a process attaches it.
    static const bool attached = [] {
      cca::attachAllocatorTraceTracker(&on_event);
      return true;
    }();
    static_cast<void>(attached);
    return "";
  }

  void do_sample(Sample& into) override {
    sample_events(into);
    const auto stats = cca::getDeviceStats(device);
    into["active"] = stats.active_bytes[all_pools].current;
    into["allocated"] = stats.allocated_bytes[all_pools].current;
    into["inactive_split"] = stats.inactive_split_bytes[all_pools].current;
    into["reserved"] = stats.reserved_bytes[all_pools].current;
    into["segments"] = stats.segment[all_pools].current;
  }

  void do_empty_caches() override {
    // The workspaces of cuBLAS stay with its handles for ever: cached, not held by the program.
    at::cuda::clearCublasWorkspaces();
    cca::emptyCache();
  }
};

LEAKLAB_PROBE(cuda_caching_allocator, CudaCachingAllocator);

}  // namespace
}  // namespace leaklab

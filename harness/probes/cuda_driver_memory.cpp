// Device memory that this process has from the driver, LibTorch's allocator and all other
// libraries.
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>

#include "cuda_driver_calls.h"
#include "cuda_nvml.h"
#include "leaklab/probe.h"

namespace leaklab {
namespace {

std::int64_t reserved_bytes() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
}

class CudaDriverMemory final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override { return {"driver", "driver_gap"}; }

  std::string do_start(const Environment& environment) override {
    if (environment.backend != "cuda") return "measures the CUDA environment only";
    const auto no_calls = follow_driver_calls(environment.devices);
    by_calls_ = no_calls.empty();
    if (!by_calls_) {
      if (const auto no_nvml = nvml_.open(); !no_nvml.empty()) {
        return fmt::format("{}; {}", no_calls, no_nvml);
      }
    }
    // What LibTorch had before is not in the calls that we follow.
    reserved_before_ = by_calls_ ? reserved_bytes() - driver_call_bytes() : 0;
    return "";
  }

  void do_sample(Sample& into) override {
    driver_ = by_calls_ ? driver_call_bytes() : nvml_.process_bytes().value_or(driver_);
    into["driver"] = driver_;
    into["driver_gap"] = driver_ - (reserved_bytes() - reserved_before_);
  }

 private:
  bool by_calls_ = false;
  Nvml nvml_;
  std::int64_t driver_ = 0;
  std::int64_t reserved_before_ = 0;
};

LEAKLAB_PROBE(cuda_driver_memory, CudaDriverMemory);

}  // namespace
}  // namespace leaklab

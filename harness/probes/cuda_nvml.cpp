#include "cuda_nvml.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <limits>
#include <vector>

namespace leaklab {
namespace {

constexpr int success = 0;            // NVML_SUCCESS
constexpr int insufficient_size = 7;  // NVML_ERROR_INSUFFICIENT_SIZE

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

std::string Nvml::open() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "libnvidia-ml.so.1 can't be loaded";
  const auto init = symbol<int()>(library, "nvmlInit_v2");
  const auto by_bus = symbol<int(const char*, void**)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  processes_ = symbol<Processes>(library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (init == nullptr || by_bus == nullptr || processes_ == nullptr) {
    return "this driver's NVML is too old";
  }
  // A process is listed once it has a context.
  char bus[32] = "";
  if (cudaFree(nullptr) != cudaSuccess ||
      cudaDeviceGetPCIBusId(bus, sizeof bus, 0) != cudaSuccess) {
    return "the bus id of device 0 is unknown";
  }
  if (init() != success || by_bus(bus, &device_) != success) return "NVML does not know device 0";
  if (!process_bytes()) return "NVML does not list this process";
  return "";
}

std::optional<std::int64_t> Nvml::process_bytes() const {
  std::vector<Process> processes(64);
  auto count = static_cast<unsigned>(processes.size());
  auto error = processes_(device_, &count, processes.data());
  if (error == insufficient_size) {
    processes.resize(count + 16);
    count = static_cast<unsigned>(processes.size());
    error = processes_(device_, &count, processes.data());
  }
  if (error != success) return std::nullopt;
  processes.resize(count);
  const auto self = static_cast<unsigned>(getpid());
  for (const auto& process : processes) {
    const bool known = process.bytes != std::numeric_limits<unsigned long long>::max();
    if (process.pid == self && known) return static_cast<std::int64_t>(process.bytes);
  }
  return std::nullopt;
}

}  // namespace leaklab

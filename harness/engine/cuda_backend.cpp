#include "cuda_backend.h"

#include <ATen/Context.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>

#include "leaklab/error.h"

namespace leaklab {
namespace {

// C10_CUDA_CHECK needs headers that the wheels lack: those of the CUDA compiler.
void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

std::string dotted(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The driver's own version, as nvidia-smi tells it; the CUDA API has only the CUDA version, and
// NVML takes tens of milliseconds to start.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
        word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "unknown";
}

}  // namespace

void describe_cuda(Environment& environment) {
  int devices = 0;
  const auto error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    throw UnavailableError(fmt::format(
        "no GPU can be used: {}; use --env cpu, or look at `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        error == cudaSuccess ? "there is none" : cudaGetErrorString(error)));
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0));
  int runtime = 0;
  check(cudaRuntimeGetVersion(&runtime));
  environment.device = properties.name;
  environment.arch = fmt::format("sm_{}{}", properties.major, properties.minor);
  environment.cuda = dotted(runtime);
  environment.driver = driver_version();
  environment.devices = devices;
  for (const char* name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    if (const char* settings = std::getenv(name);
        settings != nullptr && environment.allocator.empty()) {
      environment.allocator = settings;
    }
  }
}

void synchronize_cuda() { check(cudaDeviceSynchronize()); }

}  // namespace leaklab

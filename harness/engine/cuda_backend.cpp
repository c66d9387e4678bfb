#include "cuda_backend.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "leaklab/error.h"

namespace leaklab {
namespace {

std::string dotted(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The driver's own version, as nvidia-smi tells it; the CUDA API has only the CUDA version.
std::string driver_version() {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) return "unknown";
  using Init = int (*)();
  using Version = int (*)(char*, unsigned);
  // nvml.h is in neither the wheels nor the toolkit: two calls of it, as documented by NVIDIA.
  const auto init = reinterpret_cast<Init>(dlsym(nvml, "nvmlInit_v2"));
  const auto version = reinterpret_cast<Version>(dlsym(nvml, "nvmlSystemGetDriverVersion"));
  char text[96] = "unknown";
  if (init == nullptr || version == nullptr || init() != 0 || version(text, sizeof text) != 0) {
    return "unknown";
  }
  return text;
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
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  int runtime = 0;
  C10_CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
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

void synchronize_cuda() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

}  // namespace leaklab

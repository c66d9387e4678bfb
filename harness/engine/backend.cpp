#include "backend.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <cstdlib>

#include "leaklab/error.h"
#ifdef LEAKLAB_WITH_CUDA
#include "cuda_backend.h"
#endif

namespace leaklab {
namespace {

// The version of the library that was loaded, which need not be the one of the headers.
std::string loaded_libtorch() {
  const std::string config = at::show_config();
  const std::string key = "TORCH_VERSION=";
  const auto begin = config.find(key);
  if (begin == std::string::npos) return TORCH_VERSION;
  const auto first = begin + key.size();
  return config.substr(first, config.find_first_not_of("0123456789.", first) - first);
}

}  // namespace

Environment describe_backend(const std::string& backend) {
  Environment environment;
  environment.backend = backend;
  environment.libtorch = loaded_libtorch();
  if (environment.libtorch != TORCH_VERSION) {
    throw UnavailableError(
        fmt::format("this leaklab was built against LibTorch {}, but {} was loaded; build it anew "
                    "or set LD_LIBRARY_PATH to the folder of the LibTorch it was built against",
                    TORCH_VERSION, environment.libtorch));
  }
  if (backend == "cpu") {
    environment.device = "cpu";
    return environment;
  }
  if (backend != "cuda") throw UsageError(fmt::format("there is no environment '{}'", backend));
#ifdef LEAKLAB_WITH_CUDA
  describe_cuda(environment);
  return environment;
#else
  throw UnavailableError("this build has no CUDA; use --env cpu, or build with a CUDA LibTorch");
#endif
}

void synchronize([[maybe_unused]] const Environment& environment) {
#ifdef LEAKLAB_WITH_CUDA
  if (environment.backend == "cuda") synchronize_cuda();
#endif
}

}  // namespace leaklab

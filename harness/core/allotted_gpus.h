// GPUs that CTest gave to this test.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace leaklab {

// What CUDA_VISIBLE_DEVICES has to be where CTest allotted GPUs to this process: of those that are
// visible, the ones that its resource groups name (CTEST_RESOURCE_GROUP_0_GPUS = "id:2,slots:1").
// Nothing where CTest allotted none. `variable` is std::getenv.
std::optional<std::string> allotted_gpus(
    const std::function<const char*(const std::string&)>& variable);

}  // namespace leaklab

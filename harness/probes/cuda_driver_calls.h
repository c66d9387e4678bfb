#pragma once

#include <cstdint>
#include <string>

namespace leaklab {

// Counts from now on the memory of device 0 that any library of this process allocates by the CUDA
// driver API, by the callbacks of CUPTI. Returns why that can't be done, or "". At most one
// subscriber is possible in a process: a profiler keeps us out.
std::string follow_driver_calls(std::int64_t devices);

// Bytes allocated and not freed since then.
std::int64_t driver_call_bytes();

}  // namespace leaklab

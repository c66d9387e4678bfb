#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace leaklab {

// What NVML tells of this process on device 0, its context included. nvml.h is in neither the
// wheels nor the toolkit: the few calls are declared as NVIDIA documents them.
class Nvml {
 public:
  // Returns why nothing can be read, or "". In a container the driver may know this process by
  // another number.
  std::string open();
  std::optional<std::int64_t> process_bytes() const;

 private:
  struct Process {  // nvmlProcessInfo_t of version 3
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance;
    unsigned compute_instance;
  };
  using Processes = int(void* device, unsigned* count, Process* processes);

  void* device_ = nullptr;
  Processes* processes_ = nullptr;
};

}  // namespace leaklab

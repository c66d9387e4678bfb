// A diagnosis, and the difference of two snapshots, for a person.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leaklab/diagnosis.h"
#include "style.h"

namespace leaklab {

// When the leaks have filled a device: the first that is full, of those that leak.
struct TimeLeft {
  std::int64_t device = 0;
  std::int64_t memory = 0;    // bytes that the device has
  std::int64_t reserved = 0;  // bytes in its segments at the dump
  std::int64_t needed = 0;    // bytes of blocks that recent steps needed at most
  double bytes_per_step = 0;  // of its leaks
  std::int64_t steps = 0;     // after the dump
};

// What the caller asks for and knows beyond the file.
struct DiagnoseView {
  bool frames = false;                // with the frames around each site
  std::int64_t device_memory = 0;     // bytes that a device has; 0: not told
  std::optional<TimeLeft> time_left;  // where that is told
};

// Verdict first, then what leaks where, how fast and since when, the growth as a small plot, the
// likely class with its fix, what is no leak although it looks so, and what the file can't tell.
std::string diagnose_text(const std::string& file, const Diagnosis& diagnosis,
                          const DiagnoseView& view, const Style& style);

// Whether an allocation failed because the memory was full, so not for being larger than all of it,
// and the program did not go on with whole steps after that.
bool was_full(const Diagnosis& diagnosis);

// With the device of each line where `devices` says so.
std::string diff_text(const std::string& before, const std::string& after,
                      const std::vector<SiteChange>& changes, bool devices, const Style& style);

}  // namespace leaklab

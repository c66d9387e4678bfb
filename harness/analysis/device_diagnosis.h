// The diagnosis of one device's trace.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "leaklab/diagnosis.h"
#include "sites.h"

namespace leaklab {

inline constexpr std::size_t most_lookalikes = 8;

// What a recording with all that a diagnosis can use looks like.
inline constexpr std::string_view record_call =
    "torch.cuda.memory._record_memory_history(max_entries=1000000, stacks=\"python\")";

// "train.py:12 (step)", for a sentence.
std::string named(const CodeSite& site);

// Steps, growth, findings, lookalikes, peak, failed allocation, verdict and limits of that device;
// what concerns the whole file is left empty.
Diagnosis diagnose_device(const Snapshot& snapshot, std::size_t device, const Sites& sites,
                          const DiagnoseOptions& options);

}  // namespace leaklab

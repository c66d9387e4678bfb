// What a snapshot may say for an analysis to count with it.
#pragma once

#include <string>

#include "leaklab/snapshot.h"

namespace leaklab {

// Throws UsageError, a sentence with the entry, for a size that is negative or for sizes that add
// up to more than 2^56 bytes, 72 petabytes. `origin` stands for the file.
void refuse_impossible(const Snapshot& snapshot, const std::string& origin);

}  // namespace leaklab

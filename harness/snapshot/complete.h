// What is left to do when a whole file has been read.
#pragma once

#include "parts.h"

namespace leaklab {

// Leaves of the tables those segments and annotations and what belongs to them, in their order, and
// computes what the blocks of old versions don't say.
void complete(Snapshot& snapshot, Range segments, Range annotations);

}  // namespace leaklab

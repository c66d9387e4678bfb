// Performs the allocator events of another run.
#pragma once

#include <vector>

#include "leaklab/engine.h"

namespace leaklab {

// On the allocator of that environment, in this process; levels are relative to the start.
std::vector<ReplayedLevel> perform(const History& history, const Environment& environment);

}  // namespace leaklab

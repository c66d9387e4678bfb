// The one place that knows which backends there are.
#pragma once

#include <string>

#include "leaklab/recording.h"

namespace leaklab {

// Describes "cpu" or "cuda" and initialises it. Throws UnavailableError with the reason.
Environment describe_backend(const std::string& backend);

// Waits for all work of the run's device.
void synchronize(const Environment& environment);

}  // namespace leaklab

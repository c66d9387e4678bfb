#pragma once

#include "leaklab/recording.h"

namespace leaklab {

// Initialises CUDA in this process and fills in what only CUDA knows. Throws UnavailableError.
void describe_cuda(Environment& environment);

void synchronize_cuda();

}  // namespace leaklab

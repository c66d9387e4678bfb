// One recording, as a table of its channels.
#pragma once

#include <string>
#include <vector>

#include "leaklab/recording.h"
#include "style.h"

namespace leaklab {

// `channels`: the ones to show; empty for all.
std::string run_text(const Recording& recording, const std::vector<std::string>& channels,
                     const Style& style);

}  // namespace leaklab

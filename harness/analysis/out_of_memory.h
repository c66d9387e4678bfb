// What was live at one moment of a trace, and why an allocation failed.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaklab/diagnosis.h"
#include "lifetimes.h"
#include "sites.h"
#include "steps.h"

namespace leaklab {

// The line of a frame; an empty one for no_frame.
CodeSite site_of(const Snapshot& snapshot, FrameId frame);

// Requested bytes live before that event by the user's line, largest first, at most ten.
std::vector<std::pair<CodeSite, std::int64_t>> live_sites(const Snapshot& snapshot,
                                                          const Trace& trace, const Sites& sites,
                                                          const Lifetimes& lifetimes,
                                                          EventIndex at);

// The last allocation of the trace that failed, if any did.
std::optional<FailedAllocation> out_of_memory(const Snapshot& snapshot, std::size_t device,
                                              const Sites& sites, const Lifetimes& lifetimes,
                                              const std::vector<std::int64_t>& levels,
                                              const Steps& steps);

}  // namespace leaklab

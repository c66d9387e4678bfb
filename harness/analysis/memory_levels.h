// What of a device's memory is live, for how long, and what is reserved and unused.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "growth.h"
#include "leaklab/diagnosis.h"
#include "lifetimes.h"
#include "sites.h"
#include "steps.h"

namespace leaklab {

// Bytes of the blocks that hold `count` allocations of `bytes` together; no count: `bytes`.
std::int64_t in_blocks(std::int64_t bytes, std::int64_t count);

// Of what `left` counts, sorted by step, in a trace of that many whole steps.
Ages ages_of(std::span<const Left> left, std::int64_t steps);

// What is live at the dump by the user's line, largest first, at most ten.
std::vector<Survivors> survivors(const Snapshot& snapshot, const Trace& trace, const Sites& sites,
                                 const Lifetimes& lifetimes, const Steps& steps);

// Whether the user's line is known of a block that is live at the dump.
bool names_a_live_block(const Snapshot& snapshot, const Sites& sites);

// Bytes of blocks live at most in each whole step; what comes after the last one counts to it.
std::vector<std::int64_t> step_peaks(const Trace& trace, const Lifetimes& lifetimes,
                                     const Steps& steps);

// Bytes of blocks that a step like those of the later half needs at most, where they leak that many
// a step, all of which is there.
std::int64_t needed_by_steps(std::span<const std::int64_t> peaks, double leaked_per_step);

// Of each device that has segments.
std::map<std::int64_t, Cache> caches(const Snapshot& snapshot);

// That a device has much reserved and unused at the dump, where its trace does not show that this
// grows.
std::vector<Lookalike> unused_memory(std::int64_t device, const Cache& cache, const Trace& trace);

// That steps go on to reserve more, although what is live does not grow, and what to do.
std::optional<std::string> growing_reserve(const Snapshot& snapshot, std::size_t device,
                                           const Steps& steps);

// That an early step needed much more than any of those after it.
std::optional<Lookalike> high_water_mark(std::int64_t device,
                                         const std::vector<std::int64_t>& levels,
                                         const Steps& steps);

}  // namespace leaklab

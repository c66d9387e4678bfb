// How a channel of a recording is read: its signature and its tolerance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "leaklab/channel.h"
#include "leaklab/recording.h"
#include "leaklab/signature.h"

namespace leaklab {

// Floating-point gauges, in thousandths: what rounding may add up to over a run.
inline constexpr std::int64_t inexact_gauge_tolerance = 5;

// Movement of that channel over a run that is still taken for none; 0 for exact channels.
std::int64_t tolerance_of(std::string_view channel, const Series& series);

// The signature of one measured channel; `requested` is read together with `peak`. Throws
// InternalError for a channel that was not measured.
Signature signature_of(const Recording& recording, std::string_view channel);

// What a channel gained over the judged steps: the last value less the last of the warm-up.
std::int64_t growth_of(const Recording& recording, const Series& series);

// An event hash as 16 hexadecimal digits.
std::string hash_text(std::uint64_t hash);

}  // namespace leaklab

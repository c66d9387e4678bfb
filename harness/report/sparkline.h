// A series in few characters.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace leaklab {

// One block character for each value, or for the highest of a group of values where there are more
// than `width`; a level series is drawn at the bottom.
std::string sparkline(std::span<const std::int64_t> values, std::size_t width = 32);

// What the values gained step by step, run-length-coded: "+0 x4 +512 x16". A text of more than
// `width` columns is cut and ends in "...".
std::string gains(std::int64_t start, std::span<const std::int64_t> values, std::size_t width = 40);

}  // namespace leaklab

// The channels that a recording can hold: what is measured at each step boundary.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace leaklab {

// Prefix of the channels that a scenario measures itself, through Run::gauge.
inline constexpr std::string_view gauge_prefix = "gauge.";

struct Channel {
  std::string_view name;
  std::string_view unit;  // "B" or "count"
  // Exact channels are checked to the byte at every step; tolerant ones by their total growth.
  bool exact = false;
  // A channel known to lie on the pinned LibTorch is recorded for information and never judged.
  bool trusted = true;
  // Tolerant channels only: growth over all judged steps that is still taken for none, in `unit`.
  std::int64_t tolerance = 0;
  std::string_view meaning;
};

// Every channel that a probe may measure, sorted by name. Gauges are not in it.
std::span<const Channel> channels();

// The channel of that name, or nullptr.
const Channel* find_channel(std::string_view name);

}  // namespace leaklab

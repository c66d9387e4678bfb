#include "sparkline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace leaklab {

std::string sparkline(std::span<const std::int64_t> values, std::size_t width) {
  static constexpr std::array<const char*, 8> blocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  if (values.empty() || width == 0) return {};
  const auto count = std::min(width, values.size());
  std::vector<double> heights;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = i * values.size() / count;
    const auto end = (i + 1) * values.size() / count;
    heights.push_back(
        static_cast<double>(*std::ranges::max_element(values.subspan(begin, end - begin))));
  }
  const auto [low, high] = std::ranges::minmax(heights);
  std::string text;
  for (const auto height : heights) {
    const auto share = high > low ? (height - low) / (high - low) : 0.0;
    text += blocks.at(static_cast<std::size_t>(std::lround(share * 7)));
  }
  return text;
}

std::string gains(std::int64_t start, std::span<const std::int64_t> values, std::size_t width) {
  std::string text;
  for (std::size_t begin = 0; begin < values.size();) {
    const auto gain_at = [&](std::size_t i) {
      return values[i] - (i == 0 ? start : values[i - 1]);
    };
    auto end = begin + 1;
    while (end < values.size() && gain_at(end) == gain_at(begin)) ++end;
    const auto gain = gain_at(begin);
    auto part = fmt::format("{}{:+}", text.empty() ? "" : " ", gain);
    if (end - begin > 1) part += fmt::format(" x{}", end - begin);
    if (text.size() + part.size() + (end < values.size() ? 4 : 0) > width) return text + " ...";
    text += part;
    begin = end;
  }
  return text;
}

}  // namespace leaklab

#include "size_text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string_view>

namespace leaklab {

std::string size_text(double bytes) {
  // Of a file whose blocks contradict its events.
  if (bytes < 0) return '-' + size_text(-bytes);
  if (bytes < 10'000) {
    const auto whole = std::floor(bytes);
    return whole == bytes
               ? fmt::format("{} B", fmt::group_digits(static_cast<std::uint64_t>(whole)))
               : fmt::format("{:.3f} B", bytes);
  }
  constexpr std::string_view units[] = {"kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  bytes /= 1000;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string size_text(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }

}  // namespace leaklab

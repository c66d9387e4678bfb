#include "size_text.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string_view>

namespace leaklab {
namespace {

std::string in_units(double bytes) {
  constexpr std::string_view units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  constexpr double next = 1023.95;  // what would be rounded to 1024.0
  std::size_t unit = 0;
  bytes /= 1024;
  while (bytes >= next && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", bytes, units[unit]);
}

}  // namespace

std::string bytes_text(double bytes) {
  // Of a file whose blocks contradict its events.
  if (bytes < 0) return '-' + bytes_text(-bytes);
  auto whole = static_cast<std::uint64_t>(bytes);
  auto thousandths = std::llround((bytes - std::floor(bytes)) * 1000);
  if (thousandths == 1000) {
    ++whole;
    thousandths = 0;
  }
  return thousandths == 0 ? fmt::format("{} B", fmt::group_digits(whole))
                          : fmt::format("{}.{:03} B", fmt::group_digits(whole), thousandths);
}

std::string size_text(double bytes) {
  if (bytes < 0) return '-' + size_text(-bytes);
  return bytes < 10 * 1024 ? bytes_text(bytes) : in_units(bytes);
}

std::string about_text(double bytes) {
  if (bytes < 0) return '-' + about_text(-bytes);
  // Of what is rounded to 0 the decimals are all there is.
  if (bytes < 0.5) return bytes_text(bytes);
  return bytes < 1023.5 ? bytes_text(std::round(bytes)) : in_units(bytes);
}

std::string size_text(std::int64_t bytes) { return size_text(static_cast<double>(bytes)); }

}  // namespace leaklab

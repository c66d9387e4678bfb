#include "nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace leaklab {
namespace {

// Levenshtein's edit distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_names(std::string_view wanted, const std::vector<std::string_view>& names) {
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const auto name : names) {
    const bool inside = wanted.size() >= 3 && name.find(wanted) != std::string_view::npos;
    const auto distance = inside ? 1 : edit_distance(wanted, name);
    if (distance <= std::max<std::size_t>(2, wanted.size() / 3)) near.emplace_back(distance, name);
  }
  std::ranges::sort(near);
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(near.size(), 3); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "; did you mean " : " or ", near[i].second);
  }
  return text.empty() ? text : text + "?";
}

}  // namespace leaklab

#include "table.h"

#include <algorithm>

namespace leaklab {
namespace {

constexpr std::size_t least_width = 8;  // of a column of texts that are cut

// The first characters of a text, and a sign that there are more.
std::string shortened(const std::string& text, std::size_t width, const Style& style) {
  if (width_of(text) <= width) return text;
  const std::string_view sign = style.unicode ? "…" : "...";
  auto kept = std::string_view(text);
  while (width_of(kept) > width - width_of(sign)) kept.remove_suffix(1);
  return std::string(kept) + std::string(sign);
}

// Of a line of cells that have these widths.
std::size_t total(const std::vector<std::size_t>& widths) {
  std::size_t columns = 0;
  for (const auto width : widths) columns += width == 0 ? 0 : width + 2;
  return columns - std::min<std::size_t>(columns, 2);  // no gap after the last one
}

}  // namespace

std::vector<std::size_t> Table::whole_widths() const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i].text));
    }
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] != 0) widths[i] = std::max(widths[i], width_of(columns_[i].title));
  }
  return widths;
}

bool Table::fits(const Style& style) const {
  return style.width == 0 || total(whole_widths()) <= style.width;
}

void Table::narrow(std::vector<std::size_t>& widths, std::size_t allowed) const {
  const auto is_too_wide = [&] { return total(widths) > allowed; };
  for (std::size_t i = 0; i < widths.size() && is_too_wide(); ++i) {
    if (columns_[i].fit == Fit::left_out) widths[i] = 0;
  }
  const auto may_give = [&](std::size_t i) {
    const auto least = std::max(least_width, width_of(columns_[i].title));
    return columns_[i].fit == Fit::cut && widths[i] > least;
  };
  while (is_too_wide()) {
    auto widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (may_give(i) && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    }
    if (widest == widths.size()) return;
    --widths[widest];
  }
}

std::string Table::text(const Style& style) const {
  auto widths = whole_widths();
  if (style.width != 0) narrow(widths, style.width);
  std::string text;
  const auto add_line = [&](const std::vector<Cell>& cells) {
    std::size_t owed = 0;  // spaces before the next text, so that no line ends with them
    for (std::size_t i = 0; i < std::min(cells.size(), widths.size()); ++i) {
      if (widths[i] == 0) continue;
      const auto shown = shortened(cells[i].text, widths[i], style);
      const auto gap = widths[i] - width_of(shown);
      const bool right = columns_[i].align == Align::right;
      if (right) owed += gap;
      if (!shown.empty()) {
        text += std::string(owed, ' ') + tinted(shown, cells[i].tint, style);
        owed = 0;
      }
      owed += 2 + (right ? 0 : gap);
    }
    text += '\n';
  };
  std::vector<Cell> titles;
  for (const auto& column : columns_) titles.push_back({column.title, Tint::bold});
  add_line(titles);
  for (const auto& row : rows_) add_line(row);
  return text;
}

}  // namespace leaklab

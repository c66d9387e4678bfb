#include "table.h"

#include <algorithm>

namespace leaklab {

std::string Table::text(const Style& style) const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      widths[i] = std::max(widths[i], width_of(row[i].text));
    }
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] != 0) widths[i] = std::max(widths[i], width_of(columns_[i].title));
  }
  std::string text;
  const auto add_line = [&](const std::vector<Cell>& cells) {
    std::size_t owed = 0;  // spaces before the next text, so that no line ends with them
    for (std::size_t i = 0; i < std::min(cells.size(), widths.size()); ++i) {
      if (widths[i] == 0) continue;
      const auto& cell = cells[i];
      const auto gap = widths[i] - std::min(widths[i], width_of(cell.text));
      const bool right = columns_[i].align == Align::right;
      if (right) owed += gap;
      if (!cell.text.empty()) {
        text += std::string(owed, ' ') + tinted(cell.text, cell.tint, style);
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

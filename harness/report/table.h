// Text in aligned columns.
#pragma once

#include <string>
#include <vector>

#include "style.h"

namespace leaklab {

enum class Align { left, right };

struct Cell {
  std::string text;
  Tint tint = Tint::none;
};

// What a narrow terminal may do to a column. Numbers stay whole: half a number is a wrong one.
enum class Fit { whole, cut, left_out };

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
    Fit fit = Fit::whole;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One cell a column; those that are missing are empty.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // Each line ends with a newline and without spaces before it. A column whose cells are all empty
  // is left out. Where the lines are wider than the style allows, so are those that may be; where
  // that is not enough, cells are cut, those of the widest column first.
  std::string text(const Style& style) const;
  // Whether all of it fits the style's width, nothing left out and nothing cut.
  bool fits(const Style& style) const;

 private:
  // Of the columns, whole; 0 of one whose cells are all empty.
  std::vector<std::size_t> whole_widths() const;
  void narrow(std::vector<std::size_t>& widths, std::size_t allowed) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace leaklab

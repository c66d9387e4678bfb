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

class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One cell a column; those that are missing are empty.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // Each line ends with a newline and without spaces before it. A column whose cells are all empty
  // is left out. Where the lines are wider than the style allows, texts (the cells of left-aligned
  // columns) are cut, those of the widest column first; numbers never are, as half a number is a
  // wrong one.
  std::string text(const Style& style) const;

 private:
  void narrow(std::vector<std::size_t>& widths, std::size_t allowed) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace leaklab

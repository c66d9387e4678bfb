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
  // is left out.
  std::string text(const Style& style) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace leaklab

// What a text may look like where it is going.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace leaklab {

struct Style {
  bool colour = false;
  bool unicode = false;   // sparklines and arrows
  std::size_t width = 0;  // columns of the terminal; 0: as many as a table needs
};

// Colour, drawn characters and a limit of width on a terminal only; no colour where NO_COLOR is set
// or TERM is dumb. The width is what COLUMNS says, else what the terminal says.
Style style_of(std::FILE* stream);

enum class Tint { none, bold, dim, good, bad, warning };

std::string tinted(std::string_view text, Tint tint, const Style& style);

// Columns that UTF-8 text takes on a terminal, for the characters that we print.
std::size_t width_of(std::string_view text);

// 1234567 as "1,234,567".
std::string grouped(std::int64_t value);

// "1 step", "2,000 steps".
std::string counted(std::int64_t number, std::string_view noun);

// Columns of a text that is broken between words: those of the terminal, or 100 where there is none
// or it does not tell.
std::size_t text_width(const Style& style);

// The words of `text` in lines of at most `width` columns, each after `indent` spaces. A number
// stays in one line with its unit, and "step" with its number, where a line has room for both.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);
std::string wrapped(std::string_view text, std::size_t indent, const Style& style);
// The same with `label` in place of the first indent; a longer one has a line of its own.
std::string labelled(std::string_view label, std::string_view text, std::size_t indent,
                     const Style& style);

}  // namespace leaklab

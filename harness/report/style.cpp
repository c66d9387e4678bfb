#include "style.h"

#include <fmt/color.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace leaklab {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool locale_is_utf8() {
  for (const auto* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const auto value = variable(name);
    if (value.empty()) continue;
    std::string folded;
    for (const char c : value) {
      if (c != '-') folded += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return folded.find("utf8") != std::string::npos;
  }
  return false;
}

std::size_t terminal_width(int fd) {
  const auto told = variable("COLUMNS");
  std::size_t width = 0;
  const auto [end, error] = std::from_chars(told.data(), told.data() + told.size(), width);
  if (error == std::errc() && end == told.data() + told.size() && width > 0) return width;
  winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

fmt::text_style style_for(Tint tint) {
  switch (tint) {
    case Tint::bold:
      return fmt::emphasis::bold;
    case Tint::dim:
      return fmt::emphasis::faint;
    case Tint::good:
      return fmt::fg(fmt::terminal_color::green);
    case Tint::bad:
      return fmt::fg(fmt::terminal_color::red) | fmt::emphasis::bold;
    case Tint::warning:
      return fmt::fg(fmt::terminal_color::yellow);
    case Tint::none:
      break;
  }
  return {};
}

}  // namespace

Style style_of(std::FILE* stream) {
  const int fd = ::fileno(stream);
  if (::isatty(fd) == 0) return {};
  const auto width = terminal_width(fd);
  if (variable("TERM") == "dumb") return {false, false, width};
  return {variable("NO_COLOR").empty(), locale_is_utf8(), width};
}

std::string tinted(std::string_view text, Tint tint, const Style& style) {
  if (!style.colour || tint == Tint::none) return std::string(text);
  return fmt::format(style_for(tint), "{}", text);
}

std::size_t width_of(std::string_view text) {
  // Every byte but those that continue a character.
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string grouped(std::int64_t value) {
  // fmt takes a number below 0 for one without a sign.
  const auto bits = static_cast<std::uint64_t>(value);
  return value < 0 ? fmt::format("-{}", fmt::group_digits(0 - bits))
                   : fmt::format("{}", fmt::group_digits(bits));
}

std::string counted(std::int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(number), noun, number == 1 ? "" : "s");
}

std::size_t text_width(const Style& style) {
  constexpr std::size_t of_a_log = 100;
  return style.width == 0 ? of_a_log : style.width;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string lines;
  std::size_t column = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(" \n"), text.size());
    const auto word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (column != 0 && column + 1 + width_of(word) <= width) {
      lines += ' ';
      ++column;
    } else {
      lines += (lines.empty() ? "" : "\n") + std::string(indent, ' ');
      column = indent;
    }
    lines += word;
    column += width_of(word);
  }
  return lines;
}

std::string wrapped(std::string_view text, std::size_t indent, const Style& style) {
  return wrapped(text, indent, text_width(style));
}

std::string labelled(std::string_view label, std::string_view text, std::size_t indent,
                     const Style& style) {
  const auto lines = wrapped(text, indent, style);
  if (lines.empty()) return std::string(label);
  if (width_of(label) > indent) return fmt::format("{}\n{}", label, lines);
  return fmt::format("{}{}", label, lines.substr(width_of(label)));
}

}  // namespace leaklab

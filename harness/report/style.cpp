#include "style.h"

#include <fmt/color.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <iterator>

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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether a line must not end between the two: "1.5 MiB", "(14 steps)", "step 12,".
bool belong_together(std::string_view left, std::string_view right) {
  while (left.starts_with('(')) left.remove_prefix(1);
  if (left.empty() || right.empty()) return false;
  if (is_digit(right.front())) {
    constexpr std::string_view numbered[] = {"step",   "steps",   "device",
                                             "Device", "devices", "line"};
    return std::ranges::find(numbered, left) != std::end(numbered);
  }
  while (!right.empty() && std::string_view(".,;:)").find(right.back()) != std::string_view::npos) {
    right.remove_suffix(1);
  }
  constexpr std::string_view units[] = {"B", "KiB",  "MiB",   "GiB",  "TiB",  "PiB",
                                        "%", "byte", "bytes", "step", "steps"};
  const auto number = left.substr(left.front() == '-' ? 1 : 0);
  return !number.empty() && is_digit(number.front()) && is_digit(number.back()) &&
         std::ranges::find(units, right) != std::end(units);
}

// Where the first word of `text` ends, with the words that belong to it if all of them fit.
std::size_t end_of_word(std::string_view text, std::size_t room) {
  const auto end_from = [&](std::size_t begin) {
    return std::min(text.find_first_of(" \n", begin), text.size());
  };
  const auto first = end_from(0);
  auto begin = std::size_t{0};
  auto end = first;
  while (end < text.size() && text[end] == ' ') {
    const auto next = end_from(end + 1);
    if (!belong_together(text.substr(begin, end - begin), text.substr(end + 1, next - end - 1))) {
      break;
    }
    begin = end + 1;
    end = next;
  }
  return width_of(text.substr(0, end)) <= room ? end : first;
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
    const auto end = end_of_word(text, width - std::min(width, indent));
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

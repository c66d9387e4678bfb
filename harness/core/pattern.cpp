#include "leaklab/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "leaklab/error.h"

namespace leaklab {
namespace {

using Op = Pattern::Op;

constexpr std::int64_t exact_small = std::int64_t{1} << 20;
constexpr std::int64_t exact_large = std::int64_t{10} << 20;
constexpr std::int64_t large_block = std::int64_t{2} << 20;

[[noreturn]] void fail(std::size_t line, std::string_view word) {
  throw UsageError(
      fmt::format("line {} of the pattern has '{}', which is neither a number of bytes, with ! or "
                  "+BYTES for a leak, nor -STEPS.INDEX; import the file again",
                  line, word));
}

std::int64_t number(std::string_view digits, std::size_t line, std::string_view word) {
  std::int64_t value = 0;
  const auto* begin = digits.data();
  const auto* end = begin + digits.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || value < 0) fail(line, word);
  return value;
}

Op op_of(std::string_view word, std::size_t line) {
  Op op;
  if (word.starts_with('-')) {
    const auto dot = word.find('.');
    if (dot == std::string_view::npos) fail(line, word);
    op.kind = Op::Kind::free;
    op.steps_ago = number(word.substr(1, dot - 1), line, word);
    op.index = number(word.substr(dot + 1), line, word);
    return op;
  }
  const bool leaks = word.ends_with('!');
  op.kind = leaks ? Op::Kind::leak : Op::Kind::alloc;
  const auto plus = word.find('+');
  if (plus != std::string_view::npos) {
    op.growth = number(word.substr(plus + 1), line, word);
    if (op.growth == 0) fail(line, word);
    op.bytes = number(word.substr(0, plus), line, word);
    return op;
  }
  op.bytes = number(word.substr(0, word.size() - (leaks ? 1 : 0)), line, word);
  return op;
}

std::vector<Op> step_of(std::string_view text, std::size_t line) {
  std::vector<Op> ops;
  while (!text.empty()) {
    const auto space = text.find(' ');
    if (space != 0) ops.push_back(op_of(text.substr(0, space), line));
    text = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
  }
  return ops;
}

std::string word_of(const Op& op) {
  if (op.kind == Op::Kind::free) return fmt::format("-{}.{}", op.steps_ago, op.index);
  if (op.growth > 0) return fmt::format("{}+{}", op.bytes, op.growth);
  return fmt::format("{}{}", op.bytes, op.kind == Op::Kind::leak ? "!" : "");
}

}  // namespace

const std::vector<Op>& Pattern::at(std::int64_t index) const {
  const auto count = static_cast<std::int64_t>(steps.size());
  if (index >= count) index = count - period + (index - count) % period;
  return steps[static_cast<std::size_t>(index)];
}

std::int64_t Pattern::bytes(const Op& op, std::int64_t index, bool fault) const {
  const auto count = static_cast<std::int64_t>(steps.size());
  const auto repetition = index < count ? 0 : (index - count) / period + 1;
  return op.bytes + (fault ? repetition * op.growth : 0);
}

Growth Pattern::growth() const {
  Growth growth;
  bool rounds_exactly = true;
  bool grows = false;
  for (auto step = warmup(); step < static_cast<std::int64_t>(steps.size()); ++step) {
    for (const auto& op : at(step)) {
      grows = grows || op.growth > 0;
      if (op.kind != Op::Kind::leak) continue;
      growth.tensor(op.bytes);
      rounds_exactly = rounds_exactly && (op.bytes <= exact_small ||
                                          (op.bytes >= exact_large && op.bytes % large_block == 0));
    }
  }
  if (grows) {
    // What a step frees again does not count, and the peak depends on what is live beside.
    const auto count = settled() + period;
    const auto levels_of = levels(count, true);
    const auto grown = levels_of.back() - levels_of[static_cast<std::size_t>(settled() - 1)];
    growth.on("requested", grown - growth.per_period("requested"));
    growth.unpredicted("peak");
    rounds_exactly = false;
  }
  if (!rounds_exactly) growth.unpredicted("allocated");
  return growth.every(period);
}

std::int64_t Pattern::reach() const {
  std::int64_t reach = 0;
  for (const auto& step : steps) {
    for (const auto& op : step) reach = std::max(reach, op.steps_ago);
  }
  return reach;
}

std::vector<std::int64_t> Pattern::levels(std::int64_t count, bool fault) const {
  std::vector<std::int64_t> levels;
  std::vector<std::vector<std::int64_t>> live;  // bytes of each allocation of each step
  std::int64_t level = 0;
  for (std::int64_t step = 0; step < count; ++step) {
    auto& own = live.emplace_back();
    for (const auto& op : at(step)) {
      if (op.kind != Op::Kind::free) {
        own.push_back(bytes(op, step, fault));
        level += own.back();
        continue;
      }
      const auto which = static_cast<std::size_t>(op.index);
      if (op.steps_ago > step) continue;
      auto& born = live[static_cast<std::size_t>(step - op.steps_ago)];
      if (which < born.size()) level -= std::exchange(born[which], 0);
    }
    std::size_t which = 0;
    for (const auto& op : at(step)) {
      if (op.kind == Op::Kind::free) continue;
      auto& held = own[which++];
      if (op.kind != Op::Kind::leak) continue;
      if (!fault) level -= held;
      held = 0;  // out of reach of a free
    }
    levels.push_back(level);
  }
  return levels;
}

Pattern parse_pattern(std::string_view text) {
  Pattern pattern;
  std::size_t line = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto words = text.substr(0, end);
    if (++line == 1) {
      pattern.period = number(words, line, words);
    } else {
      pattern.steps.push_back(step_of(words, line));
    }
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  if (pattern.period < 1 || pattern.warmup() < 0) {
    throw UsageError(
        fmt::format("the pattern repeats its last {} steps and has {}; import the file again",
                    pattern.period, pattern.steps.size()));
  }
  return pattern;
}

std::string to_text(const Pattern& pattern) {
  auto text = fmt::format("{}\n", pattern.period);
  for (const auto& step : pattern.steps) {
    std::string separator;
    for (const auto& op : step) {
      text += separator + word_of(op);
      separator = " ";
    }
    text += '\n';
  }
  return text;
}

}  // namespace leaklab

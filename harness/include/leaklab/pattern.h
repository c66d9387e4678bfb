// The allocations of a loop, as text that a scenario file includes: what `leaklab import` makes of
// a report.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leaklab/growth.h"

namespace leaklab {

// The steps of `steps` are performed in their order; the last `period` of them are repeated for as
// long as the run lasts.
//
// As text: the number of steps that repeat, then one line a step. A word is the bytes of an
// allocation, with a ! after it where it is the leak and +G where what leaks is that it is G bytes
// larger in each repetition; or -S.I: what the allocation I of S steps ago has is freed.
// "1\n64 64! -0.0\n" is one step that allocates twice and frees the first, and "1\n64+8 -1.0\n" one
// whose tensor is replaced by a larger one.
struct Pattern {
  struct Op {
    enum class Kind : std::uint8_t { alloc, leak, free };
    Kind kind = Kind::alloc;
    std::int64_t bytes = 0;      // of an allocation
    std::int64_t steps_ago = 0;  // of a free
    std::int64_t index = 0;      // of a free: which allocation of that step
    std::int64_t growth = 0;     // of an allocation: bytes more in each repetition, as the leak
    friend bool operator==(const Op&, const Op&) = default;
  };
  std::vector<std::vector<Op>> steps;
  std::int64_t period = 1;

  // Step `index` of a run of any length.
  const std::vector<Op>& at(std::int64_t index) const;
  // Bytes that an allocation of step `index` asks for, with the leak or without.
  std::int64_t bytes(const Op& op, std::int64_t index, bool fault) const;
  // Steps that come before the ones that repeat.
  std::int64_t warmup() const { return static_cast<std::int64_t>(steps.size()) - period; }
  // What the leaks of one period add.
  Growth growth() const;
  // Bytes that are live after each of `count` steps, with the leaks or without.
  std::vector<std::int64_t> levels(std::int64_t count, bool fault) const;
  // How many steps ago a step frees at most.
  std::int64_t reach() const;
  // Steps after which each period does what the one before did: none frees what the warm-up left.
  std::int64_t settled() const { return warmup() + reach() + 1; }
  friend bool operator==(const Pattern&, const Pattern&) = default;
};

// Throws UsageError that names the word and its line for a text that is none.
Pattern parse_pattern(std::string_view text);
std::string to_text(const Pattern& pattern);

}  // namespace leaklab

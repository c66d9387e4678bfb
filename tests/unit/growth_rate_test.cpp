// The rate and the period of what is added step by step, against trying all of them.
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/growth.h"

namespace leaklab {
namespace {

// What rate_of() says it does, over a series with a value for each step.
Rate tried(std::span<const std::int64_t> series) {
  const auto mean = [](std::span<const std::int64_t> of) {
    std::int64_t total = 0;
    for (const auto bytes : of) total += bytes;
    return static_cast<double>(total) / static_cast<double>(of.size());
  };
  for (std::size_t skipped = 0; skipped <= 2 && skipped + 2 <= series.size(); ++skipped) {
    const auto rest = series.subspan(skipped);
    for (std::size_t period = 1; period * 2 <= rest.size(); ++period) {
      if (std::ranges::count(rest, 0) == std::ssize(rest)) continue;
      if (std::equal(rest.begin() + static_cast<std::ptrdiff_t>(period), rest.end(),
                     rest.begin())) {
        return {mean(rest.first(period)), static_cast<std::int64_t>(period)};
      }
    }
  }
  return {mean(series), 0};
}

TEST(GrowthRate, is_that_of_the_shortest_period_in_any_series) {
  std::uint32_t state = 7;
  // The same in each run: the multiplicative generator of Lewis, Goodman and Miller, 1969.
  const auto random = [&] {
    return state = static_cast<std::uint32_t>(state * 16807ULL % 2147483647);
  };
  const auto below = [&](std::uint32_t limit) {
    return static_cast<std::int64_t>(random() % limit);
  };
  std::int64_t periodic = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::int64_t> unit(static_cast<std::size_t>(1 + below(6)));
    for (auto& bytes : unit) bytes = below(3) * 64;
    std::vector<std::int64_t> series;
    const auto steps = 1 + below(30);
    for (std::int64_t step = 0; step < steps; ++step) {
      series.push_back(unit[static_cast<std::size_t>(step) % unit.size()]);
    }
    // Something once, at the beginning or anywhere.
    for (auto once = below(3); once > 0; --once) {
      const auto within = static_cast<std::uint32_t>(below(2) == 0 ? series.size() : 1);
      series[static_cast<std::size_t>(below(within))] += 640;
    }
    const auto begin = below(5);
    std::vector<Left> added{{-1, 5, 1}};
    for (std::size_t step = 0; step < series.size(); ++step) {
      if (series[step] > 0) {
        added.push_back({begin + static_cast<std::int64_t>(step), series[step], 1});
      }
    }
    added.push_back({begin + steps, 7, 1});
    const auto want = tried(series);
    const auto got = rate_of(added, begin, begin + steps);
    ASSERT_EQ(got.period, want.period) << testing::PrintToString(series);
    ASSERT_DOUBLE_EQ(got.bytes_per_step, want.bytes_per_step) << testing::PrintToString(series);
    periodic += want.period > 1 ? 1 : 0;
  }
  EXPECT_GT(periodic, 5'000);
}

TEST(GrowthRate, of_no_steps_is_nothing) {
  EXPECT_EQ(rate_of({}, 0, 0).period, 0);
  EXPECT_EQ(rate_of({}, 3, 9).bytes_per_step, 0);
}

}  // namespace
}  // namespace leaklab

#include "leaklab/signature.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "leaklab/error.h"

namespace leaklab {

static std::ostream& operator<<(std::ostream& out, Shape shape) { return out << to_string(shape); }

static std::ostream& operator<<(std::ostream& out, const Signature& signature) {
  return out << to_json(signature).dump();
}

namespace {

using Values = std::vector<std::int64_t>;

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

// A fixed sequence of numbers that looks like noise (splitmix64).
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed) {}
  // Between low and high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t bits = state_;
    bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
    bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
    bits ^= bits >> 31U;
    return low + static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(high - low + 1));
  }
  std::size_t index(std::size_t size) {
    return static_cast<std::size_t>(between(0, static_cast<std::int64_t>(size) - 1));
  }

 private:
  std::uint64_t state_;
};

// The base, then a value after each move.
Values climb(std::int64_t base, const Values& moves) {
  Values values = {base};
  for (const std::int64_t move : moves) values.push_back(values.back() + move);
  return values;
}

Values repeat(const Values& pattern, std::size_t steps) {
  Values moves(steps);
  for (std::size_t i = 0; i < steps; ++i) moves[i] = pattern[i % pattern.size()];
  return moves;
}

Values joined(Values first, const Values& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Values level(std::size_t steps) { return Values(steps, 0); }

Values with_noise(Values values, std::int64_t amplitude, std::uint64_t seed) {
  Noise noise(seed);
  for (std::int64_t& value : values) value += noise.between(-amplitude, amplitude);
  return values;
}

Signature of(const Values& values, std::int64_t tolerance = 0, std::int64_t warmup = 0) {
  return classify(values, {}, {.warmup = warmup, .tolerance = tolerance});
}

Signature of_moves(const Values& moves, std::int64_t tolerance = 0) {
  return of(climb(1000, moves), tolerance);
}

const Signature flat{};

Signature linear(std::int64_t growth, std::int64_t onset = 1) {
  return {Shape::linear, growth, 1, onset};
}
Signature stairs(std::int64_t growth, std::int64_t period, std::int64_t onset) {
  return {Shape::stairs, growth, period, onset};
}
Signature sawtooth(std::int64_t period, std::int64_t onset) {
  return {Shape::sawtooth, 0, period, onset};
}
Signature irregular(std::int64_t growth, std::int64_t steps, std::int64_t onset) {
  return {Shape::irregular, growth, steps, onset};
}

TEST(Signature, a_level_series_is_flat) { EXPECT_EQ(of(Values(20, 4096)), flat); }

TEST(Signature, one_rise_is_a_step_wherever_it_lies) {
  for (std::int64_t at = 1; at <= 9; ++at) {
    Values moves = level(9);
    moves[static_cast<std::size_t>(at - 1)] = 512;
    EXPECT_EQ(of_moves(moves), (Signature{Shape::step, 512, 9, at})) << "rise in step " << at;
  }
}

TEST(Signature, the_same_rise_in_every_step_is_linear) {
  EXPECT_EQ(of_moves(repeat({512}, 3)), linear(512));
  EXPECT_EQ(of_moves(repeat({512}, 999)), linear(512));
}

TEST(Signature, a_leak_every_k_steps_is_stairs_of_period_k_at_every_phase) {
  for (std::size_t period = 2; period <= 5; ++period) {
    for (std::size_t phase = 0; phase < period; ++phase) {
      Values pattern = level(period);
      pattern[phase] = 512;
      for (const std::size_t steps : {2 * period, 2 * period + 1, 3 * period - 1, 40 * period}) {
        EXPECT_EQ(of_moves(repeat(pattern, steps)), stairs(512, static_cast<std::int64_t>(period),
                                                           static_cast<std::int64_t>(phase) + 1))
            << steps << " steps, phase " << phase;
      }
    }
  }
}

TEST(Signature, a_period_is_not_claimed_before_it_was_seen_twice) {
  EXPECT_EQ(of_moves({8, 0, 0, 8, 0}), irregular(16, 5, 1));
  EXPECT_EQ(of_moves({8, 0, 0, 8, 0, 0}), stairs(8, 3, 1));
  EXPECT_EQ(of_moves({8, 0, 0, 0, 8, 0}), irregular(16, 6, 1));
}

TEST(Signature, two_leaks_of_different_periods_are_stairs_of_their_common_period) {
  Values moves(18);
  for (std::size_t i = 0; i < moves.size(); ++i) {
    moves[i] = (i % 2 == 1 ? 64 : 0) + (i % 3 == 2 ? 100 : 0);
  }
  EXPECT_EQ(of_moves(moves), stairs(3 * 64 + 2 * 100, 6, 2));
}

TEST(Signature, a_leak_in_every_step_and_one_in_every_third_are_stairs_of_three) {
  EXPECT_EQ(of_moves(repeat({4, 4, 104}, 12)), stairs(112, 3, 1));
}

TEST(Signature, two_leaks_in_every_step_are_one_linear_growth) {
  Values moves(10);
  for (std::int64_t& move : moves) move = 512 + 36;
  EXPECT_EQ(of_moves(moves), linear(548));
}

TEST(Signature, what_returns_to_its_base_every_period_is_a_sawtooth) {
  EXPECT_EQ(of_moves(repeat({10, 10, -20}, 12)), sawtooth(3, 1));
  EXPECT_EQ(of_moves(repeat({0, 50, -50, 0}, 8)), sawtooth(4, 2));
  EXPECT_EQ(of_moves(repeat({-20, 20}, 10)), sawtooth(2, 1));
  EXPECT_EQ(of_moves(joined(level(7), repeat({10, 10, -20}, 12))), sawtooth(3, 8));
}

TEST(Signature, a_sawtooth_that_climbs_is_stairs) {
  EXPECT_EQ(of_moves(repeat({10, 10, -19}, 12)), stairs(1, 3, 1));
  EXPECT_EQ(of_moves(joined(level(5), repeat({100, -96}, 9))), stairs(4, 2, 6));
}

TEST(Signature, rises_that_grow_are_superlinear_with_the_last_rise_as_growth) {
  EXPECT_EQ(of_moves({1, 2, 3}), (Signature{Shape::superlinear, 3, 1, 1}));
  EXPECT_EQ(of_moves({512, 512, 1024, 1024, 1536, 1536}),
            (Signature{Shape::superlinear, 1536, 1, 1}));
  EXPECT_EQ(of_moves({1, 4, 9, 16, 25, 36, 49}), (Signature{Shape::superlinear, 49, 1, 1}));
  EXPECT_EQ(of_moves({0, 0, 0, 10, 20, 30, 40}), (Signature{Shape::superlinear, 40, 1, 4}));
  EXPECT_EQ(of_moves({1, 1, 1, 3, 3, 3, 5, 5, 5}), (Signature{Shape::superlinear, 5, 1, 1}));
}

TEST(Signature, rises_that_grow_and_come_every_k_steps_keep_their_period) {
  EXPECT_EQ(of_moves({0, 1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0}),
            (Signature{Shape::superlinear, 4, 3, 2}));
  EXPECT_EQ(of_moves({0, 1, 0, 0, 2, 0, 3, 0, 0, 4, 0}).shape, Shape::irregular);
}

TEST(Signature, a_single_larger_rise_at_the_end_is_not_superlinear) {
  EXPECT_EQ(of_moves({1, 1, 1, 1, 1, 9}).shape, Shape::irregular);
}

TEST(Signature, a_drop_does_not_hide_the_rises_that_grow_after_it) {
  EXPECT_EQ(of_moves({0, -900, 1, 2, 3, 4}), (Signature{Shape::superlinear, 4, 1, 2}));
  EXPECT_EQ(of_moves({-3, -2, -1}), irregular(-6, 3, 1));
  EXPECT_EQ(of_moves({-3, -2, -1, 0, 1, 2}), irregular(-3, 6, 1));
}

TEST(Signature, a_rise_that_once_shrinks_is_not_superlinear) {
  EXPECT_EQ(of_moves({1, 2, 4, 3, 5, 6, 7, 8, 9}), irregular(45, 9, 1));
}

TEST(Signature, rises_and_then_a_level_to_the_end_are_a_plateau) {
  EXPECT_EQ(of_moves({100, 20, 0, 0, 0}), (Signature{Shape::plateau, 120, 5, 1}));
  EXPECT_EQ(of_moves(joined(repeat({8}, 32), level(20))),
            (Signature{Shape::plateau, 32 * 8, 52, 1}));
  EXPECT_EQ(of_moves({0, 0, 5, 7, 5, 0, 9, 0, 0, 0, 0}), (Signature{Shape::plateau, 26, 11, 3}));
}

TEST(Signature, a_level_shorter_than_twice_the_longest_wait_is_not_a_plateau) {
  EXPECT_EQ(of_moves({100, 20, 0, 0}), irregular(120, 4, 1));
  for (std::size_t period = 2; period <= 5; ++period) {
    Values pattern = level(period);
    pattern[0] = 64;
    const Values leak = joined(repeat(pattern, 2 * period), {64});
    for (std::size_t tail = 0; tail <= 2 * period; ++tail) {
      const Shape shape = of_moves(joined(leak, level(tail))).shape;
      EXPECT_EQ(shape == Shape::plateau, tail == 2 * period) << "period " << period << " " << tail;
    }
  }
}

TEST(Signature, a_late_onset_needs_three_growing_steps_to_be_linear) {
  EXPECT_EQ(of_moves(joined(level(6), {8})), (Signature{Shape::step, 8, 7, 7}));
  EXPECT_EQ(of_moves(joined(level(6), {8, 8})), irregular(16, 8, 7));
  EXPECT_EQ(of_moves(joined(level(6), {8, 8, 8})), linear(8, 7));
}

TEST(Signature, late_stairs_need_their_rise_three_times) {
  EXPECT_EQ(of_moves(joined(level(9), {8, 0, 0, 8, 0, 0})), irregular(16, 15, 10));
  EXPECT_EQ(of_moves(joined(level(9), {8, 0, 0, 8, 0, 0, 8})), stairs(8, 3, 10));
  EXPECT_EQ(of_moves(joined(level(9), {8, 0, 0, 8, 0, 0, 8, 0, 0})), stairs(8, 3, 10));
}

TEST(Signature, one_or_two_one_off_moves_do_not_hide_the_growth_after_them) {
  EXPECT_EQ(of_moves(joined({4096}, repeat({8}, 6))), linear(8, 2));
  EXPECT_EQ(of_moves(joined({-4096}, repeat({8}, 6))), linear(8, 2));
  EXPECT_EQ(of_moves(joined({4096, 0, 512, 0}, repeat({8}, 6))), linear(8, 5));
  EXPECT_EQ(of_moves(joined({4096, 0}, repeat({8, 0, 0}, 9))), stairs(8, 3, 3));
  EXPECT_EQ(of_moves(joined({4096}, repeat({8, -8}, 8))).shape, Shape::irregular);
}

TEST(Signature, growth_after_more_moves_or_in_less_than_half_of_the_run_is_irregular) {
  EXPECT_EQ(of_moves({10, 20, 10, 8, 8, 8, 8}), irregular(72, 7, 1));
  EXPECT_EQ(of_moves({10, 0, 0, 0, 8, 8, 8}), irregular(34, 7, 1));
  EXPECT_EQ(of_moves({10, 0, 0, 8, 8, 8}), linear(8, 4));
}

TEST(Signature, what_declines_is_irregular_with_a_negative_growth) {
  EXPECT_EQ(of_moves({0, 0, -512, 0, 0, 0}), irregular(-512, 6, 3));
  EXPECT_EQ(of_moves(repeat({-8}, 10)), irregular(-80, 10, 1));
  EXPECT_EQ(of_moves(repeat({-8, 0, 0}, 12)), irregular(-32, 12, 1));
  EXPECT_EQ(of_moves(repeat({20, -24}, 12)), irregular(-24, 12, 1));
  EXPECT_EQ(of_moves({-1, -2, -3, -4, -5}), irregular(-15, 5, 1));
  EXPECT_EQ(of(with_noise(climb(0, repeat({-50}, 40)), 20, 5), 40).shape, Shape::irregular);
}

TEST(Signature, a_spike_that_comes_back_gains_nothing) {
  EXPECT_EQ(of_moves({0, 0, 700, -700, 0, 0, 0}), irregular(0, 7, 3));
  EXPECT_EQ(of_moves({0, 0, 700, -700, 0, 0, 0}).rate(), 0);
}

TEST(Signature, moves_without_a_rule_are_irregular_with_their_mean_rate) {
  const Signature signature = of_moves({3, 0, 9, 1, 0, 0, 8, 2, 7});
  EXPECT_EQ(signature, irregular(30, 9, 1));
  EXPECT_EQ(signature.rate(), 3);
}

TEST(Signature, a_base_below_zero_changes_nothing) {
  EXPECT_EQ(of(climb(-5000, repeat({512}, 8))), linear(512));
  EXPECT_EQ(of(climb(-5000, repeat({0, 4096}, 8))), stairs(4096, 2, 2));
  EXPECT_EQ(of(Values(8, -5000)), flat);
}

TEST(Signature, growth_counts_from_the_first_judged_step_after_a_warmup) {
  const Values values = {7, 900, 100, 108, 116, 124, 132};
  EXPECT_EQ(of(values, 0, 3), linear(8, 3));
  EXPECT_EQ(of({7, 900, 100, 200, 200, 200, 200}, 0, 3), (Signature{Shape::step, 100, 4, 3}));
  EXPECT_EQ(of({7, 900, 100, 100, 100, 100, 100}, 0, 3), flat);
}

TEST(Signature, every_shape_is_seen_after_a_disturbed_warmup) {
  const Values disturbed = {0, 90000, 123, 77777, 4096};
  const auto after = [&](const Values& moves) {
    Values values = disturbed;
    const Values judged = climb(disturbed.back(), moves);
    values.insert(values.end(), judged.begin() + 1, judged.end());
    return of(values, 0, 5);
  };
  EXPECT_EQ(after(level(12)), flat);
  EXPECT_EQ(after(joined({0, 8}, level(10))), (Signature{Shape::step, 8, 12, 6}));
  EXPECT_EQ(after(repeat({0, 0, 8}, 12)), stairs(8, 3, 7));
  EXPECT_EQ(after(repeat({8}, 12)), linear(8, 5));
  EXPECT_EQ(after({1, 2, 3, 4, 5, 6}), (Signature{Shape::superlinear, 6, 1, 5}));
  EXPECT_EQ(after(repeat({8, -8}, 12)), sawtooth(2, 5));
  EXPECT_EQ(after(joined({0, 8, 8, 8}, level(8))), (Signature{Shape::plateau, 24, 12, 6}));
  EXPECT_EQ(after({0, 7, 1, 0, 9, 2}), irregular(19, 6, 6));
}

TEST(Signature, without_a_warmup_the_first_value_is_the_base) {
  EXPECT_EQ(of({0, 5, 10, 15}), linear(5, 1));
  EXPECT_EQ(of({0, 5, 10, 15}, 0, 1), linear(5, 1));
}

TEST(Signature, empty_and_tiny_series_are_flat_or_irregular) {
  EXPECT_EQ(of({}), flat);
  EXPECT_EQ(of({}, 0, 4), flat);
  EXPECT_EQ(of({9}), flat);
  EXPECT_EQ(of({9, 9}), flat);
  EXPECT_EQ(of({9, 10}), irregular(1, 1, 1));
  EXPECT_EQ(of({9, 10, 11}), irregular(2, 2, 1));
  EXPECT_EQ(of({9, 9, 9}), flat);
  EXPECT_EQ(of({1, 2, 3, 5}, 0, 3), irregular(2, 1, 3));
}

TEST(Signature, a_warmup_as_long_as_the_series_or_longer_leaves_nothing_to_judge) {
  EXPECT_EQ(of({1, 2, 3, 4}, 0, 4), flat);
  EXPECT_EQ(of({1, 2, 3, 4}, 0, 400), flat);
  EXPECT_EQ(of({1, 2, 3, 4}, 0, most), flat);
}

TEST(Signature, huge_values_are_judged_exactly) {
  const std::int64_t exbibyte = std::int64_t{1} << 60;
  EXPECT_EQ(of(climb(most - 6, {1, 1, 1, 1, 1, 1})), linear(1));
  EXPECT_EQ(of(climb(least, {1, 1, 1, 1, 1, 1})), linear(1));
  EXPECT_EQ(of(climb(-exbibyte, repeat({exbibyte / 8}, 8))), linear(exbibyte / 8));
  EXPECT_EQ(of(climb(0, repeat({0, exbibyte / 8}, 8)), exbibyte / 16), stairs(exbibyte / 8, 2, 2));
  EXPECT_EQ(of({least, most, least, most, least, most}), sawtooth(2, 1));
  for (const std::int64_t tolerance : {std::int64_t{0}, std::int64_t{1}, most}) {
    of({least, most, 0, most, least, 0, 0, 1, most, most, least, least, 5}, tolerance);
    of({least, least / 2, 0, most / 2, most - 7, most, most - 1}, tolerance);
  }
}

TEST(Signature, rate_is_the_growth_of_a_step_rounded_half_away_from_zero) {
  const auto rate = [](std::int64_t growth, std::int64_t period) {
    return Signature{Shape::stairs, growth, period, 0}.rate();
  };
  EXPECT_EQ(rate(512, 1), 512);
  EXPECT_EQ(rate(10, 4), 3);
  EXPECT_EQ(rate(-10, 4), -3);
  EXPECT_EQ(rate(9, 4), 2);
  EXPECT_EQ(rate(-9, 4), -2);
  EXPECT_EQ(rate(1, 3), 0);
  EXPECT_EQ(rate(2, 3), 1);
  EXPECT_EQ(rate(0, 7), 0);
  EXPECT_EQ(rate(most, 1), most);
  EXPECT_EQ(rate(least, 1), least);
  EXPECT_EQ(rate(most, most), 1);
  EXPECT_EQ(flat.rate(), 0);
}

TEST(Peaks, level_boundaries_with_a_higher_peak_are_peak_only) {
  const Values values(8, 100);
  const Values peaks = {150, 150, 150, 150, 400, 150, 390, 150};
  EXPECT_EQ(classify(values, peaks, {}), (Signature{Shape::peak_only, 250, 7, 4}));
  EXPECT_EQ(classify(values, peaks, {.warmup = 5}), flat);
  EXPECT_EQ(classify(values, peaks, {.warmup = 6}), (Signature{Shape::peak_only, 240, 2, 6}));
}

TEST(Peaks, a_peak_that_moves_within_the_tolerance_or_falls_is_flat) {
  const Values values(6, 100);
  EXPECT_EQ(classify(values, Values{150, 155, 150, 155, 154, 150}, {.tolerance = 5}), flat);
  EXPECT_EQ(classify(values, Values{150, 155, 150, 156, 154, 150}, {.tolerance = 5}),
            (Signature{Shape::peak_only, 6, 5, 3}));
  EXPECT_EQ(classify(values, Values{150, 90, 80, 80, 80, 80}, {}), flat);
}

TEST(Peaks, growth_at_the_boundaries_hides_no_peak) {
  const Values values = climb(0, repeat({8}, 6));
  EXPECT_EQ(classify(values, Values(7, 900), {}), linear(8));
  EXPECT_EQ(classify(values, values, {}), linear(8));
}

TEST(Peaks, another_number_of_peaks_than_values_is_refused) {
  try {
    classify(Values(8, 1), Values(7, 1), {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("8 values came with 7 peaks"), std::string::npos);
  }
}

TEST(Tolerance, what_stays_in_the_band_of_the_base_is_flat) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(of(with_noise(Values(40, 9000), 50, seed), 100), flat);
  }
  EXPECT_EQ(of({500, 600, 400, 600, 400, 600}, 100), flat);
  EXPECT_NE(of({500, 600, 400, 601, 400, 600}, 100), flat);
}

TEST(Tolerance, growth_without_noise_keeps_its_exact_shape) {
  EXPECT_EQ(of_moves(repeat({0, 0, 0, 2048}, 20), 4096), stairs(2048, 4, 4));
  EXPECT_EQ(of_moves(repeat({512}, 20), 4096), linear(512));
  EXPECT_EQ(of_moves(repeat({512}, 8), 4096), flat);
  EXPECT_EQ(of_moves(repeat({9000, -9000}, 20), 4096), sawtooth(2, 1));
  EXPECT_EQ(of_moves(repeat({9000, -8000}, 20), 4096), stairs(1000, 2, 1));
  EXPECT_EQ(of_moves(repeat({9000, -8999}, 20), 4096), sawtooth(2, 1));
}

TEST(Tolerance, a_step_under_noise_is_a_step) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::int64_t at = 1 + static_cast<std::int64_t>(seed % 30);
    Values moves = level(30);
    moves[static_cast<std::size_t>(at - 1)] = 250;
    const Signature signature = of(with_noise(climb(0, moves), 50, seed), 100);
    EXPECT_EQ(signature.shape, Shape::step) << seed;
    EXPECT_EQ(signature.onset, at) << seed;
    EXPECT_NEAR(static_cast<double>(signature.growth), 250, 100);
  }
}

TEST(Tolerance, growth_under_noise_is_linear_with_its_rate) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Signature signature = of(with_noise(climb(0, repeat({1000}, 30)), 50, seed), 100);
    EXPECT_EQ(signature.shape, Shape::linear) << seed;
    EXPECT_EQ(signature.onset, 1) << seed;
    EXPECT_NEAR(static_cast<double>(signature.growth), 1000, 5) << seed;
  }
}

TEST(Tolerance, a_leak_slower_than_the_noise_is_linear_once_it_gained_four_tolerances) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::size_t steps = 10 + seed;
    const auto rate = static_cast<std::int64_t>(40000 / steps + 1);
    const Values values = with_noise(climb(0, repeat({rate}, steps)), 5000, seed);
    const Signature signature = of(values, 10000);
    EXPECT_EQ(signature.shape, Shape::linear) << seed << " " << signature;
    EXPECT_EQ(signature.onset, 1) << seed;
    EXPECT_NEAR(static_cast<double>(signature.growth * static_cast<std::int64_t>(steps)), 40000,
                8000)
        << seed;
  }
}

TEST(Tolerance, a_leak_under_noise_of_the_whole_tolerance_is_linear_once_it_gained_seven) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::size_t steps = 10 + seed;
    const auto rate = static_cast<std::int64_t>(70000 / steps + 1);
    const Values values = with_noise(climb(0, repeat({rate}, steps)), 10000, seed);
    EXPECT_EQ(of(values, 10000).shape, Shape::linear) << seed << " " << of(values, 10000);
  }
}

TEST(Tolerance, noise_beyond_the_tolerance_alone_is_never_a_growing_shape) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Values values = with_noise(Values(12 + seed % 40, 0), 300, seed);
    const Shape shape = of(values, 100).shape;
    EXPECT_TRUE(shape == Shape::irregular || shape == Shape::flat)
        << seed << " " << of(values, 100);
  }
}

TEST(Tolerance, a_late_onset_under_noise_is_linear_from_about_its_onset) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Values fast = with_noise(climb(0, joined(level(20), repeat({500}, 20))), 50, seed);
    const Signature signature = of(fast, 100);
    EXPECT_EQ(signature.shape, Shape::linear) << seed << " " << signature;
    EXPECT_NEAR(static_cast<double>(signature.growth), 500, 10) << seed;
    EXPECT_EQ(signature.onset, 21) << seed;

    const Values slow = with_noise(climb(0, joined(level(40), repeat({20}, 60))), 50, seed);
    EXPECT_EQ(of(slow, 100).shape, Shape::linear) << seed << " " << of(slow, 100);
    EXPECT_NEAR(static_cast<double>(of(slow, 100).onset), 41, 10) << seed;
  }
}

TEST(Tolerance, a_filling_cache_under_noise_is_a_plateau) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Values fast = with_noise(climb(0, joined(repeat({400}, 10), level(30))), 50, seed);
    EXPECT_EQ(of(fast, 100).shape, Shape::plateau) << seed << " " << of(fast, 100);
    const Values slow = with_noise(climb(0, joined(repeat({40}, 30), level(30))), 50, seed);
    EXPECT_EQ(of(slow, 100).shape, Shape::plateau) << seed << " " << of(slow, 100);
  }
}

TEST(Tolerance, rises_that_grow_under_noise_are_superlinear) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Values rises(30);
    for (std::size_t i = 0; i < rises.size(); ++i) rises[i] = 40 * static_cast<std::int64_t>(i + 1);
    const Signature signature = of(with_noise(climb(0, rises), 50, seed), 100);
    EXPECT_EQ(signature.shape, Shape::superlinear) << seed << " " << signature;
    EXPECT_NEAR(static_cast<double>(signature.rate()), 26 * 40, 40) << seed;
  }
}

TEST(Tolerance, rises_that_grow_by_less_than_the_noise_are_linear) {
  EXPECT_EQ(of_moves({50, 51, 52, 53}, 10), linear(52));
  EXPECT_EQ(of_moves({50, 51, 52, 53}, 0).shape, Shape::superlinear);
}

TEST(Tolerance, stairs_under_noise_keep_their_period) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (std::size_t period = 2; period <= 5; ++period) {
      Values pattern = level(period);
      pattern[seed % period] = 1000;
      const Signature signature =
          of(with_noise(climb(0, repeat(pattern, 8 * period)), 50, seed), 100);
      EXPECT_EQ(signature.shape, Shape::stairs) << seed << " " << signature;
      EXPECT_EQ(signature.period, static_cast<std::int64_t>(period)) << seed;
      EXPECT_EQ(signature.onset, static_cast<std::int64_t>(seed % period) + 1) << seed;
      EXPECT_NEAR(static_cast<double>(signature.growth), 1000, 15) << seed;
    }
  }
}

TEST(Tolerance, a_sawtooth_under_noise_returns_and_one_that_climbs_does_not) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Values even = with_noise(climb(0, repeat({500, 500, -1000}, 30)), 50, seed);
    EXPECT_EQ(of(even, 100), sawtooth(3, 1)) << seed;
    const Values climbing = with_noise(climb(0, repeat({500, 500, -960}, 30)), 50, seed);
    const Signature signature = of(climbing, 100);
    EXPECT_EQ(signature.shape, Shape::stairs) << seed << " " << signature;
    EXPECT_EQ(signature.period, 3) << seed;
    EXPECT_NEAR(static_cast<double>(signature.growth), 40, 10) << seed;
    const Values late = with_noise(climb(0, joined(level(11), repeat({800, -800}, 30))), 50, seed);
    EXPECT_EQ(of(late, 100), sawtooth(2, 12)) << seed;
  }
}

TEST(Tolerance, the_onset_of_a_slow_late_line_is_reckoned_back_from_where_it_leaves_the_band) {
  EXPECT_EQ(of_moves(joined(level(10), {21, 19, 20, 21, 20, 19, 19, 21, 20, 20, 21, 19}), 100),
            linear(20, 11));
}

TEST(Tolerance, a_late_line_has_three_steps_or_more) {
  EXPECT_EQ(of_moves(joined(level(5), {50, 49}), 10), irregular(99, 7, 6));
  EXPECT_EQ(of_moves(joined(level(5), {50, 49, 50}), 10), linear(50, 6));
}

TEST(Tolerance, a_drop_before_a_late_line_does_not_hide_it) {
  EXPECT_EQ(of_moves(joined(level(10), {-12, 5, 6, 5, 4, 5, 6, 5, 5, 4, 6}), 10), linear(4, 11));
}

TEST(Tolerance, a_slow_line_without_noise_needs_no_more_than_the_tolerance) {
  EXPECT_EQ(of_moves({10, 11, 10, 9, 10, 11, 9, 10, 11, 9, 10, 11, 10}, 100), linear(10, 1));
}

TEST(Tolerance, a_band_higher_than_half_the_gain_is_no_line) {
  EXPECT_EQ(of({0, 150, 50, 190, 80, 200}, 100), (Signature{Shape::step, 200, 5, 1}));
}

TEST(Tolerance, rises_must_grow_by_more_than_the_tolerance_from_part_to_part) {
  EXPECT_EQ(of_moves({20, 21, 20, 21, 20, 21, 20, 60, 80}, 10), irregular(283, 9, 1));
  EXPECT_EQ(of_moves({12, 13, 12, 50, 51, 50, 51, 52, 50}, 10), irregular(341, 9, 1));
  EXPECT_EQ(of_moves({12, 13, 12, 50, 51, 50, 91, 92, 90}, 10),
            (Signature{Shape::superlinear, 273, 3, 1}));
}

TEST(Tolerance, a_sawtooth_that_sinks_is_irregular) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Values values = with_noise(climb(0, repeat({500, -540}, 30)), 50, seed);
    EXPECT_EQ(of(values, 100).shape, Shape::irregular) << seed << " " << of(values, 100);
    EXPECT_LT(of(values, 100).growth, 0) << seed;
  }
}

TEST(Tolerance, a_slope_below_half_a_unit_is_told_by_its_net_gain) {
  Values values(500);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i * 2 / 5);
  values = with_noise(values, 5, 3);
  const Signature signature = of(values, 10);
  EXPECT_EQ(signature, irregular(values.back() - values.front(), 499, signature.onset));
}

// Series of every shape by chance: patterns of moves with a level, one-off moves or noise before,
// between and after them.
Values made_series(Noise& noise) {
  const auto move = [&] { return noise.between(-3, 6) * noise.between(0, 200); };
  Values moves;
  const std::int64_t parts = noise.between(1, 3);
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto steps = static_cast<std::size_t>(noise.between(0, 30));
    switch (noise.between(0, 4)) {
      case 0:
        moves = joined(moves, level(steps));
        break;
      case 1:
        moves = joined(moves, repeat({noise.between(1, 1000)}, steps));
        break;
      case 2: {
        Values pattern(static_cast<std::size_t>(noise.between(2, 6)));
        for (std::int64_t& one : pattern) one = noise.between(0, 2) == 0 ? move() : 0;
        if (noise.between(0, 1) == 0) {
          pattern.push_back(-std::accumulate(pattern.begin(), pattern.end(), std::int64_t{0}));
        }
        moves = joined(moves, repeat(pattern, steps));
        break;
      }
      case 3:
        for (std::size_t i = 0; i < steps; ++i) moves.push_back(static_cast<std::int64_t>(i * 10));
        break;
      default:
        for (std::size_t i = 0; i < steps % 4; ++i) moves.push_back(move());
    }
  }
  return climb(noise.between(-100000, 100000), moves);
}

TEST(Property, made_series_hold_every_shape) {
  Noise noise(1);
  std::vector<int> seen(9, 0);
  for (int i = 0; i < 5000; ++i) ++seen[static_cast<std::size_t>(of(made_series(noise)).shape)];
  for (const Shape shape :
       {Shape::flat, Shape::step, Shape::stairs, Shape::linear, Shape::superlinear, Shape::sawtooth,
        Shape::plateau, Shape::irregular}) {
    EXPECT_GE(seen[static_cast<std::size_t>(shape)], 50) << to_string(shape);
  }
}

TEST(Property, a_constant_added_to_all_values_changes_nothing) {
  Noise noise(2);
  for (int i = 0; i < 5000; ++i) {
    const Values values = made_series(noise);
    const std::int64_t tolerance = noise.between(0, 1) * noise.between(0, 300);
    Values moved = values;
    const std::int64_t shift = noise.between(-(std::int64_t{1} << 61), std::int64_t{1} << 61);
    for (std::int64_t& value : moved) value += shift;
    EXPECT_EQ(of(moved, tolerance), of(values, tolerance)) << i;
  }
}

TEST(Property, values_and_tolerance_scaled_scale_the_growth) {
  Noise noise(3);
  for (int i = 0; i < 5000; ++i) {
    Values values = made_series(noise);
    std::int64_t tolerance = noise.between(0, 1) * noise.between(0, 300);
    if (tolerance > 0) values = with_noise(values, tolerance / 2, static_cast<std::uint64_t>(i));
    const Signature before = of(values, tolerance);
    const std::int64_t factor = noise.between(2, 1000);
    for (std::int64_t& value : values) value *= factor;
    const Signature after = of(values, tolerance * factor);
    EXPECT_EQ(after.shape, before.shape) << i << " " << before << after;
    EXPECT_EQ(after.period, before.period) << i;
    EXPECT_EQ(after.onset, before.onset) << i;
    // A slope under noise is rounded to whole units before and after.
    const std::int64_t rounding = tolerance > 0 ? factor / 2 + 1 : 0;
    EXPECT_LE(std::abs(after.growth - factor * before.growth), rounding) << i;
  }
}

TEST(Property, one_more_period_of_steady_growth_changes_nothing) {
  Noise noise(4);
  int steady = 0;
  for (int i = 0; i < 20000; ++i) {
    Values values = made_series(noise);
    const std::int64_t tolerance = noise.between(0, 1) * noise.between(0, 300);
    const Signature before = of(values, tolerance);
    if (before.shape != Shape::linear && before.shape != Shape::stairs) continue;
    const auto period = static_cast<std::size_t>(before.period);
    // Where rounding or noise is in the growth, the series does not go on by it exactly.
    if (values.back() - values[values.size() - 1 - period] != before.growth) continue;
    ++steady;
    for (std::size_t more = 0; more < period; ++more) {
      values.push_back(values[values.size() - period] + before.growth);
    }
    EXPECT_EQ(of(values, tolerance), before) << i;
  }
  EXPECT_GT(steady, 2000);
}

TEST(Property, only_the_last_value_of_a_warmup_matters) {
  Noise noise(5);
  for (int i = 0; i < 5000; ++i) {
    const Values judged = made_series(noise);
    const std::int64_t tolerance = noise.between(0, 1) * noise.between(0, 300);
    Signature expected = of(judged, tolerance);
    const std::int64_t warmup = noise.between(1, 9);
    Values values;
    for (std::int64_t step = 1; step < warmup; ++step) {
      values.push_back(noise.between(-1000000, 1000000));
    }
    values.insert(values.end(), judged.begin(), judged.end());
    if (expected.onset >= 0) expected.onset += warmup - 1;
    EXPECT_EQ(of(values, tolerance, warmup), expected) << i;
  }
}

TEST(Property, what_gains_nothing_has_no_growth_and_what_is_linear_or_stairs_gains) {
  Noise noise(6);
  for (int i = 0; i < 5000; ++i) {
    const Values values = made_series(noise);
    const std::int64_t tolerance = noise.between(0, 1) * noise.between(0, 300);
    const Signature signature = of(values, tolerance);
    EXPECT_GE(signature.period, 1);
    EXPECT_EQ(signature.onset < 0, signature.shape == Shape::flat);
    EXPECT_LT(signature.onset, static_cast<std::int64_t>(values.size()));
    switch (signature.shape) {
      case Shape::flat:
      case Shape::sawtooth:
        EXPECT_EQ(signature.growth, 0) << i;
        break;
      case Shape::irregular:
        EXPECT_EQ(signature.growth, values.back() - values.front()) << i;
        break;
      default:
        EXPECT_GT(signature.growth, 0) << i;
    }
  }
}

// The rules of exact repetition, tried the slow way.
Signature exact_by_definition(const Values& values) {
  Values moves;
  for (std::size_t i = 1; i < values.size(); ++i) moves.push_back(values[i] - values[i - 1]);
  std::vector<std::size_t> starts = {0};
  for (std::size_t i = 0; i < moves.size() && starts.size() < 4; ++i) {
    if (moves[i] != 0) starts.push_back(i);
  }
  for (std::size_t part = 0; part < starts.size(); ++part) {
    const std::size_t start = starts[part];
    const std::size_t size = moves.size() - start;
    if (part > 1 && 2 * size < moves.size()) continue;
    for (std::size_t p = 1; 2 * p + (part > 0 ? 1 : 0) <= size; ++p) {
      bool repeats = true;
      for (std::size_t i = start; i + p < moves.size(); ++i) repeats &= moves[i] == moves[i + p];
      if (!repeats) continue;
      const std::int64_t growth = values[start + p] - values[start];
      const auto onset = static_cast<std::int64_t>(std::max(start, starts[1]) + 1);
      const auto period = static_cast<std::int64_t>(p);
      if (growth > 0) return p == 1 ? linear(growth, onset) : stairs(growth, period, onset);
      if (growth == 0 && part < 2) return sawtooth(period, onset);
      return flat;
    }
  }
  return flat;
}

TEST(Property, exact_repetition_is_what_its_definition_says) {
  Noise noise(7);
  for (int i = 0; i < 20000; ++i) {
    Values moves(static_cast<std::size_t>(noise.between(3, 14)));
    for (std::int64_t& move : moves) move = noise.between(-1, 2);
    if (i % 2 == 0) moves = joined(moves, repeat(moves, noise.index(20)));
    const Signature got = of_moves(moves);
    if (got == flat) continue;
    const Signature expected = exact_by_definition(climb(0, moves));
    const bool repeats =
        got.shape == Shape::linear || got.shape == Shape::stairs || got.shape == Shape::sawtooth;
    EXPECT_EQ(repeats ? got : flat, expected) << i;
  }
}

TEST(Words, every_shape_is_read_back_from_its_word) {
  const std::vector<std::string> words = {"flat",    "step",        "stairs",
                                          "linear",  "superlinear", "sawtooth",
                                          "plateau", "peak-only",   "irregular"};
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_EQ(to_string(static_cast<Shape>(i)), words[i]);
    EXPECT_EQ(shape_from_string(words[i]), static_cast<Shape>(i));
  }
}

TEST(Words, an_unknown_word_is_refused_with_the_known_ones) {
  for (const std::string word : {"", "Flat", "peak_only", "stair"}) {
    try {
      shape_from_string(word);
      FAIL() << word;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(), "unknown kind of signature \"" + word +
                                  "\": use one of flat, step, stairs, linear, superlinear, "
                                  "sawtooth, plateau, peak-only, irregular");
    }
  }
}

TEST(Words, json_holds_kind_rate_growth_period_and_onset) {
  EXPECT_EQ(to_json(stairs(10, 4, 7)).dump(),
            R"({"growth":10,"kind":"stairs","onset":7,"period":4,"rate":3})");
}

}  // namespace
}  // namespace leaklab

// The rules of the growth signature
//
// Words. T is the tolerance. The base is the value after the last warm-up step or, without a
// warm-up, after step 0; nothing before it matters. The D steps after it are judged. A step's move
// is its value less the value before; a rise is a move upwards. Values are level while they stay
// within T of the first of them; the first value outside opens the next level (so with T = 0 each
// move opens one). The height of a band is the range of the values in it.
//
// Figures. Growth and period are what a rule says. Where it says "once", nothing repeats: growth is
// the net gain (last value less base) and period is D, so that rate() is the mean gain of a judged
// step. Onset is the first step more than T away from the base, unless a rule names another.
//
// The rules are tried in this order; the first that holds decides.
//
//  1. flat: no judged value is more than T away from the base. Growth 0, period 1, onset -1.
//     peak-only: flat, but a judged peak lies more than T above the base's peak. Growth is the
//     highest judged peak less the base's, period D, onset the first peak above. Lower peaks are
//     flat.
//
//  2. irregular, once: D < 3. Too little to tell more.
//
//  3. Moves that repeat exactly, whatever T is: the smallest p for which every move equals the move
//     p steps later, in the first of these parts of the run that has one:
//       a. all judged steps, where D >= 2p: two full periods were seen;
//       b. from the first move on, where that is 2p + 1 steps or more: level at first, then a late
//          onset whose opening move was seen three times (linear: three equal rises);
//       c. from the second, else the third move on, where that is 2p + 1 steps or more and at least
//          half of the judged ones: one or two one-off moves don't hide the growth after them.
//     The part's gain is what its whole periods sum up to.
//       linear: p = 1 and the gain is above T. Growth is the move.
//       stairs: p >= 2 and the gain is above T: the same gain in every period, whatever happens
//         inside it (one rise, several, or a sawtooth that climbs). Growth is the gain of one
//         period, period p.
//       sawtooth: p >= 2 and the gain is within T, in a and b only. Growth 0, period p.
//     Onset is the part's first move. Where none of the three holds, the part declines or, in c,
//     gains nothing: go on.
//
//  4. One trend. Of those of the following that hold, the one with the lowest band; on a tie the
//     first named.
//       step, once: two levels, the second above the first. Band: the higher of the two.
//         One rise is a step wherever it lies: a leak once every k steps needs 2k judged steps to
//         be told from it.
//       linear (T > 0 only; rule 3 has the exact ones): the base and all judged values lie in a
//         strip between two parallel lines. Band: the narrowest such strip, measured upright, at
//         most 2T high (so that there is a line with every value within T of it). The least-squares
//         line gains at least T over these steps and at least twice the height of the band. Growth
//         is its slope, rounded, and is at least 1; period 1; onset is the first judged step.
//         Where that does not hold, or its band is more than twice as high as the following one:
//         the same with the least-squares line over the late part, which is from the value before
//         the first one outside the base's band on and at least three steps long. Onset is the step
//         in which that line left the base, reckoned back from that first value outside. The values
//         before the onset are a level, the strip begins with the last of them: the band is the
//         higher of the two.
//         So a leak slower than T a step is linear once it gained about 4T in all under noise of
//         T/2 to either side, and 7T under noise of T.
//       plateau, once: three levels or more, each above the one before, and the last lasts at least
//         3 steps after its first value and at least twice the longest wait between two openings.
//         So a leak once every k steps is no plateau before 2k steps without a rise. Band: the
//         highest of the levels.
//         For step and plateau the last level opens earlier, with the first of the values that lie
//         within T of each other to the end, where noise opened it later; onset is the opening of
//         the second level.
//       superlinear: the values of the late part, as above, lie on a curve whose rises never
//         shrink: their lower convex hull, and no value lies more than 2T above it. Its last three
//         equal parts (as long as they can be) gain something, something more than T more than
//         that, and something more than T more again. Band: twice the highest value above the hull
//         (twice, since a curve bends to its values), or the level before where that is higher.
//         Growth is the gain of the last of the three parts, period its length. With T = 0: growth
//         is the last rise, and the rises may come once every k steps, level between; period k.
//
//  5. Moves that repeat under noise, T > 0: the largest move is above 2T, and with p the smallest
//     period of 2 to D / 3 steps and c the mean gain of a period (from the mean of the first p
//     values to the mean of the last whole period's), the values at the same place of each period,
//     less c for each period gone by, lie in a band of at most 2T. For all judged steps or else
//     for the late part.
//       stairs: c over all whole periods is above T. Growth c, rounded, is at least 1; period p.
//       sawtooth: it is within T. Growth 0, period p.
//
//  6. irregular, once. What declines ends here, with a negative growth: never a leak.
//
// All rules take linear time but rule 5, which tries few periods in full. Integers throughout.
// Distances from the base are cut at 2^60, beyond every byte counter.
#include "leaklab/signature.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaklab/error.h"

namespace leaklab {
namespace {

// Sums and products of distances over up to four million steps.
__extension__ typedef __int128 Wide;       // NOLINT(modernize-use-using): pedantic without it
using Levels = std::vector<std::int64_t>;  // distance from the base: of the base itself, then D

constexpr std::int64_t farthest = std::int64_t{1} << 60;

constexpr std::array<std::string_view, 9> words = {"flat",    "step",        "stairs",
                                                   "linear",  "superlinear", "sawtooth",
                                                   "plateau", "peak-only",   "irregular"};

// A height of zero or more, as a fraction.
struct Height {
  Wide over = 0;
  Wide under = 1;
  friend bool operator<(const Height& a, const Height& b) {
    const Wide whole_a = a.over / a.under;
    const Wide whole_b = b.over / b.under;
    if (whole_a != whole_b) return whole_a < whole_b;
    return a.over % a.under * b.under < b.over % b.under * a.under;
  }
  friend Height operator*(std::int64_t factor, const Height& height) {
    return {factor * height.over, height.under};
  }
};

struct Trend {
  Signature signature;
  Height height;
};

std::int64_t rounded(Wide numerator, Wide denominator) {
  const Wide quotient = numerator / denominator;
  const Wide rest = numerator % denominator;
  const Wide size = rest < 0 ? -rest : rest;
  const Wide away = numerator < 0 ? -1 : 1;
  return static_cast<std::int64_t>(quotient + (size >= denominator - size ? away : 0));
}

std::int64_t signed_size(std::size_t size) { return static_cast<std::int64_t>(size); }

std::size_t base_step(std::span<const std::int64_t> values, std::int64_t warmup) {
  return std::min(static_cast<std::size_t>(std::max<std::int64_t>(warmup, 1)), values.size()) - 1;
}

Levels judged_levels(std::span<const std::int64_t> values, std::int64_t warmup) {
  const auto judged = values.subspan(base_step(values, warmup));
  Levels levels(judged.size());
  std::transform(judged.begin(), judged.end(), levels.begin(), [&](std::int64_t value) {
    const Wide distance = Wide{value} - judged.front();
    return static_cast<std::int64_t>(std::clamp<Wide>(distance, -farthest, farthest));
  });
  return levels;
}

Levels moves_of(const Levels& levels) {
  Levels moves(levels.size() - 1);
  for (std::size_t i = 0; i < moves.size(); ++i) moves[i] = levels[i + 1] - levels[i];
  return moves;
}

std::int64_t range(std::span<const std::int64_t> values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low;
}

// Steps within a Signature made here are counted from the base; classify() adds the base's step.
Signature once(Shape shape, const Levels& levels, std::size_t onset) {
  return {shape, levels.back(), signed_size(levels.size() - 1), signed_size(onset)};
}

// Smallest p with moves[i] == moves[i + p] throughout: by the failure function of Knuth, Morris and
// Pratt, in linear time.
std::size_t smallest_period(std::span<const std::int64_t> moves) {
  std::vector<std::size_t> border(moves.size(), 0);
  for (std::size_t i = 1, length = 0; i < moves.size(); ++i) {
    while (length > 0 && moves[i] != moves[length]) length = border[length - 1];
    if (moves[i] == moves[length]) ++length;
    border[i] = length;
  }
  return moves.size() - border.back();
}

// Rule 3.
std::optional<Signature> exact_repetition(const Levels& levels, const Levels& moves,
                                          std::int64_t tolerance) {
  std::array<std::size_t, 3> moved{};
  std::size_t known = 0;
  for (std::size_t i = 0; i < moves.size() && known < moved.size(); ++i) {
    if (moves[i] != 0) moved[known++] = i;
  }
  const auto judge = [&](std::size_t first, std::size_t period,
                         bool returns) -> std::optional<Signature> {
    const std::size_t last = first + (moves.size() - first) / period * period;
    const std::int64_t gain = levels[last] - levels[first];
    const std::int64_t onset = signed_size(std::max(first, moved[0]) + 1);
    if (gain > tolerance) {
      return Signature{period == 1 ? Shape::linear : Shape::stairs,
                       levels[first + period] - levels[first], signed_size(period), onset};
    }
    if (returns && period > 1 && gain >= -tolerance) {
      return Signature{Shape::sawtooth, 0, signed_size(period), onset};
    }
    return std::nullopt;
  };

  if (const std::size_t period = smallest_period(moves); moves.size() >= 2 * period) {
    return judge(0, period, true);
  }
  for (std::size_t i = 0; i < known; ++i) {
    const std::span<const std::int64_t> part = std::span(moves).subspan(moved[i]);
    if (i > 0 && 2 * part.size() < moves.size()) break;
    const std::size_t period = smallest_period(part);
    if (part.size() >= 2 * period + 1) return judge(moved[i], period, i == 0);
  }
  return std::nullopt;
}

// The first of the longest row of last values that lie within the tolerance of each other.
std::size_t start_of_last_level(const Levels& levels, std::int64_t tolerance) {
  std::size_t start = levels.size() - 1;
  std::int64_t low = levels[start];
  std::int64_t high = low;
  for (; start > 0; --start) {
    low = std::min(low, levels[start - 1]);
    high = std::max(high, levels[start - 1]);
    if (high - low > tolerance) break;
  }
  return start;
}

// Step and plateau of rule 4.
std::optional<Trend> rise_to_a_level(const Levels& levels, std::int64_t tolerance) {
  std::vector<std::size_t> openings = {0};
  for (std::size_t i = 1; i < levels.size(); ++i) {
    const std::int64_t move = levels[i] - levels[openings.back()];
    if (move < -tolerance) return std::nullopt;
    if (move > tolerance) openings.push_back(i);
  }
  const std::size_t start = start_of_last_level(levels, tolerance);
  if (start < openings.back()) {
    while (openings.back() > start) openings.pop_back();
    if (openings.back() < start) openings.push_back(start);
  }
  std::int64_t height = 0;
  std::size_t wait = 0;
  for (std::size_t i = 0; i < openings.size(); ++i) {
    const std::size_t end = i + 1 < openings.size() ? openings[i + 1] : levels.size();
    height = std::max(height, range(std::span(levels).subspan(openings[i], end - openings[i])));
    if (i > 1) wait = std::max(wait, openings[i] - openings[i - 1]);
  }
  const bool step = openings.size() == 2;
  const std::size_t lasted = levels.size() - 1 - openings.back();
  if (!step && lasted < std::max<std::size_t>(3, 2 * wait)) return std::nullopt;
  return Trend{once(step ? Shape::step : Shape::plateau, levels, openings[1]), {height}};
}

// How far the highest value lies above the lower convex hull of all.
Height height_over_hull(std::span<const std::int64_t> values) {
  std::vector<std::size_t> hull;
  const auto rise = [&](std::size_t from, std::size_t to) {
    return Wide{values[to]} - values[from];
  };
  const auto run = [](std::size_t from, std::size_t to) { return Wide{signed_size(to - from)}; };
  for (std::size_t i = 0; i < values.size(); ++i) {
    while (hull.size() >= 2) {
      const std::size_t a = hull[hull.size() - 2];
      const std::size_t b = hull.back();
      if (rise(a, b) * run(b, i) <= rise(b, i) * run(a, b)) break;
      hull.pop_back();
    }
    hull.push_back(i);
  }
  Height height;
  for (std::size_t edge = 1; edge < hull.size(); ++edge) {
    const std::size_t a = hull[edge - 1];
    const std::size_t b = hull[edge];
    Wide above = 0;
    for (std::size_t i = a + 1; i < b; ++i) {
      above = std::max(above, rise(a, i) * run(a, b) - rise(a, b) * run(a, i));
    }
    if (above > 0) height = std::max(height, Height{above, run(a, b)});
  }
  return height;
}

// Height of the narrowest strip between two parallel lines that holds all values: the longest
// vertical line across their convex hull.
Height height_of_strip(std::span<const std::int64_t> values) {
  Levels mirrored(values.size());
  std::transform(values.begin(), values.end(), mirrored.begin(), std::negate<>());
  return std::max(height_over_hull(values), height_over_hull(mirrored));
}

// Linear of rule 4, over the levels from `first` on.
std::optional<Trend> line(const Levels& levels, std::size_t first, std::size_t outside,
                          std::int64_t tolerance) {
  const std::span<const std::int64_t> values = std::span(levels).subspan(first);
  const std::int64_t steps = signed_size(values.size()) - 1;
  if (steps < 3) return std::nullopt;
  // The least-squares slope of n values over 0, 1, ..., n - 1 is
  // 6 * sum((2x - n + 1) * y) / (n * (n * n - 1)).
  Wide rise = 0;
  for (std::int64_t x = 0; x <= steps; ++x) {
    rise += Wide{2 * x - steps} * values[static_cast<std::size_t>(x)];
  }
  const Wide run = Wide{steps + 1} * steps * (steps + 2) / 6;
  const std::int64_t growth = rounded(rise, run);
  if (growth < 1) return std::nullopt;
  std::size_t onset = 1;
  if (first > 0) {
    const std::int64_t back = std::max<std::int64_t>(rounded(levels[outside] * run, rise), 1) - 1;
    onset = outside - std::min(static_cast<std::size_t>(back), outside - 1);
  }
  const Height before{range(std::span(levels).first(onset))};
  const Height height = std::max(before, height_of_strip(std::span(levels).subspan(onset - 1)));
  const Height gain{rise * steps, run};
  if (Height{2 * tolerance} < height || gain < std::max(Height{tolerance}, 2 * height)) {
    return std::nullopt;
  }
  return Trend{{Shape::linear, growth, 1, signed_size(onset)}, height};
}

// Superlinear of rule 4.
std::optional<Trend> curve(const Levels& levels, const Levels& moves, std::size_t outside,
                           std::int64_t tolerance) {
  std::size_t stride = 1;
  if (tolerance == 0) {
    const auto next = std::find_if(moves.begin() + signed_size(outside), moves.end(),
                                   [](std::int64_t move) { return move != 0; });
    stride = static_cast<std::size_t>(next - moves.begin()) + 1 - outside;
    for (std::size_t i = outside; i <= moves.size(); ++i) {
      if ((i - outside) % stride != 0 && moves[i - 1] != 0) return std::nullopt;
    }
  }
  Levels values = {levels[outside - 1]};
  for (std::size_t i = outside; i < levels.size(); i += stride) values.push_back(levels[i]);
  const std::size_t part = (values.size() - 1) / 3;
  if (part == 0) return std::nullopt;
  const std::size_t end = values.size() - 1;
  const auto gain = [&](std::size_t parts_left) {
    const std::size_t last = end - parts_left * part;
    return values[last] - values[last - part];
  };
  if (gain(2) <= 0 || gain(1) - gain(2) <= tolerance || gain(0) - gain(1) <= tolerance) {
    return std::nullopt;
  }
  const Height before{range(std::span(levels).first(outside))};
  const Height over_hull = height_over_hull(values);
  if (Height{2 * tolerance} < over_hull) return std::nullopt;
  const Signature signature =
      tolerance == 0
          ? Signature{Shape::superlinear, values[end] - values[end - 1], signed_size(stride),
                      signed_size(outside)}
          : Signature{Shape::superlinear, gain(0), signed_size(part), signed_size(outside)};
  return Trend{signature, std::max(before, 2 * over_hull)};
}

// Rule 4.
std::optional<Signature> trend(const Levels& levels, const Levels& moves, std::size_t outside,
                               std::int64_t tolerance) {
  std::optional<Trend> to_a_level = rise_to_a_level(levels, tolerance);
  std::optional<Trend> straight;
  if (tolerance > 0) {
    straight = line(levels, 0, outside, tolerance);
    const auto late = outside > 1 ? line(levels, outside - 1, outside, tolerance) : std::nullopt;
    if (late && (!straight || 2 * late->height < straight->height)) straight = late;
  }
  const std::optional<Trend> bent = curve(levels, moves, outside, tolerance);
  const bool is_step = to_a_level && to_a_level->signature.shape == Shape::step;
  std::optional<Trend> best;
  for (const auto& candidate : {is_step ? to_a_level : std::nullopt, straight, to_a_level, bent}) {
    if (candidate && (!best || candidate->height < best->height)) best = candidate;
  }
  return best ? std::optional(best->signature) : std::nullopt;
}

// Rule 5, over the levels from `first` on.
std::optional<Signature> noisy_repetition(const Levels& levels, const Levels& moves,
                                          std::size_t first, std::size_t outside,
                                          std::int64_t tolerance) {
  const std::span<const std::int64_t> values = std::span(levels).subspan(first);
  const std::span<const std::int64_t> steps = std::span(moves).subspan(first);
  const auto largest =
      std::max_element(steps.begin(), steps.end(),
                       [](std::int64_t a, std::int64_t b) { return std::abs(a) < std::abs(b); });
  if (largest == steps.end() || std::abs(*largest) <= 2 * tolerance) return std::nullopt;
  const auto at = static_cast<std::size_t>(largest - steps.begin());

  std::vector<Wide> sums(values.size() + 1, 0);
  for (std::size_t i = 0; i < values.size(); ++i) sums[i + 1] = sums[i] + values[i];

  // The largest move must come again: cheap, and it leaves few periods to try in full.
  const auto comes_again = [&](std::size_t step) {
    return step >= steps.size() || std::abs(steps[step] - *largest) <= 4 * tolerance;
  };
  for (std::size_t period = 2; 3 * period <= steps.size(); ++period) {
    if (!comes_again(at + period) || (at >= period && !comes_again(at - period))) continue;
    const std::size_t periods = values.size() / period;
    const std::size_t end = periods * period;
    // Units gained from the first period to the last, times `period`.
    const Wide gain = (sums[end] - sums[end - period]) - sums[period];
    const Wide run = Wide{signed_size(period)} * signed_size(periods - 1);
    const auto in_a_band = [&](std::size_t place) {
      Wide low = Wide{values[place]} * run;
      Wide high = low;
      Wide gained = 0;
      for (std::size_t i = place + period; i < values.size(); i += period) {
        gained += gain;
        const Wide rest = Wide{values[i]} * run - gained;
        low = std::min(low, rest);
        high = std::max(high, rest);
        if (high - low > 2 * tolerance * run) return false;
      }
      return true;
    };
    std::size_t place = 0;
    while (place < period && in_a_band(place)) ++place;
    if (place < period) continue;

    const Wide noise = Wide{tolerance} * signed_size(period);
    const bool returns = -noise <= gain && gain <= noise;
    const std::int64_t growth = returns ? 0 : rounded(gain, run);
    if (!returns && growth < 1) return std::nullopt;
    return Signature{returns ? Shape::sawtooth : Shape::stairs, growth, signed_size(period),
                     signed_size(outside)};
  }
  return std::nullopt;
}

Signature classify_moved(const Levels& levels, std::size_t outside, std::int64_t tolerance) {
  if (levels.size() <= 3) return once(Shape::irregular, levels, outside);
  const Levels moves = moves_of(levels);
  if (const auto found = exact_repetition(levels, moves, tolerance)) return *found;
  if (const auto found = trend(levels, moves, outside, tolerance)) return *found;
  if (tolerance > 0) {
    for (const std::size_t first : {std::size_t{0}, outside - 1}) {
      if (const auto found = noisy_repetition(levels, moves, first, outside, tolerance)) {
        return *found;
      }
    }
  }
  return once(Shape::irregular, levels, outside);
}

}  // namespace

std::string_view to_string(Shape shape) { return words.at(static_cast<std::size_t>(shape)); }

Shape shape_from_string(std::string_view word) {
  const auto found = std::find(words.begin(), words.end(), word);
  if (found == words.end()) {
    std::string known;
    for (const std::string_view other : words)
      known.append(known.empty() ? "" : ", ").append(other);
    throw UsageError("unknown kind of signature \"" + std::string(word) + "\": use one of " +
                     known);
  }
  return static_cast<Shape>(found - words.begin());
}

std::int64_t Signature::rate() const { return rounded(growth, std::max<std::int64_t>(period, 1)); }

Signature classify(std::span<const std::int64_t> values, std::span<const std::int64_t> peaks,
                   const SignatureOptions& options) {
  if (!peaks.empty() && peaks.size() != values.size()) {
    throw UsageError("a series of " + std::to_string(values.size()) + " values came with " +
                     std::to_string(peaks.size()) + " peaks: give one peak a step, or none");
  }
  if (values.empty()) return {};
  const std::int64_t tolerance = std::clamp<std::int64_t>(options.tolerance, 0, farthest);
  const Levels levels = judged_levels(values, options.warmup);
  const auto first_step = signed_size(base_step(values, options.warmup));

  const auto moved = std::find_if(levels.begin(), levels.end(),
                                  [&](std::int64_t level) { return std::abs(level) > tolerance; });
  if (moved != levels.end()) {
    const auto outside = static_cast<std::size_t>(moved - levels.begin());
    Signature signature = classify_moved(levels, outside, tolerance);
    signature.onset += first_step;
    return signature;
  }
  if (peaks.empty()) return {};
  const Levels tops = judged_levels(peaks, options.warmup);
  const auto higher =
      std::find_if(tops.begin(), tops.end(), [&](std::int64_t top) { return top > tolerance; });
  if (higher == tops.end()) return {};
  return {Shape::peak_only, *std::max_element(higher, tops.end()), signed_size(tops.size() - 1),
          first_step + (higher - tops.begin())};
}

nlohmann::json to_json(const Signature& signature) {
  return {{"kind", to_string(signature.shape)},
          {"rate", signature.rate()},
          {"growth", signature.growth},
          {"period", signature.period},
          {"onset", signature.onset}};
}

}  // namespace leaklab

// What differs between what was expected and what was measured. Pure functions.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "leaklab/baseline.h"
#include "leaklab/judging.h"

namespace leaklab {
namespace {

using Direction = Difference::Direction;

Direction direction(std::int64_t expected, std::int64_t got) {
  if (got == expected) return Direction::other;
  return got > expected ? Direction::more : Direction::less;
}

std::string amount(std::int64_t value, std::string_view unit) {
  return unit == "count" || unit.empty() ? fmt::format("{:+}", value)
                                         : fmt::format("{:+} {}", value, unit);
}

std::string level(std::int64_t value, std::string_view unit) {
  return unit == "count" || unit.empty() ? fmt::format("{}", value)
                                         : fmt::format("{} {}", value, unit);
}

// A tolerant channel may miss the expected growth by its tolerance or by a tenth.
std::int64_t allowed_miss(std::int64_t tolerance, std::int64_t expected) {
  return std::max(tolerance, std::abs(expected) / 10);
}

bool judged(const Series& series) { return series.trusted && series.absent.empty(); }

struct Comparison {
  std::string channel;
  std::string unit;
  std::string source;
  std::vector<Difference>& into;

  void add(const std::string& expected, const std::string& got, const std::string& allowed,
           std::int64_t first_step, Direction to) const {
    into.push_back({channel, unit, source, expected, got, allowed, first_step, to});
  }
};

std::int64_t at(const std::vector<std::int64_t>& values, std::int64_t index) {
  return values[static_cast<std::size_t>(index)];
}

void compare_exact(const Comparison& comparison, const BaselineChannel& expected, const Series& got,
                   std::int64_t warmup) {
  const auto steps = static_cast<std::int64_t>(std::min(expected.values.size(), got.values.size()));
  for (auto step = warmup; step < steps; ++step) {
    const auto want = at(expected.values, step) - at(expected.values, step - 1);
    const auto have = at(got.values, step) - at(got.values, step - 1);
    if (want == have) continue;
    const auto total_want = at(expected.values, steps - 1) - at(expected.values, warmup - 1);
    const auto total_have = at(got.values, steps - 1) - at(got.values, warmup - 1);
    comparison.add(
        fmt::format("{} in step {}, {} over the run", amount(want, comparison.unit), step,
                    amount(total_want, comparison.unit)),
        fmt::format("{}, {} over the run ({} {} per step)", amount(have, comparison.unit),
                    amount(total_have, comparison.unit),
                    level(std::abs(total_have - total_want) / (steps - warmup), comparison.unit),
                    total_have >= total_want ? "more" : "less"),
        "0", step, direction(total_want, total_have));
    return;
  }
  const auto base_want = at(expected.values, warmup - 1);
  const auto base_have = at(got.values, warmup - 1);
  if (base_want != base_have) {
    comparison.add(fmt::format("{} after the warm-up", level(base_want, comparison.unit)),
                   level(base_have, comparison.unit), "0", warmup - 1,
                   direction(base_want, base_have));
    return;
  }
  if (comparison.channel == "peak") return;  // it has no level outside the steps
  if (expected.released != got.released) {
    comparison.add(
        fmt::format("{} after the scope was left", level(expected.released, comparison.unit)),
        level(got.released, comparison.unit), "0", -1, direction(expected.released, got.released));
  } else if (expected.settled != got.settled) {
    comparison.add(
        fmt::format("{} after the caches were emptied", level(expected.settled, comparison.unit)),
        level(got.settled, comparison.unit), "0", -1, direction(expected.settled, got.settled));
  }
}

void compare_growth(const Comparison& comparison, std::int64_t expected, std::int64_t got,
                    std::int64_t tolerance) {
  const auto allowed = allowed_miss(tolerance, expected);
  if (std::abs(got - expected) <= allowed) return;
  comparison.add(fmt::format("{} over the run", amount(expected, comparison.unit)),
                 amount(got, comparison.unit), level(allowed, comparison.unit), -1,
                 direction(expected, got));
}

// Growth steps in [from, to) of a growth that happens once a period in [first, last).
struct Window {
  bool inside = false;
  bool outside = false;
};

Window place(const Growth& growth, std::int64_t from, std::int64_t to) {
  return {from >= growth.first() && to <= growth.last(),
          to <= growth.first() || from >= growth.last()};
}

void compare_prediction(const Comparison& comparison, const Growth& growth, const Series& got,
                        std::int64_t warmup) {
  const auto steps = static_cast<std::int64_t>(got.values.size());
  const auto period = growth.period();
  const auto per_period = growth.per_period(comparison.channel);
  for (auto step = warmup; step + period <= steps; ++step) {
    const auto window = place(growth, step, step + period);
    if (!window.inside && !window.outside) continue;
    const auto want = window.inside ? per_period : 0;
    const auto have = at(got.values, step + period - 1) - at(got.values, step - 1);
    if (want == have) continue;
    const auto every =
        period == 1 ? std::string("per step") : fmt::format("every {} steps", period);
    comparison.add(
        fmt::format("{} {}", amount(want, comparison.unit), every),
        fmt::format("{} ({} too {})", amount(have, comparison.unit),
                    level(std::abs(have - want), comparison.unit), have > want ? "much" : "little"),
        "0", step, direction(want, have));
    return;
  }
}

// Whether a leak is still there after the scope was left, as the scenario says.
void compare_held(const Comparison& comparison, const Growth& growth, const Series& got,
                  std::int64_t gained) {
  const auto held = got.settled - got.start;
  if (growth.outlives() && held < gained) {
    comparison.add(
        fmt::format("at least {} held after the scope was left", level(gained, comparison.unit)),
        level(held, comparison.unit), "0", -1, Direction::less);
  } else if (!growth.outlives() && held >= gained) {
    comparison.add(
        fmt::format("less than {} held after the scope was left", level(gained, comparison.unit)),
        level(held, comparison.unit), "0", -1, Direction::more);
  }
}

}  // namespace

std::string to_string(const Difference& difference) {
  auto text =
      fmt::format("{}: expected {} ({}), got {}, allowed {}", difference.channel,
                  difference.expected, difference.source, difference.got, difference.allowed);
  if (difference.first_step >= 0) text += fmt::format(", from step {}", difference.first_step);
  return text;
}

nlohmann::json to_json(const Difference& difference) {
  static constexpr std::array<const char*, 3> names{"more", "less", "other"};
  return {{"channel", difference.channel},
          {"source", difference.source},
          {"expected", difference.expected},
          {"got", difference.got},
          {"allowed", difference.allowed},
          {"first_step", difference.first_step},
          {"direction", names.at(static_cast<std::size_t>(difference.direction))}};
}

std::vector<Difference> compare(const BaselineTwin& expected, const Recording& got) {
  std::vector<Difference> differences;
  for (const auto& [name, series] : got.channels) {
    if (!series.trusted) continue;
    const Comparison comparison{name, series.unit, "baseline", differences};
    const auto stored = expected.channels.find(name);
    if (stored == expected.channels.end()) {
      comparison.add("not in the baseline", "measured", "0", -1, Direction::other);
    } else if (stored->second.absent.empty() && !series.absent.empty()) {
      comparison.add("measured", fmt::format("absent: {}", series.absent), "0", -1,
                     Direction::other);
    } else if (!stored->second.absent.empty() && series.absent.empty()) {
      comparison.add(fmt::format("absent: {}", stored->second.absent), "measured", "0", -1,
                     Direction::other);
    } else if (stored->second.absent.empty() && stored->second.exact != series.exact) {
      comparison.add(stored->second.exact ? "exact" : "tolerant",
                     series.exact ? "exact" : "tolerant", "0", -1, Direction::other);
    } else if (stored->second.absent.empty() && series.exact) {
      compare_exact(comparison, stored->second, series, got.warmup);
    } else if (stored->second.absent.empty()) {
      compare_growth(comparison, stored->second.growth, growth_of(got, series),
                     tolerance_of(name, series));
    }
  }
  for (const auto& [name, stored] : expected.channels) {
    if (stored.absent.empty() && !got.channels.contains(name)) {
      differences.push_back({name, stored.unit, "baseline", "measured", "not measured any more",
                             "0", -1, Direction::other});
    }
  }
  if (differences.empty() && expected.event_hash != got.event_hash) {
    differences.push_back({"event_hash", "", "baseline", hash_text(expected.event_hash),
                           fmt::format("{} ({} events, {} in the baseline)",
                                       hash_text(got.event_hash), got.events, expected.events),
                           "0", -1, Direction::other});
  }
  return differences;
}

std::vector<Difference> compare(const Growth& expected, const Recording& got) {
  std::vector<Difference> differences;
  for (const auto& [name, series] : got.channels) {
    if (!judged(series) || !expected.predicts(name)) continue;
    const Comparison comparison{name, series.unit, "oracle", differences};
    const auto gained = growth_of(got, series);
    if (series.exact) {
      compare_prediction(comparison, expected, series, got.warmup);
    } else if (expected.amounts().contains(name)) {
      const auto first = std::max(got.warmup, expected.first());
      const auto last = std::min(got.steps, expected.last());
      const auto length = std::max<std::int64_t>(0, last - first);
      const auto per_period = expected.per_period(name);
      auto total = per_period * (length / expected.period());
      // Where the last period is not whole, its rise may lie in the part that was run.
      if (length % expected.period() != 0 &&
          std::abs(gained - total - per_period) < std::abs(gained - total)) {
        total += per_period;
      }
      compare_growth(comparison, total, gained, tolerance_of(name, series));
    } else if (expected.amounts().empty()) {
      // Where nothing leaks, nothing may grow. A leak takes other channels along: reserved, driver.
      const auto periods = (got.steps - got.warmup) / expected.period() * expected.period();
      const auto grown =
          at(series.values, got.warmup + periods - 1) - at(series.values, got.warmup - 1);
      if (grown > 0) compare_growth(comparison, 0, grown, tolerance_of(name, series));
    }
    const bool has_level =
        name == "requested" || name == "live_allocations" || name == "graph_nodes";
    if (has_level && expected.per_period(name) > 0 && gained > 0) {
      compare_held(comparison, expected, series, gained);
    }
  }
  return differences;
}

std::vector<Difference> compare(const Recording& first, const Recording& second) {
  auto differences = compare(baseline_of(first), second);
  for (auto& difference : differences) difference.source = "first run";
  if (!differences.empty()) return differences;
  // What is stored of the warm-up has to be the same as well.
  for (const auto& [name, series] : first.channels) {
    const auto& other = second.channels.at(name);
    if (!series.exact || !series.trusted || !series.absent.empty()) continue;
    const auto differs = std::ranges::mismatch(series.values, other.values);
    if (series.start == other.start && differs.in1 == series.values.end()) continue;
    const auto step = differs.in1 - series.values.begin();
    const bool at_start = series.start != other.start;
    const Comparison comparison{name, series.unit, "first run", differences};
    comparison.add(level(at_start ? series.start : *differs.in1, series.unit),
                   level(at_start ? other.start : *differs.in2, series.unit), "0",
                   at_start ? -1 : step, Direction::other);
  }
  return differences;
}

}  // namespace leaklab

// The rules by which a place leaks.
//
// A place is a stack and a size, or a stack alone where its sizes vary. It leaks if it leaves
// something behind in three steps or more, all of it older than anything that the same place ever
// freed, if that goes on to the end of the trace and has not slowed down. So
//
//   what is allocated once (gradients, an optimizer's state, a workspace) is no leak: one step;
//   what lives until the next batch, or until a window, a phase or an epoch ends, is none: what is
//     live at the dump is no older than what was freed earlier;
//   a buffer that throws the oldest out is none once it is full: the same;
//   a cache that has seen all shapes is none: it has stopped;
//   a list that is never cleared is one, whatever the steps between its entries, if these are
//     regular, or if the place usually frees what it allocates.
#include "growth.h"

#include <algorithm>
#include <unordered_map>

namespace leaklab {
namespace {

struct Key {
  StackId stack = 0;
  std::int64_t size = 0;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    auto hash = (std::uint64_t{key.stack} + 1) * 0x9e3779b97f4a7c15u +
                static_cast<std::uint64_t>(key.size);
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 29);
  }
};

struct SizeUse {
  std::int64_t last_step = -2;
  std::int64_t steps = 0;  // distinct ones
  std::int64_t births = 0;
  std::uint32_t group = HashIndex::none;
};

// Which group each allocation belongs to.
class Grouping {
 public:
  Grouping(std::span<const TraceEvent> trace, const Lifetimes& lifetimes, const Steps& steps)
      : trace_(trace) {
    std::size_t stacks = 0;
    for (const auto& allocation : lifetimes.allocations) {
      const auto& event = trace[allocation.born];
      stacks = std::max<std::size_t>(stacks, event.stack + 1);
      const auto step = steps.of(allocation.born);
      auto& use = uses_[{event.stack, event.size}];
      if (step >= 0 && use.last_step != step) {
        use.last_step = step;
        ++use.steps;
      }
      ++use.births;
    }
    births_.resize(stacks);
    recurring_.resize(stacks);
    varying_.resize(stacks, HashIndex::none);
    for (const auto& [key, use] : uses_) {
      births_[key.stack] += use.births;
      if (use.steps >= 3) recurring_[key.stack] += use.births;
    }
  }

  // The row in `groups` of what that event allocates.
  std::uint32_t of(const TraceEvent& event, std::vector<Group>& groups) {
    auto& use = uses_.find({event.stack, event.size})->second;
    // Sizes that come again by chance don't make a place one of fixed sizes.
    const bool fixed =
        use.steps >= 3 && recurring_[event.stack] * 10 >= births_[event.stack] * 7;
    auto& row = fixed ? use.group : varying_[event.stack];
    if (row == HashIndex::none) {
      row = static_cast<std::uint32_t>(groups.size());
      groups.push_back({});
      groups.back().stack = event.stack;
      groups.back().size = fixed ? event.size : -1;
    }
    return row;
  }

  // The row of a block born before the trace, or none.
  std::uint32_t of(const Unborn& block) const {
    const auto use = uses_.find({block.stack, block.requested});
    if (use != uses_.end() && use->second.group != HashIndex::none) return use->second.group;
    return block.stack < varying_.size() ? varying_[block.stack] : HashIndex::none;
  }

 private:
  std::span<const TraceEvent> trace_;
  std::unordered_map<Key, SizeUse, KeyHash> uses_;
  std::vector<std::int64_t> births_;     // by stack
  std::vector<std::int64_t> recurring_;  // of these, of sizes that come in several steps
  std::vector<std::uint32_t> varying_;   // by stack, the row of its other sizes
};

void add(std::vector<Left>& series, std::int64_t step, std::int64_t bytes) {
  if (series.empty() || series.back().step != step) series.push_back({step, 0, 0});
  series.back().bytes += bytes;
  ++series.back().count;
}

// Whether one tensor of the place is replaced by a larger one in each step, up to the end.
bool replaced_by_larger(const Group& group, std::int64_t steps) {
  constexpr std::int64_t least = 6;
  const auto& held = group.held;
  const auto count = static_cast<std::int64_t>(held.size());
  if (group.size != -1 || group.longest_life < 0 || group.longest_life > 2 || count < least) {
    return false;
  }
  if (held.back().step < steps - 2) return false;
  // From the end backwards as long as it holds.
  std::int64_t rising = 1;
  for (auto at = held.size() - 1; at > 0; --at) {
    const auto& now = held[at];
    const auto& before = held[at - 1];
    if (now.step != before.step + 1 || now.count != before.count || now.bytes <= before.bytes) break;
    ++rising;
  }
  return rising >= std::max(least, steps * 2 / 3);
}

std::vector<std::int64_t> gaps_of(const std::vector<Left>& left) {
  std::vector<std::int64_t> gaps;
  for (std::size_t at = 1; at < left.size(); ++at) gaps.push_back(left[at].step - left[at - 1].step);
  std::ranges::sort(gaps);
  return gaps;
}

// Whether all of it lies in a phase at the end whose kind of step came in no earlier phase.
bool only_in_last_phase(const std::vector<Left>& left, const Steps& steps) {
  const auto kind = steps.kind[static_cast<std::size_t>(left.front().step)];
  auto first = static_cast<std::int64_t>(steps.kind.size());
  while (first > 0 && steps.kind[static_cast<std::size_t>(first - 1)] == kind) --first;
  if (first == 0 || left.front().step < first || left.front().step > first + 1) return false;
  const auto phase = steps.count() - first;
  const bool came_before = std::any_of(steps.kind.begin(), steps.kind.begin() + first,
                                       [&](auto each) { return each == kind; });
  return !came_before && phase <= first;
}

}  // namespace

std::vector<Group> groups(std::span<const TraceEvent> trace, const Lifetimes& lifetimes,
                          const Steps& steps) {
  Grouping grouping(trace, lifetimes, steps);
  std::vector<Group> found;
  const auto count = steps.count();
  for (const auto& allocation : lifetimes.allocations) {
    const auto& event = trace[allocation.born];
    auto& group = found[grouping.of(event, found)];
    const auto born = steps.of(allocation.born);
    const bool live = allocation.freed == no_event;
    if (born < 0) {
      if (live) {
        group.early_bytes += event.size;
        ++group.early_count;
      }
      continue;
    }
    if (born >= count) continue;
    ++group.births;
    if (live) {
      if (group.left.empty()) group.first_size = event.size;
      group.last_size = event.size;
      group.pool = event.pool;
      add(group.left, born, event.size);
      add(group.held, born, event.size);
      continue;
    }
    const auto freed = steps.of(allocation.freed);
    ++group.freed;
    group.longest_life = std::max(group.longest_life, freed - born);
    if (freed > born) add(group.held, born, event.size);
  }
  for (const auto& block : lifetimes.unborn) {
    const auto row = grouping.of(block);
    if (row == HashIndex::none || block.stack == 0) continue;
    found[row].unborn_bytes += block.requested;
    ++found[row].unborn_count;
  }
  return found;
}

Judged judge(const Group& group, const Steps& steps, const Sites& sites) {
  Judged judged;
  const auto count = steps.count();
  if (count == 0) return judged;
  const auto& stack = sites.stack(group.stack);
  judged.trusted = std::clamp<std::int64_t>(count - 1 - group.longest_life, 0, count);
  if (replaced_by_larger(group, count)) {
    judged.judgement = Judgement::replaced;
    for (std::size_t at = 1; at < group.held.size(); ++at) {
      judged.growth.push_back({group.held[at].step,
                               std::max<std::int64_t>(0, group.held[at].bytes -
                                                             group.held[at - 1].bytes),
                               0});
    }
    judged.onset = group.held.front().step;
    judged.trusted = count;
    judged.times = static_cast<std::int64_t>(judged.growth.size());
    return judged;
  }
  auto left = group.left;
  if (left.empty()) {
    if (group.longest_life >= 2) judged.judgement = Judgement::bounded;
    return judged;
  }
  // One optimizer and one model are in use: the first one is left behind when the second comes.
  const bool one_in_use = stack.optimizer || stack.loads_model;
  auto times = std::ranges::count_if(
      left, [&](const Left& each) { return each.step < judged.trusted; });
  if (one_in_use) {
    if (group.early_count > 0 || group.unborn_count > 0) {
      times += times > 0 ? 1 : 0;
    } else {
      left.erase(left.begin());
    }
    if (left.empty()) return judged;
  }
  judged.growth = left;
  judged.onset = left.front().step;
  judged.times = times;
  const auto gaps = gaps_of(left);
  const auto longest = gaps.empty() ? 1 : gaps.back();
  const auto median = gaps.empty() ? 1 : gaps[gaps.size() / 2];
  const auto quiet = count - 1 - left.back().step;
  const bool goes_on = quiet <= std::max<std::int64_t>(longest, 1);
  if (group.longest_life >= 2 && times == 0) {
    judged.judgement = Judgement::bounded;
    return judged;
  }
  const bool usually_frees = group.freed >= 3 * static_cast<std::int64_t>(left.size());
  if (times < 3) {
    // Twice, the same distance apart, by a place that never frees: too few to tell.
    const bool twice = times == 2 && left.size() == 2 && goes_on && group.freed == 0 &&
                       left.front().step > 0 && left[0].bytes == left[1].bytes &&
                       (longest >= 3 || count < 6);
    judged.judgement = twice ? Judgement::suspect : Judgement::none;
    return judged;
  }
  if (!goes_on) {
    judged.judgement = Judgement::stopped;
    return judged;
  }
  const auto middle = (left.front().step + count) / 2;
  const auto late = std::ranges::count_if(
      left, [&](const Left& each) { return each.step >= middle; });
  if (late * 3 < static_cast<std::int64_t>(left.size())) {
    judged.judgement = Judgement::stopped;
    return judged;
  }
  const bool regular = longest <= 2 * median;
  const bool many = left.size() >= 5 && longest * 3 <= count;
  if (!regular && !many && !usually_frees) {
    judged.judgement = Judgement::suspect;
    return judged;
  }
  judged.judgement =
      only_in_last_phase(left, steps) ? Judgement::one_phase : Judgement::leak;
  return judged;
}

Rate rate_of(const std::vector<std::int64_t>& added) {
  Rate rate;
  const auto count = added.size();
  if (count == 0) return rate;
  constexpr std::size_t longest_period = 4096;
  // The first steps may leave something once besides.
  for (std::size_t skipped = 0; skipped <= 2 && skipped + 2 <= count; ++skipped) {
    const auto most = std::min(longest_period, (count - skipped) / 2);
    for (std::size_t period = 1; period <= most; ++period) {
      bool repeats = true;
      std::int64_t total = 0;
      for (auto at = skipped; at + period < count && repeats; ++at) {
        repeats = added[at] == added[at + period];
      }
      if (!repeats) continue;
      for (auto at = skipped; at < skipped + period; ++at) total += added[at];
      rate.period = static_cast<std::int64_t>(period);
      rate.bytes_per_step = static_cast<double>(total) / static_cast<double>(period);
      return rate;
    }
  }
  // Whole intervals between the first and the last addition.
  std::size_t last = count - 1;
  while (last > 0 && added[last] == 0) --last;
  std::int64_t total = 0;
  for (std::size_t at = 0; at < count; ++at) total += added[at];
  if (last > 0 && last + 1 < count) {
    rate.bytes_per_step = static_cast<double>(total - added[last]) / static_cast<double>(last);
  } else {
    rate.bytes_per_step = static_cast<double>(total) / static_cast<double>(count);
  }
  return rate;
}

}  // namespace leaklab

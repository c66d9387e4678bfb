// The rules by which a place leaks.
//
// A place is a stack and a size, or a stack alone where its sizes vary. It leaks if it leaves
// something behind in three steps or more, all of it older than anything that the same place ever
// freed, if that goes on to the end of the trace and has not slowed down. So
//
//   what is allocated once (gradients, an optimizer's state, a workspace) is no leak: one step;
//   what lives until the next batch, or until a window, a phase or an epoch ends, is none: what is
//     live at the dump is no older than what was freed earlier;
//   a buffer that throws the oldest out is none once it is full: the same, but for a queue that
//   grows
//     all the while although things are taken away;
//   a cache that has seen all shapes is none: it has stopped;
//   a list that is never cleared is one, whatever the steps between its entries, if these are
//     regular, or if the place usually frees what it allocates.
#include "growth.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace leaklab {
namespace {

struct Key {
  StackId stack = 0;
  std::int64_t size = 0;
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    auto hash =
        (std::uint64_t{key.stack} + 1) * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(key.size);
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 29);
  }
};

struct SizeUse {
  std::int64_t last_step = -2;
  std::int64_t steps = 0;  // distinct ones
  std::int64_t births = 0;
  bool left = false;  // something of it is live at the dump
  std::uint32_t group = HashIndex::none;
};

// To the last step of the series, or as a later one.
void add(std::vector<Left>& series, const Left& left) {
  if (series.empty() || series.back().step != left.step) series.push_back({left.step, 0, 0});
  series.back().bytes += left.bytes;
  series.back().count += left.count;
}

// Of several groups one, whose series are to be summed.
void join(Group& into, Group&& group) {
  if (!group.left.empty()) {
    const bool none = into.left.empty();
    if (none || group.first_left < into.first_left) {
      into.first_left = group.first_left;
      into.first_size = group.first_size;
    }
    if (none || group.last_left > into.last_left) {
      into.last_left = group.last_left;
      into.last_size = group.last_size;
    }
  }
  into.size = -1;
  into.left.insert(into.left.end(), group.left.begin(), group.left.end());
  into.held.insert(into.held.end(), group.held.begin(), group.held.end());
  into.dropped.insert(into.dropped.end(), group.dropped.begin(), group.dropped.end());
  into.removed.insert(into.removed.end(), group.removed.begin(), group.removed.end());
  if (into.first_drop < 0 || (group.first_drop >= 0 && group.first_drop < into.first_drop)) {
    into.first_drop = group.first_drop;
  }
  into.births += group.births;
  into.freed += group.freed;
  into.longest_life = std::max(into.longest_life, group.longest_life);
  into.sizes += group.sizes;
  into.early_bytes += group.early_bytes;
  into.early_count += group.early_count;
  into.unborn_bytes += group.unborn_bytes;
  into.unborn_count += group.unborn_count;
}

void sum(Group& group) {
  group.left = summed(std::move(group.left));
  group.held = summed(std::move(group.held));
  group.dropped = summed(std::move(group.dropped));
}

// Which group each allocation belongs to.
class Grouping {
 public:
  Grouping(const Trace& trace, const Lifetimes& lifetimes, const Steps& steps) {
    for (const auto& allocation : lifetimes.allocations) {
      const auto event = trace[allocation.born];
      const auto step = steps.of(allocation.born);
      auto& use = uses_[{event.stack, event.size}];
      if (step >= 0 && use.last_step != step) {
        use.last_step = step;
        ++use.steps;
      }
      ++use.births;
    }
    form();
  }

  // The groups with what was put into them; those of one line that keep all they get are one.
  std::vector<Group> finished();
  Group& of(const TraceEvent& event) {
    return groups_[uses_.find({event.stack, event.size})->second.group];
  }
  // An allocation of a whole step that is live at the dump.
  void add_left(const TraceEvent& event, EventIndex born, std::int64_t step) {
    auto& use = uses_.find({event.stack, event.size})->second;
    auto& group = groups_[use.group];
    if (!std::exchange(use.left, true)) ++group.sizes;
    if (group.left.empty()) {
      group.first_size = event.size;
      group.first_left = born;
    }
    group.last_size = event.size;
    group.last_left = born;
    group.pool = event.pool;
    add(group.left, {step, event.size, 1});
    add(group.held, {step, event.size, 1});
  }
  // Of that size, so many were born before the trace and freed in whole steps, the first and the
  // last of them in these: where they are about as many as are left since, they tell how long such
  // things live.
  void add_freed_before(std::int64_t size, std::int64_t count, std::int64_t first_step,
                        std::int64_t last_step) {
    const auto& of_size = by_size_[size];
    std::int64_t left = 0;
    for (const auto row : of_size) {
      if (groups_[row].left.size() < 3) continue;  // what a variable holds
      for (const auto& each : groups_[row].left) left += each.step >= first_step ? each.count : 0;
    }
    if (left == 0 || count * 10 < left * 8) return;
    for (const auto row : of_size) {
      groups_[row].freed += count;
      groups_[row].longest_life = std::max(groups_[row].longest_life, last_step + 1);
    }
  }
  // Of a block born before the trace; nullptr: of no group.
  Group* of(const Unborn& block) {
    const auto use = uses_.find({block.stack, block.requested});
    return use == uses_.end() ? nullptr : &groups_[use->second.group];
  }

 private:
  void form();
  void join_rare();
  void share_lives();

  std::unordered_map<Key, SizeUse, KeyHash> uses_;
  std::vector<Group> groups_;
  std::map<std::int64_t, std::vector<std::uint32_t>> by_size_;  // groups of one size each
  std::vector<std::uint32_t> nearby_;  // by group: the first one of those of sizes nearby
};

// Sizes that come in several steps are groups by themselves, unless they come again by chance among
// many others. Of the others, those nearby are one group: a matrix product's workspace is no larger
// output of the same line.
void Grouping::form() {
  constexpr std::int64_t nearby = 16;
  std::vector<std::pair<Key, SizeUse*>> order;
  order.reserve(uses_.size());
  for (auto& [key, use] : uses_) order.emplace_back(key, &use);
  std::ranges::sort(order, [](const auto& left, const auto& right) {
    return std::pair(left.first.stack, left.first.size) <
           std::pair(right.first.stack, right.first.size);
  });
  for (std::size_t from = 0; from < order.size();) {
    auto to = from;
    std::int64_t births = 0;
    std::int64_t recurring = 0;
    do {
      births += order[to].second->births;
      if (order[to].second->steps >= 3) recurring += order[to].second->births;
      const auto size = order[to].first.size;
      ++to;
      if (to == order.size() || order[to].first.stack != order[from].first.stack ||
          order[to].first.size > std::max<std::int64_t>(size, 1) * nearby) {
        break;
      }
    } while (true);
    auto shared = HashIndex::none;
    const auto first = static_cast<std::uint32_t>(groups_.size());
    for (; from < to; ++from) {
      const auto& [key, use] = order[from];
      const bool fixed = use->steps >= 3 && recurring * 10 >= births * 7;
      auto row = fixed ? HashIndex::none : shared;
      if (row == HashIndex::none) {
        row = static_cast<std::uint32_t>(groups_.size());
        groups_.push_back({});
        nearby_.push_back(first);
        groups_.back().stack = key.stack;
        groups_.back().size = fixed ? key.size : -1;
        if (fixed) by_size_[key.size].push_back(row);
      }
      if (!fixed) shared = row;
      use->group = row;
    }
  }
}

// Sizes of one line of which most leave something too seldom to tell by themselves, though the line
// frees most of what it allocates, are one group. What the first step alone leaves is made once.
void Grouping::join_rare() {
  for (std::size_t from = 0; from < groups_.size();) {
    auto to = from;
    std::int64_t few = 0;
    std::size_t telling = 0;  // steps in which those that tell by themselves leave something
    std::size_t all = 0;
    for (; to < groups_.size() && nearby_[to] == nearby_[from]; ++to) {
      const auto& group = groups_[to];
      if (group.freed == 0) continue;
      telling += group.left.size() >= 3 ? group.left.size() : 0;
      all += group.left.size();
      few += group.left.empty() ? 0 : 1;
    }
    const bool joins = groups_[from].stack != 0 && few >= 3 && telling * 2 < all;
    Group* into = nullptr;
    for (; from < to; ++from) {
      const auto& group = groups_[from];
      const bool made_once = group.left.empty() || group.left.back().step == 0;
      if (!joins || (group.freed == 0 && made_once)) continue;
      if (into == nullptr) {
        into = &groups_[from];
      } else {
        join(*into, std::exchange(groups_[from], {}));
      }
    }
    if (into != nullptr) sum(*into);
  }
}

// What a line holds of one size for long it holds of its others as long: a buffer of batches that
// are seldom large.
void Grouping::share_lives() {
  for (std::size_t from = 0; from < groups_.size();) {
    auto to = from;
    std::int64_t longest = 0;
    for (; to < groups_.size() && groups_[to].stack == groups_[from].stack; ++to) {
      longest = std::max(longest, groups_[to].longest_life);
    }
    for (; from < to; ++from) {
      auto& group = groups_[from];
      if (longest >= 3 && group.stack != 0) group.longest_life = longest;
    }
  }
}

std::vector<Group> Grouping::finished() {
  join_rare();
  share_lives();
  std::vector<Group> found;
  auto first = HashIndex::none;
  auto keeper = HashIndex::none;  // in `found`, of the groups from `first` on
  std::vector<bool> joined;       // by group found: whether it is of several
  for (std::size_t row = 0; row < groups_.size(); ++row) {
    auto& group = groups_[row];
    if (nearby_[row] != std::exchange(first, nearby_[row])) keeper = HashIndex::none;
    // Without frames, sizes that come again are of lines of their own.
    const bool of_a_line = group.stack != 0 || group.size < 0;
    const bool keeps = of_a_line && group.freed == 0 && !group.left.empty();
    if (keeps && keeper != HashIndex::none) {
      join(found[keeper], std::move(group));
      joined[keeper] = true;
      continue;
    }
    if (keeps) keeper = static_cast<std::uint32_t>(found.size());
    found.push_back(std::move(group));
    joined.push_back(false);
  }
  for (std::size_t at = 0; at < found.size(); ++at) {
    if (joined[at]) sum(found[at]);
  }
  return found;
}

// By kind of step, whether steps of it leave something.
std::array<bool, 256> own_kinds(const std::vector<Left>& left, const Steps& steps) {
  std::array<bool, 256> own{};
  for (const auto& each : left) own[steps.kind[static_cast<std::size_t>(each.step)]] = true;
  return own;
}

// The steps of the kinds that leave something, or hold it, in these.
std::vector<std::int64_t> steps_of_own_kinds(const std::vector<Left>& series, const Steps& steps) {
  const auto own = own_kinds(series, steps);
  std::vector<std::int64_t> found;
  for (std::int64_t step = 0; step < steps.count(); ++step) {
    if (own[steps.kind[static_cast<std::size_t>(step)]]) found.push_back(step);
  }
  return found;
}

// In how many steps, up to the last one of its kinds, one tensor of the place was replaced by a
// larger one; 0 where that is not what the place does. What an evaluation comes between lives the
// longer for it.
std::int64_t replaced_by_larger(const Group& group, const Steps& steps) {
  const auto& held = group.held;
  if (group.size != -1 || group.longest_life < 0 || held.size() < 3 || group.left.size() > 2) {
    return 0;
  }
  const auto own = steps_of_own_kinds(held, steps);
  const auto place = [&](const Left& each) {
    return std::ranges::lower_bound(own, each.step) - own.begin();
  };
  if (place(held.back()) < std::ssize(own) - 2) return 0;
  // From the end backwards as long as it holds.
  std::int64_t rising = 1;
  std::int64_t longest = 1;  // from one of its steps to the next
  for (auto at = held.size() - 1; at > 0; --at) {
    const auto& now = held[at];
    const auto& before = held[at - 1];
    if (place(now) != place(before) + 1 || now.count != before.count || now.bytes <= before.bytes) {
      break;
    }
    longest = std::max(longest, now.step - before.step);
    ++rising;
  }
  if (group.longest_life > longest + 1) return 0;
  return rising >= std::max<std::int64_t>(3, std::ssize(own) * 2 / 3) ? rising : 0;
}

// Steps from one to the next, sorted.
struct Gaps {
  explicit Gaps(std::vector<std::int64_t> gaps) {
    std::ranges::sort(gaps);
    if (gaps.empty()) return;
    shortest = gaps.front();
    longest = gaps.back();
    median = gaps[gaps.size() / 2];
  }
  bool regular() const { return longest <= 2 * median; }
  std::int64_t shortest = 1;
  std::int64_t longest = 1;
  std::int64_t median = 1;
};

Gaps gaps_of(const std::vector<Left>& left) {
  std::vector<std::int64_t> gaps;
  for (std::size_t at = 1; at < left.size(); ++at) {
    gaps.push_back(left[at].step - left[at - 1].step);
  }
  return Gaps(std::move(gaps));
}

// The same, counting only steps of the kinds that leave something: those of an evaluation follow
// each other, whatever is trained in between.
Gaps gaps_among_own_kinds(const std::vector<Left>& left, const Steps& steps) {
  const auto own = own_kinds(left, steps);
  std::vector<std::int64_t> gaps(left.size() - 1);
  for (std::size_t kind = 0; kind < steps.steps_of_kind.size(); ++kind) {
    if (!own[kind]) continue;
    const auto& of_kind = steps.steps_of_kind[kind];
    for (std::size_t at = 1; at < left.size(); ++at) {
      gaps[at - 1] += std::ranges::lower_bound(of_kind, left[at].step) -
                      std::ranges::lower_bound(of_kind, left[at - 1].step);
    }
  }
  return Gaps(std::move(gaps));
}

// How a place's steps end.
struct Ending {
  std::int64_t end = 0;           // the step from which on only an evaluation comes, for once
  std::int64_t quiet_own = 0;     // steps of its kinds after the last one that leaves something
  std::int64_t quiet_others = 0;  // of other kinds, as far as they tell
  bool others_are_fewer = false;  // and nothing tells a preparation from what it prepares
};

// An evaluation at the end says nothing of what training leaves, nor does what is short or came
// before as well.
Ending ending(const std::vector<Left>& left, const Steps& steps) {
  const auto count = steps.count();
  const auto last = left.back().step;
  const auto own = own_kinds(left, steps);
  std::int64_t last_own = 0;
  std::int64_t of_own = 0;
  bool own_trains = false;
  for (std::size_t kind = 0; kind < steps.steps_of_kind.size(); ++kind) {
    if (!own[kind]) continue;
    const auto& of_kind = steps.steps_of_kind[kind];
    last_own = std::max(last_own, of_kind.back());
    of_own += std::ssize(of_kind);
    own_trains = own_trains || steps.trains[kind];
  }
  Ending found;
  found.end = last_own + 1;
  for (std::size_t kind = 0; kind < steps.steps_of_kind.size(); ++kind) {
    const auto& of_kind = steps.steps_of_kind[kind];
    const auto after = of_kind.end() - std::ranges::upper_bound(of_kind, last);
    const bool before = of_kind.front() < last;
    if (!own[kind]) {
      const auto size = std::ssize(of_kind);
      const bool tells = !before && size * 10 > count && (!own_trains || steps.trains[kind]);
      if ((before || tells) && of_kind.back() > last_own) found.end = count;
      if (!tells) continue;
      found.quiet_others += after;
      found.others_are_fewer = !own_trains && !steps.trains[kind] && size < of_own;
    } else {
      found.quiet_own += after;
    }
  }
  return found;
}

// The least number of steps by which what is added in those from `begin` to before `end` can be
// shifted onto itself, up to half of them; 0: none. By the prefix function of Knuth, Morris and
// Pratt, "Fast pattern matching in strings", 1977, over the steps that add something, each with the
// steps since the one before: linear in their number.
std::int64_t shortest_period(std::span<const Left> added, std::int64_t begin, std::int64_t end) {
  if (added.empty()) return 0;
  const auto gap = [&](std::size_t at) { return added[at].step - added[at - 1].step; };
  const auto same = [&](std::size_t left, std::size_t right) {
    return gap(left) == gap(right) && added[left].bytes == added[right].bytes;
  };
  // Of added[1] and later, since nothing is known of the time before the first one.
  std::vector<std::size_t> border(added.size());
  for (std::size_t at = 2; at < added.size(); ++at) {
    auto length = border[at - 1];
    while (length > 0 && !same(at, length + 1)) length = border[length];
    border[at] = same(at, length + 1) ? length + 1 : 0;
  }
  const auto before = added.front().step - begin;
  for (auto length = border.back();; length = border[length]) {
    const auto shift = added.size() - 1 - length;
    if (shift > 0) {
      const auto period = added[shift].step - added.front().step;
      // No step before the first one, and none after the last one, may lack what its copy has.
      if (added[shift].bytes == added.front().bytes && before < gap(shift) &&
          added[length + 1].step + period >= end) {
        return period * 2 <= end - begin ? period : 0;
      }
    }
    if (length == 0) return 0;
  }
}

// What came in addition to the tensors that each step replaces by as many or more, up to the end;
// empty where that is not what the place does.
std::vector<Left> multiplied(const Group& group, std::int64_t steps) {
  const auto& held = group.held;
  if (group.size < 0 || group.longest_life < 1 || group.longest_life > 2 ||
      std::ssize(held) * 3 < steps * 2 || held.back().step < steps - 2) {
    return {};
  }
  std::vector<Left> more{held.front()};
  for (std::size_t at = 1; at < held.size(); ++at) {
    const auto count = held[at].count - held[at - 1].count;
    if (count < 0) return {};
    if (count > 0) more.push_back({held[at].step, count * group.size, count});
  }
  if (more.size() < 4) return {};
  const auto gaps = gaps_of(more);
  const bool goes_on = steps - more.back().step <= gaps.longest + 1;
  return goes_on && gaps.regular() ? more : std::vector<Left>{};
}

// What a queue grows by that is filled faster than it is emptied: what each step adds to the least
// that it holds from then on. Empty where that is not what the place does: where not each quarter
// of the steps since the first free takes something away, or the least that they hold does not grow
// evenly.
std::vector<Left> outrun(const Group& group, std::int64_t steps) {
  constexpr std::int64_t parts = 4;
  const auto from = group.first_drop;
  if (from < 0 || from >= steps) return {};
  std::vector<Left> held(static_cast<std::size_t>(steps));
  for (const auto* in : {&group.left, &group.dropped}) {
    for (const auto& each : *in) {
      held[static_cast<std::size_t>(each.step)].bytes += each.bytes;
      held[static_cast<std::size_t>(each.step)].count += each.count;
    }
  }
  std::array<bool, parts> takes{};
  for (const auto& each : group.removed) {
    if (each.step >= steps) continue;
    takes[static_cast<std::size_t>((each.step - from) * parts / (steps - from))] = true;
    held[static_cast<std::size_t>(each.step)].bytes -= each.bytes;
    held[static_cast<std::size_t>(each.step)].count -= each.count;
  }
  std::vector<std::int64_t> levels;  // since the first free
  for (std::size_t at = 0; at < held.size(); ++at) {
    held[at].step = static_cast<std::int64_t>(at);
    if (at > 0) {
      held[at].bytes += held[at - 1].bytes;
      held[at].count += held[at - 1].count;
    }
    if (held[at].step >= from) levels.push_back(held[at].bytes);
  }
  if (std::ranges::find(takes, false) != takes.end() || !rises_evenly(levels)) return {};
  for (auto at = held.size() - 1; at-- > 0;) {
    held[at].bytes = std::min(held[at].bytes, held[at + 1].bytes);
    held[at].count = std::min(held[at].count, held[at + 1].count);
  }
  std::vector<Left> growth;
  Left before;
  for (const auto& each : held) {
    if (each.bytes > before.bytes) {
      growth.push_back({each.step, each.bytes - before.bytes, each.count - before.count});
    }
    before = each;
  }
  return growth;
}

// How many of the steps before `end` that leave something follow each other from the first one on.
std::int64_t in_a_row(const std::vector<Left>& left, std::int64_t end) {
  std::int64_t row = 0;
  for (const auto& each : left) {
    if (each.step >= end || each.step != left.front().step + row) break;
    ++row;
  }
  return row;
}

// The bytes that most of the steps leave; the fewer ones of several.
std::int64_t usual_bytes(const std::vector<Left>& left) {
  std::map<std::int64_t, std::int64_t> steps;
  for (const auto& each : left) ++steps[each.bytes];
  return std::ranges::max_element(steps, {}, [](const auto& each) { return each.second; })->first;
}

// Of what has no frames, and so comes from no single place, what a leak would leave: no more than
// twice the usual, since more are copies that other places made once. Empty where what steps before
// `trusted` left differs too much, or comes too seldom, to be of one place.
std::vector<Left> of_one_place(std::vector<Left> left, std::int64_t trusted, std::int64_t count) {
  auto certain = left;
  std::erase_if(certain, [&](const Left& each) { return each.step >= trusted; });
  const auto usual = usual_bytes(certain);
  const auto times = std::ssize(certain);
  const auto as_usual =
      std::ranges::count_if(certain, [&](const Left& each) { return each.bytes == usual; });
  const bool often = times >= 5 || times * 2 >= count;
  const auto gaps = gaps_of(certain);
  const bool even = as_usual == times && gaps.longest - gaps.shortest <= 1;
  if (!even && (!often || as_usual * 2 < times)) return {};
  for (auto& each : left) {
    if (each.bytes > 2 * usual) each = {each.step, usual, each.count * usual / each.bytes};
  }
  return left;
}

// Of what has no frames, and any size: what the first step leaves far more of than any other is
// made once besides, such as an optimizer's state.
void drop_first_time(std::vector<Left>& left) {
  const std::vector<Left> others(left.begin() + 1, left.end());
  const auto most = std::ranges::max(others, {}, &Left::bytes);
  auto& first = left.front();
  if (first.bytes > 4 * most.bytes) {
    first = {first.step, most.bytes, std::min(first.count, most.count)};
  }
}

// Whether all of it lies in a phase at the end whose kind of step came in no earlier phase, as far
// as the trace tells: one that is longer than all before it is what the program is about.
bool only_in_last_phase(const std::vector<Left>& left, const Steps& steps) {
  const auto first = steps.last_phase();
  if (first == 0 || left.front().step < first || left.front().step > first + 1) return false;
  const auto& of_kind = steps.steps_of_kind[steps.kind.back()];
  return of_kind.front() == first && steps.count() - first <= first + steps.before;
}

// Whether the place kept what most of its steps allocate as long as these steps came, and freed
// none of it before they were over: a list that the program drops when its loop ends. An evaluation
// beside a training does so rightly, and so does what is searched for before a longer training.
bool is_ended(const Group& group, const Steps& steps) {
  constexpr std::size_t least = 4;
  if (group.dropped.size() < least) return false;
  auto kept = group.left;
  kept.insert(kept.end(), group.dropped.begin(), group.dropped.end());
  kept = summed(std::move(kept));
  const auto own = own_kinds(kept, steps);
  std::int64_t of_own = 0;
  std::int64_t last_own = 0;
  bool own_trains = false;
  bool other_trains = false;
  for (std::size_t kind = 0; kind < steps.steps_of_kind.size(); ++kind) {
    (own[kind] ? own_trains : other_trains) |= steps.trains[kind];
    if (!own[kind]) continue;
    of_own += std::ssize(steps.steps_of_kind[kind]);
    last_own = std::max(last_own, steps.steps_of_kind[kind].back());
  }
  const bool prepares = other_trains && steps.count() - 1 - last_own > of_own;
  return (own_trains || !other_trains) && !prepares && group.first_drop >= last_own &&
         std::ssize(kept) * 3 >= of_own * 2;
}

// Frees at one place in one step: of things that lived for steps, and of things from before the
// trace. Without a stack, a place is a size.
struct Drop {
  std::int64_t own = 0;
  std::int64_t unknown = 0;
  std::int64_t first = 0;  // step in which the first of its own was born; -1: before whole steps
};

class Drops {
 public:
  Drops(const Trace& trace, const Lifetimes& lifetimes, const Steps& steps) : trace_(trace) {
    for (const auto at : lifetimes.unknown_frees) {
      const auto step = steps.of(at);
      if (step >= 0 && step < steps.count()) ++drops_[key(step, at)].unknown;
    }
    if (drops_.empty()) return;
    for (const auto& each : lifetimes.allocations) {
      if (each.freed >= trace.size()) continue;
      const auto found = drops_.find(key(steps.of(each.freed), each.freed));
      if (found == drops_.end()) continue;
      auto& drop = found->second;
      const auto born = steps.of(each.born);
      drop.first = drop.own == 0 ? born : std::min(drop.first, born);
      ++drop.own;
    }
  }
  // How many steps the oldest had lived of what is freed with a thing that was born in the step
  // `born`: what was born before the trace came as often as what came in it.
  std::int64_t life(std::int64_t born, std::int64_t step, EventIndex freed) const {
    constexpr std::int64_t least =
        3;  // what a step holds, and the one after it, comes too unevenly
    if (step - born < least || freed >= trace_.size()) return 0;
    const auto found = drops_.find(key(step, freed));
    if (found == drops_.end()) return 0;
    const auto& [own, unknown, first] = found->second;
    const auto seen = step - first;
    return seen + (unknown * (seen + 1) + own - 1) / own;
  }

 private:
  std::tuple<std::int64_t, StackId, std::int64_t> key(std::int64_t step, EventIndex at) const {
    const auto event = trace_[at];
    return {step, event.stack, event.stack == 0 ? event.size : 0};
  }

  const Trace& trace_;
  std::map<std::tuple<std::int64_t, StackId, std::int64_t>, Drop> drops_;
};

}  // namespace

std::vector<Group> groups(const Trace& trace, const Lifetimes& lifetimes, const Steps& steps,
                          bool framed) {
  Grouping grouping(trace, lifetimes, steps);
  const Drops drops(trace, lifetimes, steps);
  const auto count = steps.count();
  for (const auto& allocation : lifetimes.allocations) {
    const auto event = trace[allocation.born];
    auto& group = grouping.of(event);
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
      grouping.add_left(event, allocation.born, born);
      continue;
    }
    const auto freed = steps.of(allocation.freed);
    ++group.freed;
    group.longest_life =
        std::max({group.longest_life, freed - born, drops.life(born, freed, allocation.freed)});
    if (freed > born) add(group.held, {born, event.size, 1});
    if (freed > born + 1) {
      add(group.dropped, {born, event.size, 1});
      add(group.removed, {freed, event.size, 1});
      group.first_drop = group.first_drop < 0 ? freed : std::min(group.first_drop, freed);
    }
  }
  struct FreedBefore {
    std::int64_t count = 0;
    std::int64_t steps = 0;  // in which some were freed
    std::int64_t first = -1;
    std::int64_t last = -1;
  };
  std::map<std::int64_t, FreedBefore> freed_before;  // by size
  for (const auto at : lifetimes.unknown_frees) {
    const auto step = steps.of(at);
    if (step < 0 || step >= count) continue;
    auto& freed = freed_before[trace[at].size];
    ++freed.count;
    if (freed.first < 0) freed.first = step;
    freed.steps += std::exchange(freed.last, step) != step ? 1 : 0;
  }
  for (const auto& [size, freed] : freed_before) {
    if (freed.steps >= 3) grouping.add_freed_before(size, freed.count, freed.first, freed.last);
  }
  for (const auto& block : lifetimes.unborn) {
    if (block.stack == 0 && framed) continue;
    if (auto* group = grouping.of(block)) {
      group->unborn_bytes += block.requested;
      ++group->unborn_count;
    }
  }
  return grouping.finished();
}

Judged judge(const Group& group, const Steps& steps, const Sites& sites) {
  Judged judged;
  const auto count = steps.count();
  if (count == 0) return judged;
  const auto& stack = sites.stack(group.stack);
  judged.trusted = count;
  if (const auto rising = replaced_by_larger(group, steps); rising > 0) {
    judged.judgement = rising >= 6 ? Judgement::replaced : Judgement::suspect;
    for (std::size_t at = 1; at < group.held.size(); ++at) {
      judged.growth.push_back(
          {group.held[at].step,
           std::max<std::int64_t>(0, group.held[at].bytes - group.held[at - 1].bytes), 0});
    }
    judged.onset = group.held.front().step;
    judged.times = static_cast<std::int64_t>(judged.growth.size());
    return judged;
  }
  if (auto more = multiplied(group, count); !more.empty()) {
    judged.judgement = Judgement::multiplied;
    judged.onset = more.front().step;
    judged.times = std::ssize(more);
    judged.growth = std::move(more);
    return judged;
  }
  if (is_ended(group, steps)) {
    judged.judgement = Judgement::ended;
    judged.growth = group.dropped;
    return judged;
  }
  auto left = group.left;
  if (left.empty()) {
    if (group.longest_life >= 2) judged.judgement = Judgement::bounded;
    return judged;
  }
  const auto ends = ending(left, steps);
  judged.trusted = std::clamp<std::int64_t>(ends.end - 1 - group.longest_life, 0, count);
  // One optimizer and one model are in use: the first one is left behind when the second comes, if
  // it is no part that is added to a model. None is made anew in each step.
  const auto apart = left.size() > 1 ? left[1].step - left[0].step : 0;
  const bool one_in_use = (stack.optimizer || stack.loads_model) && apart > 1;
  auto times =
      std::ranges::count_if(left, [&](const Left& each) { return each.step < judged.trusted; });
  if (one_in_use) {
    if (group.early_count > 0 || group.unborn_count > 0) {
      times += times > 0 ? 1 : 0;
    } else if (stack.optimizer) {
      left.erase(left.begin());
    } else {
      times -= times > 0 ? 1 : 0;
    }
  }
  judged.growth = left;
  judged.onset = left.front().step;
  judged.times = times;
  const auto gaps = gaps_of(left);
  const auto longest = gaps.longest;
  const bool goes_on_in_its_kinds = ends.quiet_own <= longest;
  const bool goes_on = ends.quiet_own + ends.quiet_others <= longest;
  if (group.longest_life >= 2 && times < 3) {
    if (auto grown = outrun(group, count); !grown.empty()) {
      judged.judgement = Judgement::outrun;
      judged.trusted = count;
      judged.onset = grown.front().step;
      judged.times = std::ssize(grown);
      judged.growth = std::move(grown);
      return judged;
    }
    if (times == 0) {
      judged.judgement = Judgement::bounded;
      return judged;
    }
  }
  const bool usually_frees = group.freed >= 3 * static_cast<std::int64_t>(left.size());
  if (times < 3) {
    // Twice the same; or beside live blocks of the same from before the trace; or in a trace so
    // short that no more of it can be older than what the place holds for a while: too few to tell.
    // What a backward pass allocates twice are gradients of what is trained later.
    const bool tells = stack.path != 0 || !sites.any_frames();
    const bool twice = times == 2 && goes_on && tells && left[0].bytes == left[1].bytes;
    const bool many_before = group.freed == 0 && group.unborn_count >= 3;
    const bool again = times > 0 && group.unborn_count > 0 && tells && (goes_on || many_before);
    const bool each_step = left.size() >= 3 && goes_on && (times == 2 ? count < 6 : count == 3);
    judged.judgement = twice || again || each_step ? Judgement::suspect : Judgement::none;
    return judged;
  }
  if (!goes_on) {
    judged.judgement =
        goes_on_in_its_kinds && ends.others_are_fewer ? Judgement::one_phase : Judgement::stopped;
    return judged;
  }
  if (group.stack == 0 && group.size >= 0) {
    auto one = of_one_place(left, judged.trusted, count);
    if (one.empty()) {
      judged.judgement = Judgement::suspect;
      return judged;
    }
    judged.growth = std::move(one);
  } else if (group.stack == 0 && !sites.any_frames()) {
    drop_first_time(judged.growth);
  }
  const auto middle = (left.front().step + ends.end) / 2;
  const auto late =
      std::ranges::count_if(left, [&](const Left& each) { return each.step >= middle; });
  const bool regular = gaps.regular() || gaps_among_own_kinds(left, steps).regular();
  if (late * 3 + (regular ? 1 : 0) < std::ssize(left)) {
    // What comes by chance may seem to slow down; a cache of what was seen slows down more.
    const bool by_chance = group.size >= 0 && late * 5 >= std::ssize(left);
    judged.judgement = by_chance ? Judgement::suspect : Judgement::stopped;
    return judged;
  }
  // No size twice: a cache by shape, which finds ever fewer shapes that are new.
  std::int64_t all = 0;
  for (const auto& each : left) all += each.count;
  if (group.size < 0 && !regular && group.sizes == all && late * 5 < std::ssize(left) * 2) {
    judged.judgement = Judgement::suspect;
    return judged;
  }
  const bool many = left.size() >= 5 && longest * 3 <= count;
  if (!regular && !many) {
    // Steps on end that kept something once, such as what a collector has promoted, are no habit.
    const bool again = usually_frees && in_a_row(left, judged.trusted) < times;
    judged.judgement = again           ? Judgement::leak
                       : usually_frees ? Judgement::stopped
                                       : Judgement::suspect;
    if (!again) return judged;
  }
  judged.judgement = only_in_last_phase(left, steps) ? Judgement::one_phase : Judgement::leak;
  return judged;
}

bool rises_evenly(std::span<const std::int64_t> levels) {
  constexpr std::size_t parts = 4;
  if (levels.size() < 3 * parts) return false;
  std::array<std::int64_t, parts> least{};
  for (std::size_t part = 0; part < parts; ++part) {
    const auto begin = levels.size() * part / parts;
    const auto end = levels.size() * (part + 1) / parts;
    least[part] = std::ranges::min(levels.subspan(begin, end - begin));
  }
  for (std::size_t part = 1; part < parts; ++part) {
    const auto grown = least[part] - least[part - 1];
    const auto mean = (least.back() - least.front()) / std::int64_t{parts - 1};
    if (grown <= 0 || grown * 2 < mean) return false;
  }
  return true;
}

std::vector<Left> summed(std::vector<Left> parts) {
  std::ranges::stable_sort(parts, {}, &Left::step);
  std::vector<Left> sums;
  for (const auto& each : parts) add(sums, each);
  return sums;
}

Rate rate_of(std::span<const Left> added, std::int64_t begin, std::int64_t end) {
  const auto bytes_before = [&](std::span<const Left> from, std::int64_t limit) {
    std::int64_t total = 0;
    for (const auto& each : from) total += each.step < limit ? each.bytes : 0;
    return static_cast<double>(total);
  };
  const auto from = [&](std::int64_t step) {
    return std::span(std::ranges::lower_bound(added, step, {}, &Left::step), added.end());
  };
  added = from(begin);
  if (begin >= end) return {};
  // The first steps may leave something once besides.
  for (std::int64_t skipped = 0; skipped <= 2 && skipped + 2 <= end - begin; ++skipped) {
    const auto rest = from(begin + skipped);
    const auto before_end = std::ranges::lower_bound(rest, end, {}, &Left::step);
    const auto period = shortest_period({rest.begin(), before_end}, begin + skipped, end);
    if (period == 0) continue;
    const auto first = rest.front().step;
    const bool in_pattern = (first - added.front().step) % period == 0;
    return {bytes_before(rest, begin + skipped + period) / static_cast<double>(period), period,
            in_pattern ? begin : first};
  }
  return {bytes_before(added, end) / static_cast<double>(end - begin), 0, begin};
}

}  // namespace leaklab

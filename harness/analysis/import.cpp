#include "leaklab/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "leaklab/error.h"
#include "leaklab/signature.h"
#include "lifetimes.h"
#include "segments.h"
#include "sites.h"
#include "steps.h"

namespace leaklab {
namespace {

using Op = Pattern::Op;

std::vector<History::Frame> frames_of(const Snapshot& snapshot, StackId stack) {
  std::vector<History::Frame> frames;
  for (const auto id : snapshot.stacks[stack]) {
    const auto& frame = snapshot.frames[id];
    frames.push_back(
        {shown(snapshot.strings[frame.file]), shown(snapshot.strings[frame.function]), frame.line});
  }
  return frames;
}

// What of a history is kept: some steps, and allocations of some stacks.
struct Selection {
  std::vector<bool> steps;
  std::set<std::uint32_t> stacks;
  bool earlier = false;  // and what was live before the first step
};

// Allocations that the selection leaves out are gone with their frees. What a step that is left out
// frees is freed at the end of the one before.
History select(const History& history, const Selection& selection) {
  History kept;
  kept.stacks = history.stacks;
  constexpr auto gone = std::numeric_limits<std::uint32_t>::max();
  std::map<std::uint32_t, std::uint32_t> numbers;
  std::size_t event = history.boundaries.front();
  std::uint32_t next = 0;
  if (selection.earlier) {
    std::map<std::uint32_t, History::Event> live;
    for (std::size_t at = 0; at < event; ++at) {
      const auto& each = history.events[at];
      if (!each.alloc) {
        live.erase(each.allocation);
      } else if (selection.stacks.contains(each.stack)) {
        live[each.allocation] = each;
      }
    }
    for (auto& [number, each] : live) {
      numbers[number] = each.allocation = next++;
      kept.events.push_back(each);
    }
  }
  kept.boundaries.push_back(kept.events.size());
  for (std::size_t step = 0; step < selection.steps.size(); ++step) {
    const bool stays = selection.steps[step];
    for (; event < history.boundaries[step + 1]; ++event) {
      auto at = history.events[event];
      if (at.alloc) {
        if (!stays || !selection.stacks.contains(at.stack)) continue;
        numbers[at.allocation] = next;
        at.allocation = next++;
      } else {
        const auto found = numbers.find(at.allocation);
        at.allocation = found == numbers.end() ? gone : found->second;
        if (at.allocation == gone) continue;
      }
      kept.events.push_back(at);
    }
    if (stays) kept.boundaries.push_back(0);
    kept.boundaries.back() = kept.events.size();
  }
  return kept;
}

// What must stay the same.
struct Gist {
  struct Finding {
    std::string file;
    std::int64_t line = 0;
    double bytes = 0;  // per step where it leaks, else held
    std::string taxonomy;
    friend auto operator<=>(const Finding&, const Finding&) = default;
  };
  Verdict verdict = Verdict::undecided;
  std::vector<Finding> findings;
  friend bool operator==(const Gist&, const Gist&) = default;
};

bool tells_the_same_lines(const Gist& left, const Gist& right) {
  return left.verdict == right.verdict &&
         std::ranges::equal(left.findings, right.findings, [](const auto& one, const auto& other) {
           return one.file == other.file && one.line == other.line;
         });
}

// Whether a history tells what its file does. It has steps of one kind only and nothing after them,
// so the class may differ, and how much a line held that does not leak.
bool tells_the_same(const Gist& history, const Gist& file) {
  return tells_the_same_lines(history, file) &&
         (file.verdict != Verdict::leak ||
          std::ranges::equal(history.findings, file.findings, {}, &Gist::Finding::bytes,
                             &Gist::Finding::bytes));
}

Gist gist_of(const Diagnosis& diagnosis) {
  Gist gist;
  gist.verdict = diagnosis.verdict;
  if (diagnosis.verdict == Verdict::leak) {
    for (const auto& finding : diagnosis.findings) {
      gist.findings.push_back({finding.site.file, finding.site.line,
                               finding.bytes_per_step.value_or(0), finding.taxonomy});
    }
  } else {
    // What seemed to leak is what makes it worth a scenario.
    for (const auto& lookalike : diagnosis.lookalikes) {
      gist.findings.push_back({lookalike.site.file, lookalike.site.line,
                               static_cast<double>(lookalike.bytes), lookalike.taxonomy});
    }
  }
  std::ranges::sort(gist.findings);
  return gist;
}

// Allocations and frees of each step. What is live at the end and was allocated on a leaking line
// is a leak. What was there before is allocated at the beginning of the first step, and is none.
Pattern steps_of(const History& history, const std::vector<bool>& leaking_stacks) {
  const auto steps = history.boundaries.size() - 1;
  Pattern pattern;
  pattern.steps.resize(steps);
  std::set<std::uint32_t> freed;
  for (const auto& event : history.events) {
    if (!event.alloc) freed.insert(event.allocation);
  }
  std::map<std::uint32_t, std::pair<std::int64_t, std::int64_t>> places;
  std::size_t event = 0;
  for (; event < history.boundaries.front(); ++event) {
    const auto& at = history.events[event];
    places[at.allocation] = {0, static_cast<std::int64_t>(event)};
    pattern.steps.front().push_back({Op::Kind::alloc, at.bytes, 0, 0});
  }
  for (std::size_t step = 0; step < steps; ++step) {
    const auto number = static_cast<std::int64_t>(step);
    auto index = std::ssize(pattern.steps[step]);
    for (; event < history.boundaries[step + 1]; ++event) {
      const auto& at = history.events[event];
      Op op;
      if (at.alloc) {
        const bool leaks = leaking_stacks[at.stack] && !freed.contains(at.allocation);
        op.kind = leaks ? Op::Kind::leak : Op::Kind::alloc;
        op.bytes = at.bytes;
        places[at.allocation] = {number, index++};
      } else {
        const auto [born, which] = places.at(at.allocation);
        op.kind = Op::Kind::free;
        op.steps_ago = number - born;
        op.index = which;
      }
      pattern.steps[step].push_back(op);
    }
  }
  return pattern;
}

// What the same place of the period before freed after more steps than follow in the history is no
// leak: it is not due yet.
void spare_what_is_not_due(Pattern& pattern, std::int64_t period) {
  const auto steps = static_cast<std::int64_t>(pattern.steps.size());
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> lives;  // steps, by step and place
  for (std::int64_t step = 0; step < steps; ++step) {
    for (const auto& op : pattern.steps[static_cast<std::size_t>(step)]) {
      if (op.kind == Op::Kind::free) lives[{step - op.steps_ago, op.index}] = op.steps_ago;
    }
  }
  for (auto step = period; step < steps; ++step) {
    std::int64_t index = 0;
    for (auto& op : pattern.steps[static_cast<std::size_t>(step)]) {
      if (op.kind == Op::Kind::free) continue;
      const auto before = lives.find({step - period, index++});
      if (op.kind == Op::Kind::leak && before != lives.end() && step + before->second >= steps) {
        op.kind = Op::Kind::alloc;
      }
    }
  }
}

// What is larger in each of the last periods by the same, and freed, is one that is replaced by a
// larger one.
void let_grow(Pattern& pattern, std::int64_t period) {
  const auto steps = static_cast<std::int64_t>(pattern.steps.size());
  if (steps < 3 * period) return;
  const auto allocations = [&](std::int64_t step) {
    std::vector<Op*> found;
    for (auto& op : pattern.steps[static_cast<std::size_t>(step)]) {
      if (op.kind != Op::Kind::free) found.push_back(&op);
    }
    return found;
  };
  for (auto step = steps - period; step < steps; ++step) {
    const auto last = allocations(step);
    const auto before = allocations(step - period);
    const auto first = allocations(step - 2 * period);
    if (before.size() != last.size() || first.size() != last.size()) continue;
    for (std::size_t at = 0; at < last.size(); ++at) {
      const auto grown = last[at]->bytes - before[at]->bytes;
      if (last[at]->kind != Op::Kind::alloc || grown <= 0) continue;
      if (before[at]->bytes - first[at]->bytes == grown) last[at]->growth = grown;
    }
  }
}

// The least period with which the last steps are exactly those before them; 0: none.
std::int64_t exact_period(const Pattern& pattern) {
  const auto steps = static_cast<std::int64_t>(pattern.steps.size());
  for (std::int64_t period = 1; period <= steps / 2; ++period) {
    if (std::equal(pattern.steps.end() - period, pattern.steps.end(),
                   pattern.steps.end() - 2 * period)) {
      return period;
    }
  }
  return 0;
}

// Takes away of `items` what `holds` does without, in ever smaller parts, until each one that is
// left is needed: the minimizing delta debugging (ddmin) of Zeller and Hildebrandt, 2002.
// `holds(some)` takes these away if it can and says whether it did.
template <typename Item, typename Holds>
void leave_out(std::vector<Item> items, const Holds& holds) {
  std::size_t parts = 2;
  while (!items.empty()) {
    const auto size = (items.size() + parts - 1) / parts;
    bool smaller = false;
    for (std::size_t begin = 0; begin < items.size() && !smaller; begin += size) {
      const auto from = items.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto to =
          items.begin() + static_cast<std::ptrdiff_t>(std::min(items.size(), begin + size));
      smaller = holds(std::span<const Item>(from, to));
      if (smaller) items.erase(from, to);
    }
    if (smaller) {
      parts = std::max<std::size_t>(2, parts - 1);
    } else if (size == 1) {
      return;
    } else {
      parts = std::min(items.size(), parts * 2);
    }
  }
}

class Reducer {
 public:
  using Progress = std::function<void(const ImportProgress&)>;

  Reducer(const History& history, const Diagnosis& diagnosis, std::size_t& tried,
          const Progress& progress)
      : history_(history), progress_(progress), tried_(tried) {
    selection_.steps.assign(history.boundaries.size() - 1, true);
    period_ = static_cast<std::size_t>(std::max<std::int64_t>(1, diagnosis.period));
    for (const auto& event : history.events) {
      if (event.alloc) selection_.stacks.insert(event.stack);
    }
    find_needed(diagnosis);
    const auto told = gist_of(diagnosis);
    wanted_ = gist(selection_);
    if (!tells_the_same(wanted_, told)) {
      // An optimizer, say, that is left behind when the second one comes was made before.
      selection_.earlier = true;
      wanted_ = gist(selection_);
    }
    if (!tells_the_same(wanted_, told)) {
      selection_.earlier = false;
      return;  // as it is, then
    }
    const bool irregular = diagnosis.verdict == Verdict::leak && diagnosis.period == 0;
    if (irregular) {
      keep_enough_steps();
    } else {
      keep_last_steps();
    }
    leave_out_stacks();
    if (!irregular) leave_out_steps();
  }

  History reduced() const { return select(history_, selection_); }

 private:
  Gist gist(const Selection& selection) const {
    return gist_of(diagnose(to_snapshot(select(history_, selection))));
  }
  // The gist of what may be enough, after telling how far the reduction is.
  Gist gist_of_fewer(const Selection& fewer) {
    if (progress_) {
      const auto steps = std::ranges::count(selection_.steps, true);
      progress_({tried_++, selection_.stacks.size(), static_cast<std::size_t>(steps)});
    }
    return gist(fewer);
  }
  bool take(Selection fewer) {
    if (gist_of_fewer(fewer) != wanted_) return false;
    selection_ = std::move(fewer);
    return true;
  }

  // Each stack of a leaking line that leaves something behind adds to its bytes, and a line that
  // has one stack has no other; there may be very many of them to try.
  void find_needed(const Diagnosis& diagnosis) {
    if (diagnosis.verdict != Verdict::leak) return;
    std::map<History::Frame, std::vector<std::uint32_t>> stacks;  // by line that leaks
    for (const auto& finding : diagnosis.findings) {
      const auto& site = finding.site;
      stacks[{site.file, site.function, static_cast<std::uint64_t>(site.line)}];
    }
    for (const auto stack : selection_.stacks) {
      for (const auto& frame : history_.stacks[stack]) {
        if (const auto line = stacks.find(frame); line != stacks.end()) {
          line->second.push_back(stack);
        }
      }
    }
    const auto leaving = leaving_stacks();
    for (const auto& [line, its] : stacks) {
      for (const auto stack : its) {
        if (its.size() == 1 || leaving[stack]) needed_.insert(stack);
      }
    }
  }

  // Stacks of what was allocated half-way and never freed. What fills once does so before, and what
  // the last steps hold may be freed in the next.
  std::vector<bool> leaving_stacks() const {
    const auto& boundaries = history_.boundaries;
    const auto steps = boundaries.size() - 1;
    const auto from = boundaries[steps / 4];
    const auto to = boundaries[steps - steps / 4];
    std::map<std::uint32_t, std::uint32_t> live;  // stacks by allocation
    for (auto at = from; at < history_.events.size(); ++at) {
      const auto& event = history_.events[at];
      if (!event.alloc) {
        live.erase(event.allocation);
      } else if (at < to) {
        live[event.allocation] = event.stack;
      }
    }
    std::vector<bool> leaving(history_.stacks.size(), false);
    for (const auto& [allocation, stack] : live) leaving[stack] = true;
    return leaving;
  }

  // What the steps that a pattern repeats do; nothing where they do not repeat.
  std::vector<std::vector<Op>> last_period(const Selection& selection) const {
    const auto history = select(history_, selection);
    const auto pattern = steps_of(history, std::vector<bool>(history.stacks.size(), false));
    const auto size = wanted_.verdict == Verdict::leak ? static_cast<std::int64_t>(period_)
                                                       : exact_period(pattern);
    return {pattern.steps.end() - std::min(std::ssize(pattern.steps), size), pattern.steps.end()};
  }

  // The fewest whole periods at the end that still show it, so that the rest has little to do.
  void keep_last_steps() {
    const auto steps = selection_.steps.size();
    for (std::size_t periods = 4; periods * period_ < steps; periods += 1 + periods / 4) {
      auto fewer = selection_;
      std::fill(fewer.steps.begin(),
                fewer.steps.end() - static_cast<std::ptrdiff_t>(periods * period_), false);
      if (take(std::move(fewer))) return;
    }
  }

  // Of steps that never repeat, as many at the end as show how their sizes vary.
  void keep_enough_steps() {
    const auto steps = selection_.steps.size();
    for (std::size_t kept = 32; kept < steps; kept += kept / 2) {
      auto fewer = selection_;
      std::fill(fewer.steps.begin(), fewer.steps.end() - static_cast<std::ptrdiff_t>(kept), false);
      const auto told = gist_of_fewer(fewer);
      if (!tells_the_same_lines(told, wanted_)) continue;
      selection_ = std::move(fewer);
      wanted_ = told;
      return;
    }
  }

  // Whole periods, counted from the end. The last one stays as it is: what it frees is as old.
  void leave_out_steps() {
    const auto steps = selection_.steps.size();
    const auto last = last_period(selection_);
    std::vector<std::size_t> ends;
    for (auto end = steps; end > 0; end -= std::min(end, period_)) {
      if (selection_.steps[end - 1]) ends.push_back(end);
    }
    std::ranges::reverse(ends);
    leave_out(std::move(ends), [&](std::span<const std::size_t> some) {
      auto fewer = selection_;
      for (const auto end : some) {
        for (auto step = end - std::min(end, period_); step < end; ++step) {
          fewer.steps[step] = false;
        }
      }
      return last_period(fewer) == last && take(std::move(fewer));
    });
  }

  void leave_out_stacks() {
    std::vector<std::uint32_t> others;
    std::ranges::set_difference(selection_.stacks, needed_, std::back_inserter(others));
    leave_out(std::move(others), [&](std::span<const std::uint32_t> some) {
      auto fewer = selection_;
      for (const auto stack : some) fewer.stacks.erase(stack);
      return take(std::move(fewer));
    });
  }

  const History& history_;
  const Progress& progress_;
  std::size_t& tried_;
  Gist wanted_;
  Selection selection_;
  std::set<std::uint32_t> needed_;  // stacks
  std::size_t period_ = 1;
};

// What a repeated step allocates and nothing frees would pile up: its own step frees it.
void free_what_piles_up(Pattern& pattern) {
  const auto steps = static_cast<std::int64_t>(pattern.steps.size());
  std::set<std::pair<std::int64_t, std::int64_t>> freed;  // step and place of the allocation
  for (auto step = pattern.warmup(); step < steps + pattern.reach(); ++step) {
    for (const auto& op : pattern.at(step)) {
      if (op.kind == Op::Kind::free) freed.emplace(step - op.steps_ago, op.index);
    }
  }
  for (auto step = pattern.warmup(); step < steps; ++step) {
    auto& ops = pattern.steps[static_cast<std::size_t>(step)];
    std::vector<Op> frees;
    std::int64_t index = 0;
    for (const auto& op : ops) {
      if (op.kind == Op::Kind::free) continue;
      if (op.kind == Op::Kind::alloc && !freed.contains({step, index})) {
        frees.push_back({Op::Kind::free, 0, 0, index});
      }
      ++index;
    }
    ops.insert(ops.end(), frees.begin(), frees.end());
  }
}

// Whether each period adds exactly the leaks, and nothing without them, once the first repeats have
// freed what the warm-up left.
bool is_steady(const Pattern& pattern, std::int64_t growth) {
  const auto first = pattern.settled() - 1 + pattern.period;
  const auto count = first + 4 * pattern.period;
  for (const bool fault : {false, true}) {
    const auto levels = pattern.levels(count, fault);
    for (auto step = first; step < count; ++step) {
      const auto before = static_cast<std::size_t>(step - pattern.period);
      const auto grown = levels[static_cast<std::size_t>(step)] - levels[before];
      if (grown != (fault ? growth : 0)) return false;
    }
  }
  return true;
}

// One allocation of that many bytes in each period.
Pattern mere_growth(std::int64_t period, std::int64_t bytes) {
  Pattern pattern;
  pattern.period = period;
  pattern.steps.resize(static_cast<std::size_t>(2 * period));
  for (const auto half : {1, 2}) {
    pattern.steps[static_cast<std::size_t>(half * period - 1)] = {{Op::Kind::leak, bytes, 0, 0}};
  }
  return pattern;
}

// The steps of a history as a pattern that repeats its last ones. `period` is that of the leak, 0
// where it is irregular or there is none.
Pattern pattern_of(const History& history, const std::vector<bool>& leaking_stacks,
                   std::int64_t period) {
  auto pattern = steps_of(history, leaking_stacks);
  const auto steps = static_cast<std::int64_t>(pattern.steps.size());
  const bool leaks = std::ranges::any_of(leaking_stacks, std::identity());
  if (period > 0 && period <= steps) {
    pattern.period = period;
    spare_what_is_not_due(pattern, period);
    if (leaks) let_grow(pattern, period);
  } else {
    pattern.period = leaks ? steps : exact_period(pattern);
    if (pattern.period == 0) pattern.period = std::max<std::int64_t>(1, steps / 2);
  }
  free_what_piles_up(pattern);
  if (is_steady(pattern, pattern.growth().per_period("requested"))) return pattern;
  // The warm-up's steps differ from those that repeat, so all of them repeat.
  pattern = steps_of(history, leaking_stacks);
  pattern.period = steps;
  free_what_piles_up(pattern);
  return pattern;
}

// The pattern of what is left of a history when it is reduced; none where the allocations that stay
// are not those that leak. `tried` counts on.
std::optional<Pattern> reproduced(const History& history, const Diagnosis& diagnosis,
                                  std::size_t& tried, const Reducer::Progress& progress) {
  const auto reduced = Reducer(history, diagnosis, tried, progress).reduced();
  std::vector<bool> leaking(reduced.stacks.size(), false);
  for (std::size_t stack = 0; stack < reduced.stacks.size(); ++stack) {
    const auto& frames = reduced.stacks[stack];
    leaking[stack] = std::ranges::any_of(diagnosis.findings, [&](const Finding& finding) {
      if (finding.site.file.empty()) return true;
      return std::ranges::any_of(frames, [&](const History::Frame& frame) {
        return frame.file == finding.site.file &&
               frame.line == static_cast<std::uint64_t>(finding.site.line) &&
               frame.function == finding.site.function;
      });
    });
  }
  const bool is_leak = diagnosis.verdict == Verdict::leak;
  if (!is_leak) leaking.assign(leaking.size(), false);
  // Where nothing repeats, the steps that stay have a mean of their own.
  const bool irregular = diagnosis.period == 0;
  const auto told = is_leak && irregular ? diagnose(to_snapshot(reduced)) : diagnosis;
  const auto rate = is_leak ? told.bytes_per_step : 0.0;
  const auto period = irregular ? told.steps.seen : diagnosis.period;
  const auto growth = std::llround(rate * static_cast<double>(period));
  std::int64_t left = 0;
  for (const auto& finding : told.findings) left += finding.live_bytes;
  const auto per_step = [](std::int64_t bytes, std::int64_t steps) {
    return static_cast<double>(bytes) / static_cast<double>(steps);
  };
  // Of irregular ones the mean may be over fewer steps than the pattern has; their sum is exact.
  const auto leaves_the_same = [&](const Pattern& pattern) {
    const auto leaks = pattern.growth().per_period("requested");
    return per_step(leaks, pattern.period) == per_step(growth, period) ||
           (is_leak && irregular && leaks == left);
  };
  auto pattern = pattern_of(reduced, leaking, is_leak ? diagnosis.period : 0);
  if (leaves_the_same(pattern)) return pattern;
  if (!is_leak || leaking.front()) return std::nullopt;
  // What a backward pass allocates has no frames, stack 0, and leaks by the line that called it.
  leaking.front() = true;
  pattern = pattern_of(reduced, leaking, diagnosis.period);
  if (leaves_the_same(pattern)) return pattern;
  return std::nullopt;
}

}  // namespace

History history_of(const Snapshot& snapshot, std::size_t device, const DiagnoseOptions& options) {
  History history;
  const auto& trace = snapshot.traces[device];
  const auto life = lifetimes(snapshot, device);
  const Sites sites(snapshot);
  const auto steps = find_steps(snapshot, device, sites, life, options);
  std::vector<std::uint32_t> stacks(snapshot.stacks.size(), 0);
  const auto stack_of = [&](StackId id) {
    if (id != 0 && stacks[id] == 0) {
      stacks[id] = static_cast<std::uint32_t>(history.stacks.size());
      history.stacks.push_back(frames_of(snapshot, id));
    }
    return stacks[id];
  };
  constexpr auto nothing = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> starts(trace.size(), nothing);  // allocation that begins at an event
  std::vector<std::uint32_t> ends(trace.size(), nothing);
  std::vector<std::uint32_t> ends_last;  // gone when the trace has ended
  std::uint32_t next = 0;
  const auto allocate = [&](std::int64_t bytes, StackId stack) {
    history.events.push_back({true, next++, stack_of(stack), bytes});
  };
  for (const auto& block : life.unborn) allocate(block.requested, block.stack);
  // A free whose allocation is not in the trace: what it frees was live before.
  std::vector<bool> matched(trace.size() + 1, false);
  for (const auto& allocation : life.allocations) {
    if (allocation.freed != no_event) matched[allocation.freed] = true;
  }
  for (std::size_t i = 0; i < trace.size(); ++i) {
    if (trace[i].kind != life.free_kind || matched[i]) continue;
    ends[i] = next;
    allocate(trace[i].size, 0);
  }
  const auto before = history.events.size();
  const auto first = next;
  const auto end = [&](std::uint32_t number, std::int64_t unknown) {
    const auto bytes = number < first ? unknown : trace[life.allocations[number - first].born].size;
    history.events.push_back({false, number, 0, bytes});
  };
  for (const auto& allocation : life.allocations) {
    starts[allocation.born] = next;
    if (allocation.freed < trace.size()) {
      ends[allocation.freed] = next;
    } else if (allocation.freed != no_event) {
      ends_last.push_back(next);
    }
    ++next;
  }
  std::size_t boundary = 0;
  for (std::size_t i = 0; i <= trace.size(); ++i) {
    if (i == trace.size()) {
      for (const auto number : ends_last) end(number, 0);
    }
    while (boundary < steps.begin.size() && steps.begin[boundary] <= i) {
      history.boundaries.push_back(history.events.size());
      ++boundary;
    }
    if (i == trace.size()) break;
    if (ends[i] != nothing) end(ends[i], trace[i].size);
    if (starts[i] != nothing) {
      history.events.push_back({true, starts[i], stack_of(trace[i].stack), trace[i].size});
    }
  }
  if (history.boundaries.empty()) history.boundaries = {before};
  if (steps.begin.empty() || steps.begin.back() < trace.size()) {
    history.boundaries.push_back(history.events.size());
    history.has_rest = true;
  }
  return history;
}

FileLevels file_levels(const Snapshot& snapshot, std::size_t device,
                       const DiagnoseOptions& options) {
  const auto& trace = snapshot.traces[device];
  const auto life = lifetimes(snapshot, device);
  const Sites sites(snapshot);
  const auto steps = find_steps(snapshot, device, sites, life, options);
  FileLevels file;
  file.entries.assign(steps.begin.begin(), steps.begin.end());
  file.has_steps = !file.entries.empty();
  file.why_none = steps.why_none;
  if (!file.has_steps) file.entries = {0};
  if (!file.has_steps || file.entries.back() < trace.size()) file.entries.push_back(trace.size());
  const auto requested = levels(trace, life);
  const auto allocations = live_counts(trace, life);
  for (const auto entry : file.entries) {
    file.levels.push_back({requested[entry], allocations[entry]});
  }
  Segments segments(snapshot, device);
  file.reserved.resize(file.entries.size());
  auto undone = trace.size();
  for (auto boundary = file.entries.size(); boundary-- > 0;) {
    for (; undone > file.entries[boundary]; --undone) segments.undo(trace[undone - 1]);
    file.reserved[boundary] = segments.reserved();
  }
  return file;
}

Imported import_snapshot(const Snapshot& snapshot, const DiagnoseOptions& options,
                         const std::function<void(const ImportProgress&)>& progress) {
  Imported imported;
  imported.diagnosis = diagnose(snapshot, options);
  // Of several devices the one that leaks most.
  if (std::ranges::any_of(imported.diagnosis.findings, [&](const Finding& finding) {
        return finding.device != imported.diagnosis.device;
      })) {
    auto of_one = options;
    of_one.device = imported.diagnosis.device;
    imported.diagnosis = diagnose(snapshot, of_one);
  }
  const auto& diagnosis = imported.diagnosis;
  if (diagnosis.verdict == Verdict::undecided) {
    throw Error(Exit::undecided, "there is nothing to import: " + diagnosis.summary);
  }
  auto history = history_of(snapshot, static_cast<std::size_t>(diagnosis.device), options);
  if (history.has_rest) history.boundaries.pop_back();
  imported.allocations = std::ranges::count(history.events, true, &History::Event::alloc);
  std::size_t tried = 0;
  auto pattern = reproduced(history, diagnosis, tried, progress);
  const auto period = static_cast<std::size_t>(diagnosis.period);
  if (!pattern && period > 0 && history.boundaries.size() > 2 * period) {
    // What the program drops when its loop ends does not repeat.
    history.boundaries.resize(history.boundaries.size() - period);
    pattern = reproduced(history, diagnosis, tried, progress);
  }
  if (!pattern) {
    const auto steps = std::max<std::int64_t>(1, diagnosis.period);
    pattern =
        mere_growth(steps, std::llround(diagnosis.bytes_per_step * static_cast<double>(steps)));
    imported.merely_grows = true;
  }
  imported.pattern = *std::move(pattern);
  for (const auto& step : imported.pattern.steps) {
    imported.kept +=
        std::ranges::count_if(step, [](const Op& op) { return op.kind != Op::Kind::free; });
  }
  return imported;
}

Pattern import_series(std::span<const std::int64_t> levels) {
  const auto steps = static_cast<std::int64_t>(levels.size());
  if (steps < 4) {
    throw UsageError(fmt::format("the series has {} level{}, which is too few: give 4 or more",
                                 steps, steps == 1 ? "" : "s"));
  }
  // The least warm-up after which a rule gives the rest a period.
  for (std::int64_t warmup = 1; warmup <= steps - 3 && warmup <= steps / 2; ++warmup) {
    const auto signature = classify(levels, {}, {warmup, 0});
    const bool grows = signature.shape == Shape::linear || signature.shape == Shape::stairs;
    const bool level = signature.shape == Shape::flat || signature.shape == Shape::sawtooth;
    if (!grows && !level) continue;
    if (grows) return mere_growth(signature.period, signature.growth);
    // Each step holds its level above the lowest one and drops that of the step before.
    Pattern pattern;
    pattern.period = signature.period;
    const auto last = levels.last(static_cast<std::size_t>(pattern.period));
    const auto lowest = std::ranges::min(last);
    for (const auto at : last) {
      pattern.steps.push_back({{Op::Kind::free, 0, 1, 0}, {Op::Kind::alloc, at - lowest, 0, 0}});
    }
    return pattern;
  }
  throw UsageError(
      "the series neither grows by the same bytes in every period nor stays level, so it gives no "
      "pattern: give what torch.cuda.memory_allocated() says after each step of the loop, to the "
      "byte, as what a process or its allocator has reserved follows other rules; or import a "
      "memory snapshot");
}

}  // namespace leaklab

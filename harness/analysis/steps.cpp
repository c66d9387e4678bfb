#include "steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "device_diagnosis.h"
#include "loops.h"

namespace leaklab {
namespace {

constexpr std::string_view step_words[] = {"step", "iter", "batch", "request"};

// A name with its numbers, of which one may count steps.
struct Numbered {
  std::string shape;  // the name with each number as '#'
  std::vector<std::int64_t> numbers;
  std::vector<bool> of_steps;  // of each number, whether the last word before it is one of steps
};

Numbered numbered(std::string_view name) {
  Numbered found;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto low = lower(name);
  std::size_t from = 0;  // behind the number before
  for (std::size_t at = 0; at < name.size();) {
    if (!is_digit(name[at])) {
      found.shape += name[at++];
      continue;
    }
    const auto words = std::string_view(low).substr(from, at - from);
    found.of_steps.push_back(std::ranges::any_of(step_words, [&](std::string_view word) {
      return words.find(word) != std::string_view::npos;
    }));
    std::int64_t number = 0;
    for (; at < name.size() && is_digit(name[at]); ++at) {
      number = std::min<std::int64_t>(number * 10 + (name[at] - '0'), 1'000'000'000'000);
    }
    found.shape += '#';
    found.numbers.push_back(number);
    from = at;
  }
  return found;
}

// Whether a mark's name says that it is about steps. What optimizers and the compiler write does
// not count.
bool names_steps(std::string_view name) {
  constexpr std::string_view other[] = {"optimizer.",  "compiled",       "dataloader",
                                        "torchdynamo", "torch-compiled", "inductor"};
  const auto low = lower(name);
  const auto has = [&](std::string_view part) { return low.find(part) != std::string::npos; };
  return std::ranges::none_of(other, has) && std::ranges::any_of(step_words, has);
}

bool is_optimizer_step(std::string_view name) { return name.starts_with("Optimizer.step"); }

// Whether a path ends in these folders and this file.
bool is_end_of_path(std::string_view end, std::string_view path) {
  if (!path.ends_with(end)) return false;
  path.remove_suffix(end.size());
  return path.empty() || path.ends_with('/') || path.ends_with('\\');
}

// What one number does in the marks of one shape of name.
struct Counting {
  std::vector<std::size_t> at;  // the marks with a new number
  std::int64_t first = 0;
  std::int64_t following = 0;  // how many follow the one before; each epoch may begin anew
  std::int64_t last = -2;

  // -1: without a number, which counts by coming again.
  void add(std::int64_t number, std::size_t mark) {
    if (number >= 0 && number == last) return;
    if (at.empty()) first = number;
    at.push_back(mark);
    following += number == last + 1 || number <= 1 ? 1 : 0;
    last = number;
  }
  // Whether these are steps.
  bool counts() const { return at.size() >= 3 && following * 10 >= (std::ssize(at) - 1) * 8; }
};

// The marks of one shape of name.
class Countings {
 public:
  void add(const Numbered& name, std::size_t mark) {
    if (each_.empty()) {
      of_steps_ = name.of_steps;
      each_.resize(std::max<std::size_t>(1, name.numbers.size()));
    }
    for (std::size_t number = 0; number < each_.size(); ++number) {
      each_[number].add(name.numbers.empty() ? -1 : name.numbers[number], mark);
    }
  }
  // Of the number that counts steps; nullptr: none does. Of several the one that a word of steps
  // stands before, else the first.
  const Counting* steps() const {
    const Counting* first = nullptr;
    for (std::size_t number = 0; number < each_.size(); ++number) {
      if (!each_[number].counts()) continue;
      if (is_of_steps(number)) return &each_[number];
      if (first == nullptr) first = &each_[number];
    }
    return first;
  }
  // Whether a word of steps stands before the number that counts.
  bool is_named() const {
    const auto* counting = steps();
    return counting != nullptr && is_of_steps(static_cast<std::size_t>(counting - each_.data()));
  }

 private:
  bool is_of_steps(std::size_t number) const {
    return number < of_steps_.size() && of_steps_[number];
  }
  std::vector<Counting> each_;  // by number in the name
  std::vector<bool> of_steps_;
};

// Moments at which a mark of one name began and ended.
struct Spans {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> end;  // as many, or one fewer: the last has not ended
};

struct MarkedSeries {
  Spans spans;
  bool epochs = false;
};

Spans spans_of(const Snapshot& snapshot, std::size_t device, const auto& wanted) {
  Spans spans;
  // Marks of one device alone tell the steps of all: they have one clock.
  const bool has_own = std::ranges::any_of(snapshot.annotations, [&](const Annotation& mark) {
    return mark.device < 0 || static_cast<std::size_t>(mark.device) == device;
  });
  bool open = false;
  StringId open_name = 0;
  for (const auto& mark : snapshot.annotations) {
    if (has_own && mark.device >= 0 && static_cast<std::size_t>(mark.device) != device) continue;
    if (!wanted(mark.name)) continue;
    const auto stage = snapshot.strings[mark.stage];
    if (stage == "START") {
      // A START whose predecessor never ended: of two under one name the first one counts.
      if (open && open_name == mark.name) continue;
      if (open) spans.end.push_back(mark.time_us);
      spans.start.push_back(mark.time_us);
      open = true;
      open_name = mark.name;
    } else if (open && open_name == mark.name) {
      spans.end.push_back(mark.time_us);
      open = false;
    }
  }
  return spans;
}

// Steps in a row that train, or that don't.
struct Phase {
  bool trains = false;
  std::int64_t steps = 0;
};

std::vector<Phase> phases_of(const Steps& steps) {
  std::vector<Phase> phases;
  for (const auto kind : steps.kind) {
    const bool trains = steps.trains[kind];
    if (phases.empty() || phases.back().trains != trains) phases.push_back({trains, 0});
    ++phases.back().steps;
  }
  return phases;
}

// The first and the last phase may be cut.
Steps::Cycle cycle_of(const Steps& steps) {
  const auto phases = phases_of(steps);
  Steps::Cycle cycle;
  for (std::size_t each = 1; each + 1 < phases.size(); ++each) {
    auto& length = phases[each].trains ? cycle.trains : cycle.others;
    if (length != 0 && length != phases[each].steps) return {};
    length = phases[each].steps;
  }
  return cycle.trains > 0 && cycle.others > 0 ? cycle : Steps::Cycle{};
}

// Where phases of a training and of an evaluation come in turn, how many steps of the evaluation
// ran before the trace, beside so many of the training.
std::int64_t others_before(const Steps& steps, std::int64_t trains_before) {
  const auto trains = steps.cycle.trains;
  const auto others = steps.cycle.others;
  const auto first = phases_of(steps).front();
  const auto phases = [&](std::int64_t of_training) {
    return of_training <= 0 ? 0 : (of_training + trains - 1) / trains;
  };
  // Each phase of a training but the one that the trace begins in is followed by an evaluation.
  if (first.trains) return phases(trains_before - (trains - first.steps)) * others;
  return std::max<std::int64_t>(0, others - first.steps) +
         std::max<std::int64_t>(0, phases(trains_before) - 1) * others;
}

class Finder {
 public:
  Finder(const Snapshot& snapshot, std::size_t device, const Sites& sites,
         const Lifetimes& lifetimes, const DiagnoseOptions& options)
      : snapshot_(snapshot),
        device_(device),
        trace_(snapshot.traces[device]),
        sites_(sites),
        lifetimes_(lifetimes),
        options_(options) {
    if (!sites.any_frames()) lives_ = lives(trace_, lifetimes);
  }

  Steps find();

 private:
  // The first event at or after that moment.
  EventIndex at_time(std::int64_t time_us) const {
    const auto place = std::ranges::lower_bound(trace_, time_us, {}, &TraceEvent::time_us);
    return static_cast<EventIndex>(place - trace_.begin());
  }
  bool timed() const { return !trace_.empty() && trace_.back().time_us > 0; }
  Spans optimizer_spans() const {
    return spans_of(snapshot_, device_,
                    [&](StringId name) { return is_optimizer_step(snapshot_.strings[name]); });
  }

  std::vector<MarkedSeries> marked_series() const;
  EventIndex end_like_others(const std::vector<EventIndex>& begin,
                             const std::vector<EventIndex>& ends) const;
  std::optional<Steps> by_annotations() const;
  std::optional<Steps> by_metadata() const;
  std::optional<Steps> by_snapshots() const;
  std::optional<Steps> by_optimizer() const;
  std::optional<Steps> by_loop(LoopBy by) const;
  std::optional<Steps> by_sizes_or_lives() const;
  EventIndex lowest(EventIndex from, EventIndex to) const;
  bool may_be_layers(const std::vector<EventIndex>& begin) const;
  bool are_parts_of_steps(const Steps& loop) const;
  Steps asked_for() const;
  bool take_turns(const std::vector<EventIndex>& ends) const;
  EventIndex aligned(const std::vector<EventIndex>& ends) const;
  void align_to_end(std::vector<EventIndex>& begin) const;
  void number_kinds(Steps& steps) const;
  bool has_backward(const Steps& steps, std::int64_t step) const;
  void drop_cut_steps(Steps& steps) const;
  void count_before(Steps& steps) const;
  template <typename Value>
  std::unordered_map<std::uint64_t, std::int64_t> content(EventIndex from, EventIndex to,
                                                          const Value& value) const;
  double holds(EventIndex from, EventIndex to, EventIndex like_from, EventIndex like_to) const;

  const Snapshot& snapshot_;
  std::size_t device_;
  const Trace& trace_;
  const Sites& sites_;
  const Lifetimes& lifetimes_;
  const DiagnoseOptions& options_;
  std::vector<EventIndex> lives_;  // without frames
};

Steps at(std::vector<EventIndex> begin, EventIndex end, std::string source, double confidence) {
  Steps steps;
  begin.push_back(end);
  steps.begin = std::move(begin);
  steps.kind.assign(steps.begin.size() - 1, 0);
  steps.source = std::move(source);
  steps.confidence = confidence;
  return steps;
}

// A recording in which steps are found.
std::string recording_of_steps(const Sites& sites) {
  return fmt::format(
      "record ten steps or more{}, or mark them with {}",
      sites.any_frames() ? "" : fmt::format(" with their frames, by {}", record_call),
      "torch.profiler.record_function(f\"## step {i} ##\")");
}

// Why there are no steps where the caller told of them, and what is found without that.
std::string not_as_told(const DiagnoseOptions& told, const Steps& found, const Sites& sites) {
  const auto* option = told.step_file.empty() ? "--steps" : "--step-site";
  const auto text =
      told.step_file.empty()
          ? fmt::format("the trace shows no loop of {} step{}, as --steps says", told.steps,
                        told.steps == 1 ? "" : "s")
          : fmt::format("no allocation comes again and again from {}:{}, as --step-site says",
                        shown(told.step_file), told.step_line);
  const auto count = found.count();
  // To leave the option out would lead back to it.
  if (count == 0) {
    return fmt::format("{}, and no other loop either; {}", text, recording_of_steps(sites));
  }
  return fmt::format("{}: leave {} out, and the steps are looked for: {} {} found by {}", text,
                     option, fmt::group_digits(count), count == 1 ? "is" : "are", found.source);
}

// The spans of each shape of name whose marks say that they are about steps: those that count, or
// come again under one name. The most frequent first.
std::vector<MarkedSeries> Finder::marked_series() const {
  constexpr std::size_t most_shapes = 16;
  std::map<std::string, Countings> series;
  std::vector<std::string> shapes(snapshot_.strings.size());
  for (std::size_t mark = 0; mark < snapshot_.annotations.size(); ++mark) {
    const auto& each = snapshot_.annotations[mark];
    const auto name = snapshot_.strings[each.name];
    if (snapshot_.strings[each.stage] != "START" || !names_steps(name)) continue;
    const auto found = numbered(name);
    shapes[each.name] = found.shape;
    series[found.shape].add(found, mark);
  }
  std::vector<std::pair<std::int64_t, std::string>> most;
  for (const auto& [shape, marks] : series) {
    if (const auto* steps = marks.steps()) most.emplace_back(-std::ssize(steps->at), shape);
  }
  std::ranges::sort(most);
  most.resize(std::min(most.size(), most_shapes));
  std::vector<MarkedSeries> all;
  for (const auto& each : most) {
    const auto& shape = each.second;
    all.push_back(
        {spans_of(snapshot_, device_, [&](StringId name) { return shapes[name] == shape; }),
         lower(shape).find("epoch") != std::string::npos && !series[shape].is_named()});
  }
  return all;
}

// Whether most spans of `inner` begin inside one of `outer`.
bool is_within(const Spans& inner, const Spans& outer) {
  std::size_t within = 0;
  for (const auto start : inner.start) {
    const auto next = std::ranges::upper_bound(outer.start, start) - outer.start.begin();
    if (next == 0) continue;
    const auto span = static_cast<std::size_t>(next) - 1;
    const bool open = span >= outer.end.size() || start < outer.end[span];
    within += outer.start[span] < start && open ? 1 : 0;
  }
  return within * 2 > inner.start.size();
}

// Of series that lie within others only the outer ones: a request is a step, not what is marked
// within it. But a few that others lie within, and epochs, are no steps.
std::vector<Spans> outermost(const std::vector<MarkedSeries>& all) {
  constexpr std::size_t least_outer = 5;
  const auto few = [](const MarkedSeries& series) {
    return series.epochs || series.spans.start.size() < least_outer;
  };
  std::vector<Spans> outer;
  for (const auto& each : all) {
    const bool is_part = std::ranges::any_of(all, [&](const MarkedSeries& other) {
      return few(other) ? few(each) && is_within(other.spans, each.spans)
                        : is_within(each.spans, other.spans);
    });
    if (!is_part) outer.push_back(each.spans);
  }
  return outer;
}

// The most frequent series and those that come in runs between its steps, as an evaluation does.
// What comes once between two steps is a part of one: its forward pass, its optimizer's step.
std::vector<Spans> kinds_of_steps(std::vector<Spans> series) {
  if (series.empty()) return series;
  const auto& main = series.front().start;
  const auto is_part = [&](const Spans& each) {
    std::size_t in_runs = 0;
    for (std::size_t mark = 1; mark < each.start.size(); ++mark) {
      const auto next = std::ranges::upper_bound(main, each.start[mark - 1]);
      in_runs += next == main.end() || *next > each.start[mark] ? 1 : 0;
    }
    return in_runs * 2 < each.start.size();
  };
  series.erase(std::remove_if(series.begin() + 1, series.end(), is_part), series.end());
  return series;
}

std::optional<Steps> Finder::by_annotations() const {
  if (!timed()) return std::nullopt;
  struct Marked {
    EventIndex from = 0;
    EventIndex to = 0;
    std::uint8_t kind = 0;
    bool ended = false;
  };
  std::vector<Marked> steps_marked;
  std::int64_t before = 0;
  std::uint8_t kind = 0;
  for (const auto& spans : kinds_of_steps(outermost(marked_series()))) {
    for (std::size_t each = 0; each < spans.start.size(); ++each) {
      const auto from = at_time(spans.start[each]);
      // Begun before the trace.
      if (spans.start[each] < trace_.front().time_us && from == 0 && lifetimes_.begins_late()) {
        ++before;
        continue;
      }
      if (from >= trace_.size()) break;
      const bool ended = each < spans.end.size();
      const auto to = ended ? at_time(spans.end[each] + 1) : static_cast<EventIndex>(trace_.size());
      steps_marked.push_back({from, to, kind, ended});
    }
    ++kind;
  }
  std::ranges::stable_sort(steps_marked, {}, &Marked::from);
  std::vector<EventIndex> begin;
  std::vector<EventIndex> ends;
  std::vector<std::uint8_t> kinds;
  std::int64_t marked = 0;
  bool ended = false;  // the last one
  for (const auto& each : steps_marked) {
    if (!begin.empty() && each.from <= begin.back()) continue;
    begin.push_back(each.from);
    ends.push_back(each.to);
    kinds.push_back(each.kind);
    ended = each.ended;
    marked += each.to - each.from;
  }
  if (begin.size() < 2) return std::nullopt;
  // Marks that leave much of the loop out, evaluation say, are not its steps.
  if (marked * 10 < static_cast<std::int64_t>(trace_.size() - begin.front()) * 6) {
    return std::nullopt;
  }
  const auto end = std::max(end_like_others(begin, ends), begin.back() + 1);
  auto steps = at(std::move(begin), end, "annotations", 0.98);
  steps.kind = std::move(kinds);
  steps.before = before;
  steps.ends_whole = ended;
  return steps;
}

// Where the last of the marked steps ends: what follows the mark belongs to it as far as the same
// follows the marks of steps before it.
EventIndex Finder::end_like_others(const std::vector<EventIndex>& begin,
                                   const std::vector<EventIndex>& ends) const {
  constexpr std::size_t most_compared = 8;
  EventIndex longest = 0;
  const auto last = ends.back();
  for (std::size_t back = 1; back < begin.size() && back <= most_compared; ++back) {
    const auto step = begin.size() - 1 - back;
    const auto from = std::min(ends[step], begin[step + 1]);
    const auto length = begin[step + 1] - from;
    if (length <= longest || length > trace_.size() - last) continue;
    const bool same = std::equal(trace_.begin() + from, trace_.begin() + begin[step + 1],
                                 trace_.begin() + last, [&](const auto& left, const auto& right) {
                                   return left.kind == right.kind && left.stack == right.stack &&
                                          (sites_.any_frames() || left.size == right.size);
                                 });
    if (same) longest = length;
  }
  return last + longest;
}

std::optional<Steps> Finder::by_metadata() const {
  std::map<std::string, Countings> all;
  StringId last = 0;
  for (EventIndex at = 0; at < trace_.size(); ++at) {
    const auto id = trace_[at].user_metadata;
    if (id == 0 || id == last) continue;
    last = id;
    const auto name = snapshot_.strings[id];
    if (!names_steps(name)) continue;
    const auto found = numbered(name);
    if (!found.numbers.empty()) all[found.shape].add(found, at);
  }
  // Each shape of name whose numbers count is a kind of step.
  std::vector<std::pair<EventIndex, std::uint8_t>> begin;
  std::int64_t before = 0;
  std::uint8_t kind = 0;
  for (const auto& [shape, series] : all) {
    const auto* steps = series.steps();
    if (steps == nullptr) continue;
    for (const auto at : steps->at) begin.emplace_back(static_cast<EventIndex>(at), kind);
    before += steps->first;
    if (kind < 255) ++kind;
  }
  if (begin.empty()) return std::nullopt;
  std::ranges::sort(begin);
  std::vector<EventIndex> begins;
  for (const auto& [at, of_kind] : begin) begins.push_back(at);
  auto steps = at(std::move(begins), static_cast<EventIndex>(trace_.size()), "metadata", 0.95);
  for (std::size_t step = 0; step < begin.size(); ++step) steps.kind[step] = begin[step].second;
  if (lifetimes_.begins_late()) steps.before = before;
  return steps;
}

std::optional<Steps> Finder::by_snapshots() const {
  std::vector<EventIndex> begin;
  for (EventIndex at = 0; at < trace_.size(); ++at) {
    if (trace_[at].kind != EventKind::snapshot) continue;
    if (begin.empty() || at > begin.back() + 1) begin.push_back(at + 1);
  }
  if (begin.size() < 3) return std::nullopt;
  const auto last = begin.back();
  begin.pop_back();
  begin.insert(begin.begin(), 0);
  auto steps = at(std::move(begin), last, "snapshots", 0.7);
  steps.ends_whole = true;
  return steps;
}

// How many events of an iteration follow a place in it. What follows the last such place up to the
// end of the trace does so in most iterations, where the dump stands behind the loop; where an
// evaluation lies between, as much of it as most iterations begin with.
EventIndex Finder::aligned(const std::vector<EventIndex>& ends) const {
  constexpr std::size_t most_compared = 16;  // the last ones: what leaks late is in these
  const auto tail = static_cast<EventIndex>(trace_.size()) - ends.back();
  // By iteration, how far it goes as the trace does from the last place on.
  const auto usual = [&](bool of_sizes) {
    std::vector<EventIndex> common;
    for (auto each = ends.size() - std::min(ends.size(), most_compared + 1); each + 1 < ends.size();
         ++each) {
      const auto longest = std::min(tail, ends[each + 1] - ends[each]);
      EventIndex at = 0;
      for (; at < longest; ++at) {
        const auto left = trace_[ends[each] + at];
        const auto right = trace_[ends.back() + at];
        if (left.kind != right.kind || left.stack != right.stack) break;
        if (of_sizes && left.size != right.size) break;
      }
      common.push_back(at);
    }
    if (common.empty()) return EventIndex{0};
    const auto middle = common.begin() + static_cast<std::ptrdiff_t>((common.size() - 1) / 2);
    std::ranges::nth_element(common, middle);
    return *middle;
  };
  // Sizes vary from step to step; what is another line's tells itself by them alone.
  return usual(false) == tail ? tail : usual(true);
}

// Whether two optimizers step by turns: what lies between their steps is unlike what comes next and
// like what comes after that, in what it allocates or in how many events it has.
bool Finder::take_turns(const std::vector<EventIndex>& ends) const {
  if (ends.size() < 4) return false;
  const auto alike = [&](std::size_t left, std::size_t right) {
    const auto first = ends[left + 1] - ends[left];
    const auto second = ends[right + 1] - ends[right];
    const auto apart = first > second ? first - second : second - first;
    return apart * 10 <= std::max(first, second) ||
           holds(ends[left], ends[left + 1], ends[right], ends[right + 1]) >= 0.8;
  };
  std::size_t next = 0;
  std::size_t after_next = 0;
  const auto count = ends.size() - 3;
  for (std::size_t each = 0; each < count; ++each) {
    next += alike(each, each + 1) ? 1 : 0;
    after_next += alike(each, each + 2) ? 1 : 0;
  }
  return next * 5 <= count && after_next * 5 >= count * 4;
}

std::optional<Steps> Finder::by_optimizer() const {
  if (!timed()) return std::nullopt;
  const auto spans = optimizer_spans();
  std::vector<EventIndex> ends;
  for (const auto end : spans.end) {
    if (end < trace_.front().time_us) continue;
    const auto at = at_time(end + 1);
    if (ends.empty() || at > ends.back()) ends.push_back(at);
  }
  if (take_turns(ends)) {
    std::vector<EventIndex> second;
    for (std::size_t each = 1; each < ends.size(); each += 2) second.push_back(ends[each]);
    ends = std::move(second);
  }
  if (ends.size() < 3) return std::nullopt;
  const auto shift = aligned(ends);
  std::vector<EventIndex> begin;
  for (const auto end : ends) begin.push_back(end + shift);
  const auto last = begin.back();
  begin.pop_back();
  // The first step begins with the first allocation that its kind of step makes again; before it
  // lies the set-up.
  const auto length = begin.size() > 1 ? begin[1] - begin[0] : last - begin[0];
  const auto first = begin.front() > length ? begin.front() - length : 0;
  begin.insert(begin.begin(), first);
  auto steps = at(std::move(begin), last, "optimizer", 0.8);
  steps.ends_whole = true;
  return steps;
}

// Moves beginnings that were put where least is live to where the loop begins: where the dump
// stands behind the loop, the trace ends with a whole iteration.
void Finder::align_to_end(std::vector<EventIndex>& begin) const {
  if (begin.size() < 3) return;
  const auto length = begin[begin.size() - 1] - begin[begin.size() - 2];
  const auto rest = static_cast<EventIndex>(trace_.size()) - begin.back();
  if (rest <= length || rest >= 2 * length) return;
  // Of the iteration after the last one that was found, what its end belongs to.
  begin.push_back(begin.back() + length);
  const auto tail = aligned(begin);
  begin.pop_back();
  if (tail == 0) return;
  for (auto& each : begin) each += tail;
  begin.front() = begin[1] > length ? begin[1] - length : 0;
}

// The last allocation of the events [from, to) before which least is live of what is freed again.
EventIndex Finder::lowest(EventIndex from, EventIndex to) const {
  std::int64_t level = 0;
  auto least = std::numeric_limits<std::int64_t>::max();
  auto found = from;
  for (auto at = from; at < to; ++at) {
    const auto event = trace_[at];
    const bool comes = event.kind == EventKind::alloc && lives_[at] != no_event;
    if (comes && level <= least) {
      least = level;
      found = at;
    }
    if (comes) level += event.size;
    if (event.kind == lifetimes_.free_kind) level -= event.size;
  }
  return found;
}

// Whether what is allocated from the first of these iterations on is no more than one pass through
// a model allocates, as far as its parameters tell, which were there before. A size that several
// iterations leave behind is none of these.
bool Finder::may_be_layers(const std::vector<EventIndex>& begin) const {
  constexpr std::int64_t most_of_parameter = 6;  // its activations, gradients and workspaces
  std::map<std::int64_t, std::int64_t> before;   // by size, how many live blocks
  std::map<std::int64_t, std::set<std::ptrdiff_t>> left;  // by size, in which iterations
  std::int64_t allocations = 0;
  for (const auto& each : lifetimes_.unborn) ++before[each.requested];
  for (const auto& each : lifetimes_.allocations) {
    const auto size = trace_[each.born].size;
    const auto iteration = std::ranges::upper_bound(begin, each.born) - begin.begin();
    if (iteration > 0) {
      ++allocations;
      if (each.freed == no_event) left[size].insert(iteration);
    } else if (each.freed == no_event) {
      ++before[size];
    }
  }
  std::int64_t parameters = 0;
  for (const auto& [size, count] : before) {
    const auto leaves = left.find(size);
    if (leaves == left.end() || leaves->second.size() < 3) parameters += count;
  }
  return allocations <= most_of_parameter * parameters;
}

std::optional<Steps> Finder::by_loop(LoopBy by) const {
  LoopWish wish;
  wish.count = options_.steps;
  if (!options_.step_file.empty()) {
    wish.stacks.resize(snapshot_.stacks.size());
    for (StackId id = 0; id < snapshot_.stacks.size(); ++id) {
      wish.stacks[id] = std::ranges::any_of(snapshot_.stacks[id], [&](FrameId frame) {
        const auto& each = snapshot_.frames[frame];
        return static_cast<std::int64_t>(each.line) == options_.step_line &&
               is_end_of_path(options_.step_file, snapshot_.strings[each.file]);
      });
    }
  }
  auto loops = find_loops(trace_, sites_, lifetimes_, by, wish);
  if (loops.begin.size() < 2) return std::nullopt;
  const bool asked = wish.count != 0 || !wish.stacks.empty();
  // Iterations that make up little of the trace are a part of something else.
  if (!asked && loops.covered < 0.35) return std::nullopt;
  if (by != LoopBy::stacks && !asked && (loops.begin.size() < 6 || loops.alike < 0.85)) {
    return std::nullopt;
  }
  if (by != LoopBy::stacks && !asked && may_be_layers(loops.begin)) return std::nullopt;
  const auto end = static_cast<EventIndex>(trace_.size());
  if (by != LoopBy::stacks) {
    align_to_end(loops.begin);
    // The first iteration allocates more than the others and so does not look like them, nor do the
    // next ones by what came before them.
    auto& begin = loops.begin;
    const auto length = begin[1] - begin[0];
    const auto frees = [&](EventIndex first, EventIndex last) {
      return std::count_if(trace_.begin() + first, trace_.begin() + last,
                           [&](const auto& event) { return event.kind == lifetimes_.free_kind; });
    };
    // The building of the model asks for the sizes of its gradients, and frees little.
    const auto enough = by == LoopBy::sizes ? 0.9 : 0.8;
    const auto insert_before = [&](EventIndex from) {
      begin.insert(begin.begin(), lowest(from, begin[0] - std::min(begin[0], length / 2)));
      loops.kind.insert(loops.kind.begin(), loops.kind.front());
    };
    while (!asked && begin[0] > 0) {
      const auto from = begin[0] - std::min(begin[0], length + length / 2);
      if (holds(from, begin[0], begin[0], begin[1]) < enough ||
          frees(from, begin[0]) * 10 < frees(begin[0], begin[1]) * 7) {
        break;
      }
      insert_before(from);
    }
    // Before it no variable holds a batch that is dropped half-way, so that all in it lives
    // shorter.
    const auto freed = frees(0, begin[0]);
    const auto usually = frees(begin[0], begin[1]);
    if (!asked && by == LoopBy::lives && freed * 10 >= usually * 7 && freed * 10 <= usually * 13) {
      insert_before(begin[0] - std::min(begin[0], length + length / 2));
    }
    // The last one frees less, and so may not look like them either.
    const auto usual = begin[begin.size() - 1] - begin[begin.size() - 2];
    const auto rest = end - begin.back();
    if (!asked && rest * 10 >= usual * 18 && rest * 10 <= usual * 22 &&
        holds(begin.back() + usual, end, begin.back(), begin.back() + usual) >= 0.8) {
      begin.push_back(begin.back() + usual);
      loops.kind.push_back(loops.kind.back());
    }
  }
  const auto* source = by == LoopBy::stacks  ? "call stacks"
                       : by == LoopBy::sizes ? "sizes"
                                             : "lifetimes";
  auto steps = at(std::move(loops.begin), end, source, 0);
  steps.kind = std::move(loops.kind);
  steps.confidence = by == LoopBy::stacks ? 0.6 + 0.3 * loops.alike : 0.5 * loops.alike;
  if (asked) steps.source = "given";
  return steps;
}

// Whether the iterations of a loop are parts of steps: those of an optimizer that made one or two
// in all of them, or that calls a closure several times in one, or of a marked one that has them
// all.
bool Finder::are_parts_of_steps(const Steps& loop) const {
  if (!timed() || loop.count() < 3) return false;
  const auto first = trace_[loop.begin.front()].time_us;
  const auto last = trace_[loop.begin[loop.begin.size() - 2]].time_us;
  const auto optimizer = optimizer_spans();
  const auto open = [](const Spans& spans, std::size_t span, std::int64_t time) {
    return span >= spans.end.size() || time < spans.end[span];
  };
  std::int64_t overlapping = 0;
  for (std::size_t span = 0; span < optimizer.start.size(); ++span) {
    overlapping += open(optimizer, span, first) ? 1 : 0;
  }
  if (overlapping > 0 && overlapping < 3 && loop.count() > 3) return true;
  std::int64_t within = 0;
  for (std::size_t step = 1; step + 1 < loop.begin.size(); ++step) {
    const auto time = trace_[loop.begin[step]].time_us;
    const auto next = std::ranges::lower_bound(optimizer.start, time) - optimizer.start.begin();
    within += next > 0 && open(optimizer, static_cast<std::size_t>(next) - 1, time) ? 1 : 0;
  }
  if (within * 2 >= loop.count()) return true;
  // An epoch has many steps, and a profiler whose step() is never called has one for all.
  const auto marked = spans_of(snapshot_, device_, [&](StringId id) {
    const auto name = snapshot_.strings[id];
    return names_steps(name) && !name.starts_with("ProfilerStep") &&
           lower(name).find("epoch") == std::string::npos &&
           std::ranges::count(numbered(name).of_steps, true) > 0;
  });
  for (std::size_t span = 0; span < marked.start.size(); ++span) {
    if (marked.start[span] <= first && open(marked, span, last)) return true;
  }
  return false;
}

// What a stretch of the trace allocates, without regard to order, by what `value` says of an event.
template <typename Value>
std::unordered_map<std::uint64_t, std::int64_t> Finder::content(EventIndex from, EventIndex to,
                                                                const Value& value) const {
  std::unordered_map<std::uint64_t, std::int64_t> counts;
  for (auto at = from; at < to; ++at) {
    if (trace_[at].kind == EventKind::alloc) ++counts[value(at)];
  }
  return counts;
}

// The part of what one stretch allocates that another one allocates too: of the lines, where they
// are known, since a step may go round a loop of its own. Else of allocations of a size, or, as
// batches may be of any size, of those that live as long.
double Finder::holds(EventIndex from, EventIndex to, EventIndex like_from,
                     EventIndex like_to) const {
  std::int64_t common = 0;
  std::int64_t total = 0;
  if (sites_.any_frames()) {
    const auto stack = [&](EventIndex at) { return std::uint64_t{trace_[at].stack}; };
    const auto own = content(from, to, stack);
    for (const auto& [line, times] : content(like_from, like_to, stack)) {
      ++total;
      common += own.contains(line) ? 1 : 0;
    }
  } else {
    const auto size = [&](EventIndex at) { return static_cast<std::uint64_t>(trace_[at].size); };
    const auto life = [&](EventIndex at) { return std::uint64_t{lives_[at]}; };
    auto sizes = content(from, to, size);
    auto lives = content(from, to, life);
    for (auto at = like_from; at < like_to; ++at) {
      if (trace_[at].kind != EventKind::alloc) continue;
      ++total;
      const auto same_size = sizes.find(size(at));
      const auto same_life = lives.find(life(at));
      if (same_size != sizes.end() && same_size->second > 0) {
        --same_size->second;
        ++common;
      } else if (same_life != lives.end() && same_life->second > 0) {
        --same_life->second;
        ++common;
      }
    }
  }
  return total == 0 ? 1 : static_cast<double>(common) / static_cast<double>(total);
}

// Takes the first and the last step away where the trace holds a part of them only.
void Finder::drop_cut_steps(Steps& steps) const {
  constexpr double whole = 0.8;
  if (steps.count() < 2) return;
  const auto is_step = [&](std::size_t step) { return step < steps.kind.size(); };
  // How much it has of what the nearest ones have, of that which it has most of: not all do the
  // same.
  const auto like = [&](std::size_t step, EventIndex end, auto&& nearest) {
    std::optional<double> most;
    int compared = 0;
    for (auto other = nearest(step); is_step(other) && compared < 8; other = nearest(other)) {
      if (steps.kind[other] != steps.kind[step]) continue;
      ++compared;
      most = std::max(most.value_or(0),
                      holds(steps.begin[step], end, steps.begin[other], steps.begin[other + 1]));
    }
    return most;
  };
  const auto last = steps.kind.size() - 1;
  auto end = steps.begin[last + 1];
  const auto before = [](std::size_t step) { return step - 1; };
  bool failed = false;
  // An allocation that failed and was survived is no end, and one behind all that a step does is
  // none of it.
  const auto oom =
      std::find_if(trace_.begin() + steps.begin[last], trace_.begin() + end,
                   [](const TraceEvent& event) { return event.kind == EventKind::oom; });
  const auto failed_at = static_cast<EventIndex>(oom - trace_.begin());
  const auto allocations = [&](EventIndex from, EventIndex to) {
    return std::count_if(trace_.begin() + from, trace_.begin() + to,
                         [](const TraceEvent& event) { return event.kind == EventKind::alloc; });
  };
  // A mark ends with the step that failed, too: nothing is allocated in it any more.
  if (failed_at != end && (end == trace_.size() || allocations(failed_at, end) == 0)) {
    failed = true;
    if (like(last, failed_at, before) == 1.0 &&
        allocations(steps.begin[last], failed_at) >=
            allocations(steps.begin[last - 1], steps.begin[last])) {
      failed = false;
      end = steps.begin[last + 1] = failed_at;
    }
  }
  // Steps that draw what they do at random are as unlike each other as the one at the end.
  const auto is_part = [&](double part, std::size_t step, auto&& nearest) {
    if (part >= whole) return false;
    double usual = 1;
    for (int compared = 0; compared < 3 && is_step(step = nearest(step)); ++compared) {
      usual = std::min(usual, like(step, steps.begin[step + 1], nearest).value_or(1));
    }
    return part < whole * usual;
  };
  const auto previous = like(last, end, before);
  if (previous && (failed || (!steps.ends_whole && is_part(*previous, last, before)))) {
    steps.begin.pop_back();
    steps.kind.pop_back();
    steps.last_cut = true;
  }
  if (!lifetimes_.begins_late() || steps.count() < 2) return;
  const auto after = [](std::size_t step) { return step + 1; };
  const auto next = like(0, steps.begin[1], after);
  if (next && is_part(*next, 0, after)) {
    steps.begin.erase(steps.begin.begin());
    steps.kind.erase(steps.kind.begin());
  }
  steps.first_cut = steps.begin.front() > 0;
}

// Annotations are counted apart from the trace and may reach farther back.
void Finder::count_before(Steps& steps) const {
  if (!lifetimes_.begins_late() || !timed() || steps.before > 0 || steps.count() == 0) return;
  const auto spans = optimizer_spans();
  const auto from = trace_[steps.begin.front()].time_us;
  // The last optimizer step may allocate nothing and so lie behind the last event.
  const auto to = steps.begin.back() < trace_.size() ? trace_[steps.begin.back()].time_us
                                                     : std::numeric_limits<std::int64_t>::max();
  std::int64_t before = 0;
  std::int64_t within = 0;
  std::int64_t last = 0;
  // By their ends: one that calls a closure begins before all that its step does.
  for (std::size_t span = 0; span < spans.end.size(); ++span) {
    const auto end = spans.end[span];
    before += end < from ? 1 : 0;
    if (end < from || end >= to) continue;
    ++within;
    last = std::min(steps.of(at_time(spans.start[span])), steps.count() - 1);
  }
  if (within == 0) return;
  const auto training =
      std::ranges::count_if(steps.kind, [&](std::uint8_t kind) { return steps.trains[kind]; });
  if (steps.cycle.length() > 0 && within == training) {
    steps.before = before + others_before(steps, before);
    return;
  }
  // Steps of a kind that came with the last one of the optimizer or behind it, as an evaluation
  // after the training does, are none of those before.
  std::vector<bool> comes_again(256);
  for (std::int64_t step = 0; step < std::max<std::int64_t>(1, last); ++step) {
    comes_again[steps.kind[static_cast<std::size_t>(step)]] = true;
  }
  // One to a step, or several, or several steps to one: nearly whole ratios are whole.
  const auto count =
      std::ranges::count_if(steps.kind, [&](std::uint8_t kind) { return comes_again[kind]; });
  const auto often = std::max<std::int64_t>(1, (count + within / 2) / within);
  const auto many = std::max<std::int64_t>(1, (within + count / 2) / count);
  if (std::abs(count - often * within) <= often) {
    steps.before = before * often;
  } else if (std::abs(within - many * count) <= many) {
    steps.before = before / many;
  } else {
    steps.before = (before * count + within / 2) / within;
  }
}

void Finder::number_kinds(Steps& steps) const {
  std::vector<std::int64_t> counts(256);
  for (const auto kind : steps.kind) ++counts[kind];
  std::vector<std::uint8_t> order;
  for (std::size_t kind = 0; kind < counts.size(); ++kind) {
    if (counts[kind] > 0) order.push_back(static_cast<std::uint8_t>(kind));
  }
  std::ranges::sort(order, [&](auto left, auto right) {
    return std::pair(counts[right], left) < std::pair(counts[left], right);
  });
  std::vector<std::uint8_t> number(256);
  for (std::size_t place = 0; place < order.size(); ++place) {
    number[order[place]] = static_cast<std::uint8_t>(place);
  }
  for (auto& kind : steps.kind) kind = number[kind];
  steps.steps_of_kind.resize(order.size());
  for (std::size_t step = 0; step < steps.kind.size(); ++step) {
    steps.steps_of_kind[steps.kind[step]].push_back(static_cast<std::int64_t>(step));
  }
  for (const auto& of_kind : steps.steps_of_kind) {
    const auto with = std::ranges::count_if(
        of_kind, [&](std::int64_t step) { return has_backward(steps, step); });
    steps.trains.push_back(with * 10 >= std::ssize(of_kind) * 9);
  }
  if (steps.count() > 0) steps.cycle = cycle_of(steps);
}

bool Finder::has_backward(const Steps& steps, std::int64_t step) const {
  const auto at = static_cast<std::size_t>(step);
  return std::any_of(trace_.begin() + steps.begin[at], trace_.begin() + steps.begin[at + 1],
                     [&](const TraceEvent& event) {
                       return event.kind == EventKind::alloc && sites_.stack(event.stack).path == 0;
                     });
}

// By what is more alike from one iteration to the next.
std::optional<Steps> Finder::by_sizes_or_lives() const {
  auto sizes = by_loop(LoopBy::sizes);
  auto lives = by_loop(LoopBy::lives);
  if (!lives || (sizes && sizes->confidence >= lives->confidence - 0.01)) return sizes;
  return lives;
}

Steps Finder::asked_for() const {
  for (const auto by : {LoopBy::stacks, LoopBy::sizes, LoopBy::lives}) {
    if (by != LoopBy::stacks && !options_.step_file.empty()) continue;
    if (auto steps = by_loop(by)) return *steps;
  }
  if (auto steps = by_optimizer(); steps && std::abs(steps->count() - options_.steps) <= 1) {
    steps->source = "given";
    return *steps;
  }
  Steps none;
  const DiagnoseOptions open;
  none.why_none =
      not_as_told(options_, find_steps(snapshot_, device_, sites_, lifetimes_, open), sites_);
  return none;
}

Steps Finder::find() {
  Steps steps;
  std::optional<Steps> loop;
  if (options_.steps != 0 || !options_.step_file.empty()) {
    steps = asked_for();
  } else if (auto marked = by_annotations()) {
    steps = *marked;
  } else if (auto metadata = by_metadata()) {
    steps = *metadata;
  } else if (loop = by_loop(LoopBy::stacks); loop && !are_parts_of_steps(*loop)) {
    steps = *loop;
  } else if (auto snapshots = by_snapshots()) {
    steps = *snapshots;
  } else if (auto optimizer = by_optimizer()) {
    steps = *optimizer;
  } else if (auto frameless = sites_.any_frames() ? std::nullopt : by_sizes_or_lives()) {
    steps = *frameless;
  } else if (loop) {
    steps.why_none = fmt::format(
        "the {} iterations found are parts of one or two steps, as their marks or an optimizer "
        "tell; {}, or say --steps {} where they are steps",
        loop->count(), recording_of_steps(sites_), loop->count());
  } else {
    steps.why_none = fmt::format(
        "no steps were found, as nothing comes again and again and frees what it allocated, beyond "
        "what one step does by itself; {}{}",
        recording_of_steps(sites_),
        // Without frames the number seldom helps: no size need come once in each step.
        sites_.any_frames() ? ", or say --steps N or --step-site FILE:LINE" : "");
  }
  drop_cut_steps(steps);
  number_kinds(steps);
  count_before(steps);
  return steps;
}

}  // namespace

std::int64_t Steps::last_phase() const {
  // The last step of any other kind ends where it begins.
  std::int64_t first = 0;
  for (std::size_t of = 0; of < steps_of_kind.size(); ++of) {
    if (of != kind.back()) first = std::max(first, steps_of_kind[of].back() + 1);
  }
  return first;
}

std::int64_t Steps::of(EventIndex event) const {
  return std::ranges::upper_bound(begin, event) - begin.begin() - 1;
}

Steps find_steps(const Snapshot& snapshot, std::size_t device, const Sites& sites,
                 const Lifetimes& lifetimes, const DiagnoseOptions& options) {
  return Finder(snapshot, device, sites, lifetimes, options).find();
}

}  // namespace leaklab

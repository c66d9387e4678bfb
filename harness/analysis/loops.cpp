// How loops are found.
//
// An allocation says through its stack which line of the loop's body asked for it. Only the outer
// part of the stack counts, down to the first frame that is inside one step by its nature: a layer,
// an optimizer, a backward pass. So the layers of a forward pass are one visit of one line, however
// many there are.
//
// An anchor is what every iteration does once: a line that allocates, or a line that allocates one
// size. Each line is tried as an anchor: it explains as many events as lie between its visits if
// all were as short as the shorter ones, and what lies between one pair of visits must be like what
// lies between the next, or be the same lines of the outermost function one after the other. Of the
// anchors that explain most, the one with the most visits wins: steps, not epochs. A line with
// several allocations is visited no oftener than the rarest of them comes. A line that goes round
// by itself counts only in a program that does little else.
//
// What goes round most may be a part of a step, and a line that is visited less may go round the
// steps. What has a backward pass of its own is a step, unless the line further out has another one
// besides, as where an attack is searched for in each step. Else the line further out goes round
// steps if it has a backward pass and the other one has none, if its rounds differ in length as
// requests and episodes do, or, in a program without backward passes, if it stands before all that
// its rounds do: a request that sets something up and then makes its tokens.
//
// Where the iterations of a loop are now and then much longer than usual, or something is left
// after its last one, what they hold beyond the usual is searched in the same way: evaluation
// between training.
//
// Between two anchors the new iteration begins where the lines jump back farthest in the outermost
// function that they move in; where only one line is seen, where least is live.
#include "loops.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "tokens.h"

namespace leaklab {
namespace {

constexpr double enough_alike = 0.6;
constexpr std::int64_t most_depth = 3;

// How an iteration begins: with what, and how its line lies to the last one of the iteration
// before.
struct Beginning {
  std::uint32_t symbol = 0;
  std::uint32_t shared = 0;
  bool back = false;
  friend auto operator<=>(const Beginning&, const Beginning&) = default;
};

struct Candidate {
  std::uint32_t key = 0;
  std::int64_t explained = 0;
  std::vector<std::uint32_t> at;  // positions in the searched sequence
  double alike = 0;
  bool one_line = false;  // most iterations are operations of a single line
  bool trains = false;    // nearly all iterations have a backward pass
  bool rotates = false;   // known to be one of several lines that come one after the other
};

// The visits of `inner` in each iteration of `outer`.
std::vector<std::span<const std::uint32_t>> rounds_of(const Candidate& outer,
                                                      const Candidate& inner) {
  std::vector<std::span<const std::uint32_t>> rounds;
  auto from = inner.at.begin();
  for (std::size_t visit = 1; visit < outer.at.size(); ++visit) {
    from = std::lower_bound(from, inner.at.end(), outer.at[visit - 1]);
    const auto to = std::lower_bound(from, inner.at.end(), outer.at[visit]);
    rounds.emplace_back(from, to);
  }
  return rounds;
}

// Tokens of the trace that are searched, by their index.
using Sequence = std::vector<std::uint32_t>;

// By position in a sequence, which stretch of the trace it comes from; empty: all from one.
using Parts = std::vector<std::uint32_t>;

struct FoundLoop {
  std::vector<std::uint32_t> anchors;  // tokens
  double alike = 0;
};

class Search {
 public:
  Search(const Trace& trace, const Sites& sites, const Lifetimes& lifetimes, LoopBy by,
         const LoopWish& wish)
      : trace_(trace),
        sites_(sites),
        lifetimes_(lifetimes),
        by_(by),
        wish_(wish),
        all_(by == LoopBy::stacks  ? tokens_by_stack(trace, sites, lifetimes)
             : by == LoopBy::sizes ? tokens_by_size(trace, lifetimes)
                                   : tokens_by_life(trace, lifetimes)),
        tokens_(all_.tokens),
        symbols_(all_.symbols) {
    if (by == LoopBy::stacks && wish_.count == 0 && wish_.stacks.empty()) {
      least_calls_ = least_calls();
    }
    others_before_.resize(tokens_.size() + 1);
    for (std::size_t at = 0; at < tokens_.size(); ++at) {
      others_before_[at + 1] = others_before_[at] + (tokens_[at].symbol == 0 ? 1 : 0);
    }
    if (others_before_.back() > 0) {
      set_up_ = static_cast<std::size_t>(std::ranges::upper_bound(others_before_, 0U) -
                                         others_before_.begin() - 1);
      // A few events without frames at the end are no training.
      if ((tokens_.size() - set_up_) * 20 < tokens_.size()) set_up_ = 0;
    }
    scratch_.resize(all_.contents + 1);
  }

  LoopsFound found();

 private:
  bool wished(const Token& token) const {
    return wish_.stacks.empty() || wish_.stacks[trace_[token.event].stack];
  }
  std::vector<Candidate> candidates(const Sequence& sequence, bool outermost) const;
  double alike(const Sequence& sequence, const Parts& parts, const std::vector<std::uint32_t>& at);
  bool rotates(const Sequence& sequence, const Candidate& candidate) const;
  double freed_soon(const Sequence& sequence, const std::vector<std::uint32_t>& at) const;
  // Whether the token allocates what is freed before the token `limit`.
  bool freed_within(std::uint32_t token, std::uint32_t limit) const;
  std::int64_t pairs_with_others(const Sequence& sequence,
                                 const std::vector<std::uint32_t>& at) const;
  double with_others(const Sequence& sequence, const std::vector<std::uint32_t>& at) const;
  // Whether the line itself allocates or frees, by an operation and no layer.
  bool is_operation(std::uint32_t token) const {
    const auto callee = sites_.stack(trace_[tokens_[token].event].stack).callee;
    return callee == no_frame || (sites_.frame(callee).framework && !sites_.frame(callee).layer);
  }
  // Whether the iteration from one place to the next frees any of what it allocates.
  bool frees_something(const Sequence& sequence, std::uint32_t from, std::uint32_t to) const {
    return std::any_of(sequence.begin() + from, sequence.begin() + to,
                       [&](std::uint32_t token) { return freed_within(token, sequence[to]); });
  }
  // Whether most of what iterations allocate is freed before the next but one begins.
  bool frees_most(const Sequence& sequence, const std::vector<std::uint32_t>& at) const;
  // Whether most iterations call a module of the model.
  bool calls_modules(const Sequence& sequence, const std::vector<std::uint32_t>& at) const;
  bool is_one_line(const Sequence& sequence, const std::vector<std::uint32_t>& at) const;
  bool stands_before(const Sequence& sequence, const Candidate& outer,
                     const Candidate& inner) const;
  bool has_backward_besides(const Sequence& sequence, const Candidate& outer,
                            const Candidate& inner) const;
  bool updates_in_rounds(const Sequence& sequence, const Candidate& outer,
                         const Candidate& inner) const;
  bool is_outer(const Sequence& sequence, const Candidate& outer, const Candidate& inner,
                bool above, bool others_matter) const;
  bool explains_enough(const Sequence& sequence, const Candidate& candidate,
                       const Candidate& most) const;
  std::size_t least_calls() const;
  std::optional<Candidate> choose(const Sequence& sequence, const Parts& parts, std::int64_t depth);
  void search(const Sequence& sequence, const Parts& parts, std::int64_t depth,
              std::vector<FoundLoop>& loops);
  std::uint32_t cut(std::uint32_t from, std::uint32_t to) const;
  std::uint32_t lowest(std::uint32_t first, std::uint32_t last) const;
  Beginning beginning(std::uint32_t before, std::uint32_t at) const;
  std::vector<std::uint32_t> begun_besides(const std::vector<std::uint32_t>& anchors,
                                           const std::vector<std::uint32_t>& cuts) const;
  std::uint32_t first_cut(const std::vector<std::uint32_t>& anchors,
                          const std::vector<std::uint32_t>& cuts) const;
  PathId path(std::uint32_t token) const { return symbols_[tokens_[token].symbol].path; }
  std::uint32_t content(std::uint32_t token) const { return tokens_[token].content; }

  const Trace& trace_;
  const Sites& sites_;
  const Lifetimes& lifetimes_;
  LoopBy by_;
  const LoopWish& wish_;
  const Tokens all_;
  const std::vector<Token>& tokens_;
  const std::vector<Symbol>& symbols_;
  std::size_t least_calls_ = 3;
  std::vector<std::uint32_t> others_before_;  // tokens without symbol before each token
  std::size_t set_up_ = 0;                    // tokens before the first such token
  // By content, how often in one stretch and in the next; all 0 between uses.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> scratch_;
  std::vector<std::int64_t> levels_;  // bytes before each event, of what is freed in the trace
};

// Every key with at least three visits: symbols, then sized ones. The best first. `outermost`:
// lines of the outermost function may tell by themselves.
std::vector<Candidate> Search::candidates(const Sequence& sequence, bool outermost) const {
  const auto symbols = static_cast<std::uint32_t>(symbols_.size());
  const auto keys = symbols + static_cast<std::uint32_t>(all_.sized_symbol.size());
  const auto visit = [&](auto use) {
    std::uint32_t last_place = 0;
    for (std::uint32_t at = 0; at < sequence.size(); ++at) {
      const auto& token = tokens_[sequence[at]];
      const auto& symbol = symbols_[token.symbol];
      const bool stays = symbol.place == last_place && !symbol.direct;
      last_place = symbol.place;
      if (!symbol.alloc || !wished(token)) continue;
      if (!stays) use(token.symbol, at);
      if (token.sized != 0) use(symbols + token.sized, at);
    }
  };
  std::vector<std::uint32_t> visits(keys);
  visit([&](std::uint32_t key, std::uint32_t) { ++visits[key]; });
  // By line, how often each of its sizes comes, in ascending order.
  std::vector<std::vector<std::uint32_t>> sizes(symbols);
  for (std::uint32_t sized = 1; sized < all_.sized_symbol.size(); ++sized) {
    sizes[all_.sized_symbol[sized]].push_back(visits[symbols + sized]);
  }
  for (auto& times : sizes) std::ranges::sort(times);
  // A size that comes far more rarely than another one of its line is an exception in it, and one
  // of many that come by chance is none that each iteration has.
  const auto is_rare = [&](std::uint32_t symbol, std::uint32_t times) {
    const auto& all = sizes[symbol];
    const auto as_often = std::ranges::lower_bound(all, times - times / 4);
    const auto of_these = std::accumulate(as_often, all.end(), std::int64_t{0});
    return times * 4 < all.back() || of_these * 2 < std::int64_t{visits[symbol]};
  };
  std::vector<std::uint32_t> row(keys, HashIndex::none);
  std::vector<Candidate> found;
  for (std::uint32_t key = 0; key < keys; ++key) {
    if (visits[key] < 3) continue;
    if (key >= symbols) {
      const auto symbol = all_.sized_symbol[key - symbols];
      if (symbols_[symbol].direct ? is_rare(symbol, visits[key]) : visits[key] < least_calls_) {
        continue;
      }
    }
    if (wish_.count != 0 && std::abs(static_cast<std::int64_t>(visits[key]) - wish_.count) > 1) {
      continue;
    }
    row[key] = static_cast<std::uint32_t>(found.size());
    found.push_back({key, 0, {}, 0});
    found.back().at.reserve(visits[key]);
  }
  visit([&](std::uint32_t key, std::uint32_t at) {
    if (row[key] != HashIndex::none) found[row[key]].at.push_back(at);
  });
  std::vector<std::uint32_t> gaps;
  for (auto& candidate : found) {
    gaps.clear();
    for (std::size_t at = 1; at < candidate.at.size(); ++at) {
      gaps.push_back(candidate.at[at] - candidate.at[at - 1]);
    }
    const auto short_one = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() * 3 / 10);
    std::ranges::nth_element(gaps, short_one);
    candidate.explained = std::int64_t{*short_one} * static_cast<std::int64_t>(gaps.size());
    // Rounds of one loop may be as uneven as they like.
    const auto span = std::int64_t{candidate.at.back()} - candidate.at.front();
    if (outermost && candidate.explained * 10 < span * 6 && rotates(sequence, candidate)) {
      candidate.explained = span;
      candidate.rotates = true;
    }
  }
  std::ranges::sort(found, [](const Candidate& left, const Candidate& right) {
    return std::pair(right.explained, left.key) < std::pair(left.explained, right.key);
  });
  return found;
}

// How often a line that calls a module, and allocates all there is for a while, must do the same
// to be steps and no layers or time steps of a single call. Layers have parameters of their own,
// which were there before. What stands before or after the layers comes once; and where a line of
// the program in the call does all there is, a loop may go round in it.
std::size_t Search::least_calls() const {
  constexpr auto never = static_cast<std::size_t>(-1);
  const auto is_one = [&](const Token& token) {
    return token.sized != 0 && !symbols_[token.symbol].direct;
  };
  const auto first = std::ranges::find_if(tokens_, is_one);
  if (first == tokens_.end()) return never;
  const auto last = std::find_if(tokens_.rbegin(), tokens_.rend(), is_one);
  std::size_t like_first = 0;
  std::size_t like_last = 0;
  // The frames that all allocations have in common, outermost last.
  auto common = sites_.frames(trace_[first->event].stack);
  std::vector<bool> seen(sites_.stacks());
  for (const auto& token : tokens_) {
    if (!is_one(token)) continue;
    like_first += token.content == first->content ? 1 : 0;
    like_last += token.content == last->content ? 1 : 0;
    const auto stack = trace_[token.event].stack;
    if (seen[stack]) continue;
    seen[stack] = true;
    const auto frames = sites_.frames(stack);
    const auto differ =
        std::mismatch(common.rbegin(), common.rend(), frames.rbegin(), frames.rend());
    common = common.last(static_cast<std::size_t>(differ.first - common.rbegin()));
  }
  const bool goes_on = std::ranges::any_of(common, [&](FrameId id) {
    const auto& frame = sites_.frame(id);
    return frame.layer && !frame.framework;
  });
  if (!lifetimes_.blocks || goes_on || like_first < 3 || like_last < 3) return never;
  std::size_t parameters = 0;
  for (const auto& each : lifetimes_.allocations) {
    if (each.born >= first->event) break;
    const auto& made = sites_.stack(trace_[each.born].stack);
    const bool by_operation = made.path != 0 && made.callee == no_frame;
    parameters += each.freed == no_event && !by_operation ? 1 : 0;
  }
  parameters += lifetimes_.unborn.size();
  // A layer may do the same several times.
  return parameters == 0 ? never : std::max<std::size_t>(6, 4 * parameters + 1);
}

// The usual likeness of what lies between one pair of visits and the next: what they have in common
// by what is in either, counting how often, and by what the one that does less has at all, since an
// iteration may go round a loop of its own or do something besides. Looks at a part of a long
// trace.
double Search::alike(const Sequence& sequence, const Parts& parts,
                     const std::vector<std::uint32_t>& at) {
  constexpr std::size_t most_pairs = 48;
  constexpr std::size_t most_tokens = 1'000'000;
  std::vector<double> likeness;
  // What lies between two stretches is not known, so pairs in one are compared where there are any.
  std::vector<std::size_t> pairs;
  for (std::size_t pair = 0; pair + 2 < at.size(); ++pair) {
    if (parts.empty() || parts[at[pair]] == parts[at[pair + 2]]) pairs.push_back(pair);
  }
  if (pairs.empty()) {
    pairs.resize(at.size() - 2);
    std::iota(pairs.begin(), pairs.end(), std::size_t{0});
  }
  const auto stride = std::max<std::size_t>(1, pairs.size() / most_pairs);
  std::size_t looked_at = 0;
  for (auto next = pairs.size() % stride; next < pairs.size() && looked_at < most_tokens;
       next += stride) {
    const auto pair = pairs[next];
    const auto from = at[pair];
    const auto middle = at[pair + 1];
    const auto to = at[pair + 2];
    looked_at += to - from;
    std::int64_t common = 0;
    std::array<std::int64_t, 2> kinds{};
    std::int64_t common_kinds = 0;
    for (auto q = from; q < middle; ++q) ++scratch_[content(sequence[q])].first;
    for (auto q = middle; q < to; ++q) ++scratch_[content(sequence[q])].second;
    for (auto q = from; q < to; ++q) {
      const auto [first, second] = std::exchange(scratch_[content(sequence[q])], {0, 0});
      kinds[0] += first > 0 ? 1 : 0;
      kinds[1] += second > 0 ? 1 : 0;
      common_kinds += first > 0 && second > 0 ? 1 : 0;
      common += std::min(first, second);
    }
    const auto either = static_cast<double>(to - from) - static_cast<double>(common);
    const auto fewer = static_cast<double>(std::max<std::int64_t>(1, std::min(kinds[0], kinds[1])));
    likeness.push_back(
        0.5 * (static_cast<double>(common) / either + static_cast<double>(common_kinds) / fewer));
  }
  // Sizes or lives alone don't tell layers from steps, but what stands between the layers of two
  // steps does.
  if (by_ != LoopBy::stacks) {
    return std::accumulate(likeness.begin(), likeness.end(), 0.0) /
           static_cast<double>(likeness.size());
  }
  const auto median = likeness.begin() + static_cast<std::ptrdiff_t>(likeness.size() / 2);
  std::ranges::nth_element(likeness, median);
  return *median;
}

// Whether the candidate's line is one of several that the program moves through again and again in
// the outermost function in which it moves at all: most of the lines there come once between two
// visits, whatever else their calls do.
bool Search::rotates(const Sequence& sequence, const Candidate& candidate) const {
  constexpr std::size_t most_tokens = 100'000;  // looks at a part of a long trace
  const auto line = path(sequence[candidate.at.front()]);
  const auto caller = sites_.caller(line);
  const auto depth = sites_.depth(line);
  std::vector<PathId> line_of(symbols_.size());
  std::map<PathId, std::size_t> visits;  // of lines between two visits of this one
  std::map<PathId, std::size_t> once;    // by line, in how many rounds it comes once
  for (std::size_t symbol = 1; symbol < symbols_.size(); ++symbol) {
    line_of[symbol] = sites_.outermost(symbols_[symbol].path, depth);
  }
  const std::size_t span = candidate.at.back() - candidate.at.front();
  const auto stride = 1 + span / most_tokens;
  std::size_t rounds = 0;
  for (auto visit = stride; visit < candidate.at.size(); visit += stride) {
    ++rounds;
    visits.clear();
    PathId last = 0;
    for (auto q = candidate.at[visit - 1]; q < candidate.at[visit]; ++q) {
      const auto now = line_of[tokens_[sequence[q]].symbol];
      if (sites_.caller(now) != caller || sites_.depth(now) != depth) return false;
      if (std::exchange(last, now) != now) ++visits[now];
    }
    for (const auto& [its, times] : visits) once[its] += times == 1 ? 1 : 0;
  }
  const auto often = std::ranges::count_if(
      once, [&](const auto& each) { return each.second * 20 >= rounds * 19; });
  return rounds >= 2 && once[line] == rounds && often >= 2 && often * 2 >= std::ssize(once);
}

// The part of the bytes allocated between two visits that is freed before the visit after next: a
// step frees what it allocates, a layer of a forward pass does not.
double Search::freed_soon(const Sequence& sequence, const std::vector<std::uint32_t>& at) const {
  double allocated = 0;
  double freed = 0;
  for (std::size_t visit = 0; visit + 2 < at.size(); ++visit) {
    const auto limit = tokens_[sequence[at[visit + 2]]].event;
    for (auto q = at[visit]; q < at[visit + 1]; ++q) {
      // Without frames, tokens are allocations.
      const auto& allocation = lifetimes_.allocations[sequence[q]];
      const auto bytes = static_cast<double>(trace_[allocation.born].size);
      allocated += bytes;
      if (allocation.freed <= limit) freed += bytes;
    }
  }
  return allocated == 0 ? 0 : freed / allocated;
}

bool Search::freed_within(std::uint32_t token, std::uint32_t limit) const {
  const auto& allocations = lifetimes_.allocations;
  const auto found =
      std::ranges::lower_bound(allocations, tokens_[token].event, {}, &Allocation::born);
  return found != allocations.end() && found->born == tokens_[token].event &&
         found->freed < tokens_[limit].event;
}

// The pairs of visits between which there are tokens without symbol: a backward pass.
std::int64_t Search::pairs_with_others(const Sequence& sequence,
                                       const std::vector<std::uint32_t>& at) const {
  std::int64_t with = 0;
  for (std::size_t visit = 1; visit < at.size(); ++visit) {
    const auto from = sequence[at[visit - 1]];
    const auto to = sequence[at[visit]];
    with += others_before_[to] > others_before_[from] ? 1 : 0;
  }
  return with;
}

double Search::with_others(const Sequence& sequence, const std::vector<std::uint32_t>& at) const {
  return static_cast<double>(pairs_with_others(sequence, at)) / static_cast<double>(at.size() - 1);
}

bool Search::frees_most(const Sequence& sequence, const std::vector<std::uint32_t>& at) const {
  constexpr std::int64_t most_looked_at = 10'000;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;
  for (std::size_t visit = 2; visit < at.size() && allocated < most_looked_at; ++visit) {
    for (auto q = at[visit - 2]; q < at[visit - 1]; ++q) {
      if (!symbols_[tokens_[sequence[q]].symbol].alloc) continue;
      ++allocated;
      freed += freed_within(sequence[q], sequence[at[visit]]) ? 1 : 0;
    }
  }
  return freed * 2 > allocated;
}

bool Search::calls_modules(const Sequence& sequence, const std::vector<std::uint32_t>& at) const {
  std::size_t calling = 0;
  for (std::size_t visit = 1; visit < at.size(); ++visit) {
    calling +=
        std::any_of(sequence.begin() + at[visit - 1], sequence.begin() + at[visit],
                    [&](std::uint32_t token) { return symbols_[tokens_[token].symbol].layer; })
            ? 1
            : 0;
  }
  return calling * 2 >= at.size() - 1;
}

bool Search::is_one_line(const Sequence& sequence, const std::vector<std::uint32_t>& at) const {
  const auto line = path(sequence[at.front()]);
  std::size_t others = 0;
  for (std::size_t visit = 1; visit < at.size(); ++visit) {
    for (auto q = at[visit - 1]; q < at[visit]; ++q) {
      if (path(sequence[q]) == line && is_operation(sequence[q])) continue;
      ++others;
      break;
    }
  }
  return others * 2 < at.size() - 1;
}

// Whether the line of `outer` stands before all that one round of `inner` does. A line that only
// some rounds run mostly stands behind something that all of them do.
bool Search::stands_before(const Sequence& sequence, const Candidate& outer,
                           const Candidate& inner) const {
  constexpr std::size_t most_tokens = 10'000;
  const auto line = path(sequence[outer.at.front()]);
  std::size_t looked_at = 0;
  bool after = false;
  for (std::size_t visit = 1; visit < inner.at.size() && looked_at < most_tokens; ++visit) {
    const auto from = inner.at[visit - 1];
    const auto to = inner.at[visit];
    const auto next = std::ranges::lower_bound(outer.at, from);
    if (next != outer.at.end() && *next <= to) continue;
    looked_at += to - from;
    for (auto q = from; q < to; ++q) {
      const auto fork = sites_.fork(line, path(sequence[q]));
      if (!fork.same_function) continue;
      if (fork.back > 0) return false;
      after = after || fork.back < 0;
    }
  }
  return after;
}

// Whether most rounds of `outer` have a backward pass besides those of the rounds of `inner`.
bool Search::has_backward_besides(const Sequence& sequence, const Candidate& outer,
                                  const Candidate& inner) const {
  const auto others = [&](std::uint32_t from, std::uint32_t to) {
    return others_before_[sequence[to]] - others_before_[sequence[from]];
  };
  std::size_t with = 0;
  const auto all = rounds_of(outer, inner);
  for (std::size_t visit = 0; visit < all.size(); ++visit) {
    const auto rounds = all[visit];
    if (rounds.size() < 2) continue;
    std::uint32_t most = 0;
    for (std::size_t round = 1; round < rounds.size(); ++round) {
      most = std::max(most, others(rounds[round - 1], rounds[round]));
    }
    // What the last round does is in it as well.
    const auto besides =
        others(outer.at[visit], rounds.front()) + others(rounds.back(), outer.at[visit + 1]);
    with += besides * 2 >= most * 3 ? 1 : 0;
  }
  return with * 10 >= (outer.at.size() - 1) * 9;
}

// Whether an optimizer works between the first and the last round of `inner` in one of `outer`.
bool Search::updates_in_rounds(const Sequence& sequence, const Candidate& outer,
                               const Candidate& inner) const {
  const auto optimizes = [&](std::uint32_t token) {
    const auto callee = sites_.stack(trace_[tokens_[token].event].stack).callee;
    return callee != no_frame && sites_.frame(callee).optimizer;
  };
  return std::ranges::any_of(rounds_of(outer, inner), [&](const auto& rounds) {
    return rounds.size() >= 2 && std::any_of(sequence.begin() + rounds.front(),
                                             sequence.begin() + rounds.back(), optimizes);
  });
}

// Whether `outer` goes round steps of which `inner` goes round parts: layers, tokens of a request,
// steps of an episode. `above`: it stands in a function further out.
bool Search::is_outer(const Sequence& sequence, const Candidate& outer, const Candidate& inner,
                      bool above, bool others_matter) const {
  constexpr std::size_t least = 5;
  if (outer.at.size() < least) return false;
  // A size that comes now and then on a line that is visited far oftener goes round nothing.
  if (outer.key >= symbols_.size()) {
    const auto line = tokens_[sequence[outer.at.front()]].symbol;
    const auto visits = std::ranges::count_if(
        sequence, [&](std::uint32_t token) { return tokens_[token].symbol == line; });
    if (visits > 2 * std::ssize(outer.at)) return false;
  }
  // How often the inner loop goes round in each iteration of the outer one.
  std::vector<std::size_t> rounds;
  for (const auto& each : rounds_of(outer, inner)) rounds.push_back(each.size());
  std::ranges::sort(rounds);
  const auto fewest = rounds[rounds.size() / 10];
  const auto median = rounds[rounds.size() / 2];
  const auto usual = std::ranges::count(rounds, median);
  // What most rounds do once, and some again: a step that failed is done in pieces.
  if (above && fewest == 1 && median == 1 && stands_before(sequence, outer, inner)) return true;
  // What has a backward pass of its own is a step, but for the search of an attack in it. What
  // updates parameters is a step in any case, and what goes round it an epoch.
  if (inner.trains) {
    return (above || stands_before(sequence, outer, inner)) && median >= 2 && median <= 20 &&
           has_backward_besides(sequence, outer, inner) &&
           !updates_in_rounds(sequence, outer, inner);
  }
  // Epochs are equally long or few, requests and episodes are not. A line that only some steps run
  // is followed by the next step often.
  constexpr std::size_t many = 10;
  const bool uneven = usual * 4 <= static_cast<std::int64_t>(rounds.size()) * 3;
  if (uneven && fewest >= 2 && outer.at.size() >= many) return true;
  // Without any backward pass: a request that sets something up and then makes its tokens.
  const bool forward_only = others_before_.back() * 10 <= tokens_.size();
  const auto all = std::accumulate(rounds.begin(), rounds.end(), std::size_t{0});
  if (forward_only && fewest >= 1 && all >= 2 * rounds.size() &&
      stands_before(sequence, outer, inner)) {
    return true;
  }
  // What has no backward pass of its own while the loop around it has one: an episode that learns
  // several times on its way is no step. Micro-batches whose losses are summed for one backward
  // pass are steps.
  return (above || !calls_modules(sequence, inner.at) || stands_before(sequence, outer, inner)) &&
         others_matter && with_others(sequence, inner.at) < 0.55 &&
         pairs_with_others(sequence, inner.at) * 2 <= std::ssize(outer.at) * 3 &&
         with_others(sequence, outer.at) > 0.7;
}

// Whether a candidate explains enough beside the one that explains most. Steps of a training are a
// part of what an epoch does that evaluates as long; requests of several tokens differ in length.
bool Search::explains_enough(const Sequence& sequence, const Candidate& candidate,
                             const Candidate& most) const {
  if (candidate.explained * 10 >= most.explained * 6) return true;
  if (candidate.explained * 10 < most.explained * 3) return false;
  const bool of_a_size = candidate.key >= symbols_.size();
  if (!of_a_size && candidate.at.size() * 2 <= most.at.size()) return true;
  return candidate.trains && candidate.at.size() >= 2 * most.at.size() &&
         !has_backward_besides(sequence, most, candidate);
}

std::optional<Candidate> Search::choose(const Sequence& sequence, const Parts& parts,
                                        std::int64_t depth) {
  constexpr std::size_t most_tried = 60;
  const bool asked = wish_.count != 0 || !wish_.stacks.empty();
  const bool outermost = by_ == LoopBy::stacks && depth == 0 && !asked;
  auto all = candidates(sequence, outermost);
  std::vector<Candidate> good;
  const auto others = others_before_.back();
  const bool others_matter = depth == 0 && others * 25 > tokens_.size() - set_up_;
  for (std::size_t tried = 0; tried < all.size() && tried < most_tried; ++tried) {
    auto& candidate = all[tried];
    if (!good.empty() && candidate.explained * 10 < good.front().explained) break;
    const auto with = others_matter ? with_others(sequence, candidate.at) : 0;
    candidate.trains = with > 0.9;
    if (!good.empty() && !good.front().one_line &&
        !explains_enough(sequence, candidate, good.front())) {
      continue;
    }
    candidate.one_line = by_ == LoopBy::stacks && !asked && is_one_line(sequence, candidate.at);
    candidate.alike = alike(sequence, parts, candidate.at);
    if (!asked && candidate.alike < enough_alike) {
      if (!candidate.rotates && (!outermost || !rotates(sequence, candidate))) continue;
      candidate.alike = enough_alike;
    }
    if (by_ != LoopBy::stacks && wish_.count == 0 &&
        (candidate.at.size() < 6 || freed_soon(sequence, candidate.at) < 0.8)) {
      continue;
    }
    const auto first = sequence[candidate.at.front()];
    const auto last = sequence[candidate.at.back()];
    if (others_matter) {
      // Layers or a data set, all before the one backward pass. What replays a graph comes after
      // the passes that it was captured from, and frees most of what it allocates.
      if (others_before_[first] == others_before_[last] &&
          (others_before_[first] < others || !frees_most(sequence, candidate.at))) {
        continue;
      }
      // Parts of one or two steps.
      if (others_before_[first] < others && with < 0.5 &&
          with * static_cast<double>(candidate.at.size() - 1) < 2.5)
        continue;
    }
    good.push_back(std::move(candidate));
  }
  if (good.empty()) return std::nullopt;
  // A line that goes round by itself, such as a comprehension, is a part of what several lines do,
  // or of a program that does little else.
  if (std::ranges::all_of(good, &Candidate::one_line)) {
    const auto events = static_cast<std::int64_t>(sequence.size());
    if (depth == 0 && good.front().explained * 2 < events) return std::nullopt;
  } else {
    std::erase_if(good, &Candidate::one_line);
    const auto& most = good.front();
    good.erase(std::remove_if(
                   good.begin() + 1, good.end(),
                   [&](const Candidate& each) { return !explains_enough(sequence, each, most); }),
               good.end());
  }
  const auto first = good.front().at.front();
  const auto last = good.front().at.back();
  std::erase_if(good, [&](const Candidate& each) {
    return each.at.front() >= last || each.at.back() <= first;
  });
  if (wish_.count != 0) return good.front();
  if (by_ != LoopBy::stacks) {
    const auto most = std::ranges::max_element(good, {}, &Candidate::alike)->alike;
    std::erase_if(good, [&](const Candidate& each) { return each.alike < most - 0.05; });
  }
  const auto symbols = symbols_.size();
  const auto path_of = [&](const Candidate& each) {
    return symbols_[each.key < symbols ? each.key : all_.sized_symbol[each.key - symbols]].path;
  };
  // Of each line the rarest, then of all lines the most frequent.
  std::map<PathId, const Candidate*> rarest;
  for (const auto& each : good) {
    auto& known = rarest[by_ == LoopBy::stacks ? path_of(each) : each.key];
    if (known == nullptr || each.at.size() < known->at.size()) known = &each;
  }
  std::size_t most = 0;
  for (const auto& [path, each] : rarest) most = std::max(most, each->at.size());
  // A size that comes once more by chance is outvoted by what else comes about as often.
  std::map<std::size_t, std::int64_t> votes;
  for (const auto& each : good) ++votes[each.at.size()];
  const auto better = [&](const Candidate& left, const Candidate& right) {
    const auto left_votes = votes[left.at.size()];
    const auto right_votes = votes[right.at.size()];
    if (left_votes != right_votes) return left_votes > right_votes;
    if (left.at.size() != right.at.size()) return left.at.size() > right.at.size();
    if (left.explained != right.explained) return left.explained > right.explained;
    return left.at.front() < right.at.front();
  };
  const Candidate* best = nullptr;
  for (const auto& [path, each] : rarest) {
    if (each->at.size() * 10 < most * 9) continue;
    if (best == nullptr || better(*each, *best)) best = each;
  }
  if (by_ != LoopBy::stacks) return *best;
  // The loop that goes round most may be a part of a step, and what goes round it as well.
  for (const Candidate* outer = best; outer != nullptr;) {
    best = outer;
    outer = nullptr;
    for (const auto& each : good) {
      if (each.at.size() >= best->at.size()) continue;
      if (outer != nullptr && each.at.size() <= outer->at.size()) continue;
      const bool above = sites_.depth(path_of(each)) < sites_.depth(path_of(*best));
      if (is_outer(sequence, each, *best, above, others_matter)) outer = &each;
    }
  }
  return *best;
}

void Search::search(const Sequence& sequence, const Parts& parts, std::int64_t depth,
                    std::vector<FoundLoop>& loops) {
  if (sequence.size() < 3) return;
  const auto chosen = choose(sequence, parts, depth);
  if (!chosen) return;
  FoundLoop loop;
  loop.alike = chosen->alike;
  for (const auto at : chosen->at) loop.anchors.push_back(sequence[at]);
  loops.push_back(std::move(loop));
  if (depth == most_depth || wish_.count != 0 || !wish_.stacks.empty()) return;

  const auto& at = chosen->at;
  std::vector<std::uint32_t> gaps;
  for (std::size_t visit = 1; visit < at.size(); ++visit) gaps.push_back(at[visit] - at[visit - 1]);
  auto sorted = gaps;
  std::ranges::sort(sorted);
  const auto median = sorted[sorted.size() / 2];
  const auto is_long = [&](std::uint32_t gap) { return gap * 2 > median * 3; };
  // What comes with every fourth iteration or more often is a part of it: an image sampled, say.
  const bool often_long = std::ranges::count_if(gaps, is_long) * 4 > std::ssize(gaps);
  std::vector<bool> usual(all_.places + 1);
  for (std::size_t visit = 0; visit < gaps.size(); ++visit) {
    if (is_long(gaps[visit]) && !often_long) continue;
    for (auto q = at[visit]; q < at[visit + 1]; ++q) {
      usual[symbols_[tokens_[sequence[q]].symbol].place] = true;
    }
  }
  // What the long iterations hold beyond the usual, each by itself, and what follows the last one.
  Sequence beyond;
  Parts part_of;
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t part) {
    for (auto q = from; q < to; ++q) {
      if (usual[symbols_[tokens_[sequence[q]].symbol].place]) continue;
      beyond.push_back(sequence[q]);
      part_of.push_back(part);
    }
  };
  for (std::size_t visit = 0; visit < gaps.size(); ++visit) {
    if (is_long(gaps[visit])) {
      add(at[visit], at[visit + 1], static_cast<std::uint32_t>(visit));
    }
  }
  add(at.back(), static_cast<std::uint32_t>(sequence.size()),
      static_cast<std::uint32_t>(gaps.size()));
  const bool runs_model = calls_modules(sequence, at);
  std::vector<FoundLoop> inner;
  search(beyond, part_of, depth + 1, inner);
  for (auto& each : inner) {
    // What comes once in each long iteration is the end of an epoch and no loop; what frees
    // nothing, or comes in a few short rounds, is a line that copies or adds up many tensors.
    std::vector<std::uint32_t> lengths;
    std::vector<std::uint32_t> places;
    std::size_t in_a_row = 0;
    std::size_t most_in_a_row = 0;
    std::uint32_t last_part = HashIndex::none;
    std::size_t freeing = 0;
    for (const auto token : each.anchors) {
      const auto place = std::ranges::lower_bound(beyond, token) - beyond.begin();
      const auto part = part_of[static_cast<std::size_t>(place)];
      places.push_back(static_cast<std::uint32_t>(place));
      in_a_row = part == last_part ? in_a_row + 1 : 1;
      most_in_a_row = std::max(most_in_a_row, in_a_row);
      if (part == last_part) {
        const auto last_place = places[places.size() - 2];
        lengths.push_back(places.back() - last_place);
        freeing += frees_something(beyond, last_place, places.back()) ? 1 : 0;
      }
      last_part = part;
    }
    if (lengths.empty() || freeing * 2 < lengths.size()) continue;
    // Where steps run a model, what runs none in them is a part: meters that are read, a log.
    const bool after_all = part_of[places.front()] == gaps.size();
    if (runs_model && !after_all && !calls_modules(beyond, places)) continue;
    std::ranges::sort(lengths);
    if (lengths[lengths.size() / 2] >= 4 || most_in_a_row >= 8) loops.push_back(std::move(each));
  }
  const Sequence before(sequence.begin(), sequence.begin() + at.front());
  std::vector<FoundLoop> earlier;
  search(before, {}, depth + 1, earlier);
  // A loop that takes no longer than one iteration is a part of the first one, which made something
  // for the others and so looked otherwise, or has its anchor behind its loop.
  const auto usual_length = (sequence[at.back()] - sequence[at.front()]) / (at.size() - 1);
  std::uint32_t longest = 0;
  for (std::size_t visit = 1; visit < at.size(); ++visit) {
    longest = std::max(longest, sequence[at[visit]] - sequence[at[visit - 1]]);
  }
  for (auto& each : earlier) {
    const auto length = each.anchors.back() - each.anchors.front();
    const bool is_part = usual[symbols_[tokens_[each.anchors.front()].symbol].place];
    if (length < usual_length || (is_part && length < 2 * longest)) continue;
    // What frees nothing, or runs no model where steps do, is set-up.
    std::vector<std::uint32_t> places;
    for (const auto token : each.anchors) {
      places.push_back(
          static_cast<std::uint32_t>(std::ranges::lower_bound(before, token) - before.begin()));
    }
    if (runs_model && !calls_modules(before, places)) continue;
    std::size_t freeing = 0;
    for (std::size_t visit = 1; visit < places.size(); ++visit) {
      freeing += frees_something(before, places[visit - 1], places[visit]) ? 1 : 0;
    }
    if (freeing * 2 < places.size() - 1) continue;
    loops.push_back(std::move(each));
  }
}

// The token in (from, to] at which the iteration of the anchor `to` begins.
std::uint32_t Search::cut(std::uint32_t from, std::uint32_t to) const {
  std::uint32_t best = 0;
  Sites::Fork best_fork;
  bool found = false;
  auto last = from;
  for (auto at = from + 1; at <= to; ++at) {
    if (tokens_[at].symbol == 0) continue;
    if (path(last) != path(at)) {
      const auto fork = sites_.fork(path(last), path(at));
      const bool better =
          !found || fork.shared < best_fork.shared ||
          (fork.shared == best_fork.shared &&
           std::max<std::int64_t>(fork.back, 0) >= std::max<std::int64_t>(best_fork.back, 0));
      if (better) {
        best = at;
        best_fork = fork;
        found = true;
      }
    }
    last = at;
  }
  return found ? best : lowest(from + 1, to);
}

// The last of the tokens [first, last] before which least is live.
std::uint32_t Search::lowest(std::uint32_t first, std::uint32_t last) const {
  auto lowest = last;
  for (auto at = last + 1; at-- > first;) {
    if (tokens_[at].symbol == 0 || trace_[tokens_[at].event].kind != EventKind::alloc) continue;
    if (levels_[tokens_[at].event] < levels_[tokens_[lowest].event]) lowest = at;
  }
  return lowest;
}

// Where the first iteration begins: at the line that the others begin with, or where least is live,
// as they do.
std::uint32_t Search::first_cut(const std::vector<std::uint32_t>& anchors,
                                const std::vector<std::uint32_t>& cuts) const {
  if (cuts.empty()) return anchors.front();
  // No farther back than the others begin before their anchors.
  std::uint32_t span = 0;
  for (std::size_t each = 0; each < cuts.size(); ++each) {
    span = std::max(span, anchors[each + 1] - cuts[each]);
  }
  span = std::min(span, anchors.front());
  if (by_ != LoopBy::stacks) return lowest(anchors.front() - span, anchors.front());
  std::map<PathId, std::int64_t> begins;
  for (const auto at : cuts) ++begins[path(at)];
  const auto usual =
      std::ranges::max_element(begins, {}, [](const auto& entry) { return entry.second; })->first;
  auto first = anchors.front();
  for (std::uint32_t back = 1; back <= span; ++back) {
    const auto at = anchors.front() - back;
    if (tokens_[at].symbol != 0 && path(at) == usual) first = at;
  }
  return first;
}

Beginning Search::beginning(std::uint32_t before, std::uint32_t at) const {
  const auto fork = sites_.fork(path(before), path(at));
  return {tokens_[at].symbol, fork.shared, fork.back > 0};
}

// Iterations that never got to their anchor: one that failed, or that the trace ends in. They begin
// as the others do, if nearly all of these begin alike and nothing else in them looks so.
std::vector<std::uint32_t> Search::begun_besides(const std::vector<std::uint32_t>& anchors,
                                                 const std::vector<std::uint32_t>& cuts) const {
  if (by_ != LoopBy::stacks || cuts.size() < 3) return {};
  const auto previous = [&](std::uint32_t at) {
    do --at;
    while (tokens_[at].symbol == 0);
    return at;
  };
  std::map<Beginning, std::size_t> beginnings;
  for (const auto at : cuts) ++beginnings[beginning(previous(at), at)];
  const auto usual = std::ranges::max_element(beginnings, {}, [](const auto& entry) {
                       return entry.second;
                     })->first;
  std::vector<std::uint32_t> besides;
  std::size_t gaps = 0;
  std::size_t next = 0;
  auto last = anchors.front();
  auto last_gap = HashIndex::none;
  for (auto at = last + 1; at < tokens_.size(); ++at) {
    if (tokens_[at].symbol == 0) continue;
    while (next < cuts.size() && cuts[next] < at) ++next;
    const bool cut = next < cuts.size() && cuts[next] == at;
    if (!cut && path(last) != path(at) && tokens_[at].symbol == usual.symbol &&
        beginning(last, at) == usual) {
      besides.push_back(at);
      gaps += std::exchange(last_gap, static_cast<std::uint32_t>(next)) != next ? 1 : 0;
    }
    last = at;
  }
  const bool rare = beginnings[usual] * 10 >= cuts.size() * 6 && gaps * 8 <= cuts.size();
  return rare ? besides : std::vector<std::uint32_t>{};
}

LoopsFound Search::found() {
  LoopsFound result;
  if (tokens_.empty()) return result;
  // Of what is freed again: what stays, such as a workspace of the first iteration, is in the way.
  levels_.resize(trace_.size() + 1);
  for (const auto& allocation : lifetimes_.allocations) {
    if (allocation.freed >= trace_.size()) continue;
    levels_[allocation.born + 1] += trace_[allocation.born].size;
    levels_[allocation.freed + 1] -= trace_[allocation.born].size;
  }
  std::partial_sum(levels_.begin(), levels_.end(), levels_.begin());
  Sequence sequence;
  for (std::uint32_t at = 0; at < tokens_.size(); ++at) {
    if (tokens_[at].symbol != 0) sequence.push_back(at);
  }
  std::vector<FoundLoop> loops;
  search(sequence, {}, 0, loops);
  if (loops.empty()) return result;
  std::size_t steps = 0;
  for (const auto& loop : loops) steps += loop.anchors.size();
  std::size_t earliest = tokens_.size();
  std::size_t latest = 0;
  for (const auto& loop : loops) {
    earliest = std::min<std::size_t>(earliest, loop.anchors.front());
    latest = std::max<std::size_t>(
        latest, loop.anchors.back() + loop.anchors.back() - loop.anchors[loop.anchors.size() - 2]);
  }
  // Set-up may be larger than all steps.
  const auto set_up = latest > set_up_ ? set_up_ : 0;
  result.covered =
      static_cast<double>(std::min(latest, tokens_.size()) - std::max(earliest, set_up)) /
      static_cast<double>(tokens_.size() - set_up);
  result.alike = loops.front().alike;
  // A few iterations before all others are preparation: warming up for a capture, say.
  std::ranges::sort(loops, {}, [](const FoundLoop& loop) { return loop.anchors.front(); });
  while (loops.size() > 1 && loops[0].anchors.back() < loops[1].anchors.front() &&
         loops[0].anchors.size() * 4 <= steps) {
    steps -= loops[0].anchors.size();
    loops.erase(loops.begin());
  }
  std::vector<std::pair<std::uint32_t, std::uint8_t>> anchors;
  for (std::size_t loop = 0; loop < loops.size(); ++loop) {
    for (const auto token : loops[loop].anchors) {
      anchors.emplace_back(token, static_cast<std::uint8_t>(std::min<std::size_t>(loop, 255)));
    }
  }
  std::ranges::sort(anchors);
  std::vector<std::uint32_t> tokens;
  for (const auto& [token, kind] : anchors) {
    tokens.push_back(token);
    result.kind.push_back(kind);
  }
  std::vector<std::uint32_t> cuts;
  for (std::size_t each = 1; each < tokens.size(); ++each) {
    cuts.push_back(cut(tokens[each - 1], tokens[each]));
  }
  std::vector<std::pair<std::uint32_t, std::uint8_t>> begins;
  begins.emplace_back(first_cut(tokens, cuts), result.kind.front());
  for (std::size_t each = 0; each < cuts.size(); ++each) {
    begins.emplace_back(cuts[each], result.kind[each + 1]);
  }
  for (const auto at : begun_besides(tokens, cuts)) begins.emplace_back(at, result.kind.front());
  std::ranges::sort(begins);
  result.kind.clear();
  for (const auto& [at, kind] : begins) {
    result.begin.push_back(tokens_[at].event);
    result.kind.push_back(kind);
  }
  return result;
}

}  // namespace

LoopsFound find_loops(const Trace& trace, const Sites& sites, const Lifetimes& lifetimes, LoopBy by,
                      const LoopWish& wish) {
  return Search(trace, sites, lifetimes, by, wish).found();
}

}  // namespace leaklab

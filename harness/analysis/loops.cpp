// How loops are found.
//
// An allocation says through its stack which line of the loop's body asked for it. Only the outer
// part of the stack counts, down to the first frame that is inside one step by its nature: a layer,
// an optimizer, a backward pass. So the layers of a forward pass are one visit of one line, however
// many there are.
//
// An anchor is what every iteration does once: a line that allocates, or a line that allocates one
// size. Each line is tried as an anchor: it explains as many events as lie between its visits if all
// were as short as the shorter ones, and what lies between one pair of visits must be like what lies
// between the next. Of the anchors that explain most, the one with the most visits wins: steps, not
// epochs. A line with several allocations is visited no oftener than the rarest of them comes.
//
// Where the iterations of a loop are now and then much longer than usual, or something is left after
// its last one, what they hold beyond the usual is searched in the same way: evaluation between
// training.
//
// Between two anchors the new iteration begins where the lines jump back farthest in the outermost
// function that they move in; where only one line is seen, where least is live.
#include "loops.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace leaklab {
namespace {

constexpr double enough_alike = 0.7;
constexpr std::int64_t most_depth = 3;

struct Token {
  EventIndex event = 0;
  std::uint32_t content = 0;  // what makes two iterations alike
  std::uint32_t symbol = 0;   // 0: no part of the program's loop, such as a backward pass
  std::uint32_t sized = 0;    // 0: no anchor by its size
};

struct Symbol {
  PathId path = 0;
  std::uint32_t place = 0;  // the line, whether it allocates or frees
  bool alloc = false;
  bool direct = false;  // the line itself allocates, nothing that it calls
};

std::uint64_t mixed(std::uint64_t left, std::uint64_t right) {
  auto hash = left * 0x9e3779b97f4a7c15u + right;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93u;
  return hash ^ (hash >> 29);
}

struct PairHash {
  std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& pair) const {
    return mixed(pair.first, pair.second);
  }
};
using PairIds = std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t, PairHash>;

std::uint32_t id_of(PairIds& ids, std::uint64_t first, std::uint64_t second) {
  return ids.try_emplace({first, second}, static_cast<std::uint32_t>(ids.size()) + 1).first->second;
}

// Whether frees carry the stack that freed, not the one that had allocated.
bool frees_have_own_stacks(std::span<const TraceEvent> trace, const Lifetimes& lifetimes) {
  std::int64_t frees = 0;
  std::int64_t same = 0;
  for (const auto& allocation : lifetimes.allocations) {
    if (allocation.freed >= trace.size()) continue;
    const auto& freed = trace[allocation.freed];
    if (freed.kind != lifetimes.free_kind) continue;
    ++frees;
    same += freed.stack == trace[allocation.born].stack ? 1 : 0;
  }
  return same * 10 < frees * 9;
}

struct Candidate {
  std::uint32_t key = 0;
  std::int64_t explained = 0;
  std::vector<std::uint32_t> at;  // positions in the searched sequence
  double alike = 0;
};

// Tokens of the trace that are searched, by their index.
using Sequence = std::vector<std::uint32_t>;

struct FoundLoop {
  std::vector<std::uint32_t> anchors;  // tokens
  double alike = 0;
};

class Search {
 public:
  Search(std::span<const TraceEvent> trace, const Sites& sites, const Lifetimes& lifetimes, LoopBy by,
         const LoopWish& wish)
      : trace_(trace), sites_(sites), lifetimes_(lifetimes), by_(by), wish_(wish) {
    if (by == LoopBy::stacks) {
      tokens_by_stack();
    } else {
      tokens_by_size();
    }
    others_before_.resize(tokens_.size() + 1);
    for (std::size_t at = 0; at < tokens_.size(); ++at) {
      others_before_[at + 1] = others_before_[at] + (tokens_[at].symbol == 0 ? 1 : 0);
    }
    scratch_.resize(contents_ + 1);
  }

  LoopsFound found();

 private:
  void tokens_by_stack();
  void tokens_by_size();
  PathId main_root() const;
  bool wished(const Token& token) const {
    return wish_.stacks.empty() || wish_.stacks[trace_[token.event].stack];
  }
  std::vector<Candidate> candidates(const Sequence& sequence) const;
  double alike(const Sequence& sequence, const std::vector<std::uint32_t>& at);
  double freed_soon(const Sequence& sequence, const std::vector<std::uint32_t>& at) const;
  double with_others(const Sequence& sequence, const std::vector<std::uint32_t>& at) const;
  std::optional<Candidate> choose(const Sequence& sequence, std::int64_t depth);
  void search(const Sequence& sequence, std::int64_t depth, std::vector<FoundLoop>& loops);
  std::uint32_t cut(std::uint32_t from, std::uint32_t to) const;
  std::uint32_t begun_at_end(const std::vector<std::uint32_t>& cuts, std::uint32_t last) const;
  std::uint32_t first_cut(const std::vector<std::uint32_t>& anchors,
                          const std::vector<std::uint32_t>& cuts) const;
  PathId path(std::uint32_t token) const { return symbols_[tokens_[token].symbol].path; }

  std::span<const TraceEvent> trace_;
  const Sites& sites_;
  const Lifetimes& lifetimes_;
  LoopBy by_;
  const LoopWish& wish_;
  std::vector<Token> tokens_;
  std::vector<Symbol> symbols_{Symbol{}};      // by symbol
  std::vector<std::uint32_t> sized_symbol_{0};  // by sized: its symbol
  std::vector<std::uint32_t> others_before_;   // tokens without symbol before each token
  std::uint32_t contents_ = 0;
  std::uint32_t places_ = 0;
  std::vector<std::int32_t> scratch_;  // by content, all 0 between uses
  std::vector<std::int64_t> levels_;   // before each event
};

PathId Search::main_root() const {
  // By function: the same function stands on several lines.
  std::map<std::pair<StringId, StringId>, std::pair<std::int64_t, PathId>> roots;
  std::vector<std::int64_t> stacks(sites_.stacks());
  for (const auto& event : trace_) {
    if (event.kind == EventKind::alloc) ++stacks[event.stack];
  }
  for (StackId id = 0; id < stacks.size(); ++id) {
    const auto path = sites_.stack(id).path;
    if (stacks[id] == 0 || path == 0) continue;
    const auto root = sites_.root(path);
    auto& [events, first] = roots[sites_.function_of(sites_.last_frame(root))];
    events += stacks[id];
    if (first == 0) first = root;
  }
  PathId best = 0;
  std::int64_t most = 0;
  for (const auto& [function, root] : roots) {
    if (root.first > most) {
      most = root.first;
      best = root.second;
    }
  }
  return best;
}

void Search::tokens_by_stack() {
  const auto root = main_root();
  if (root == 0) return;
  const auto main = sites_.function_of(sites_.last_frame(root));
  const bool frees = frees_have_own_stacks(trace_, lifetimes_);
  PairIds places;
  PairIds sized;
  std::vector<std::uint32_t> place_symbols;  // place * 2 + alloc
  std::vector<std::uint32_t> symbol_of(sites_.stacks() * 2, HashIndex::none);
  for (EventIndex at = 0; at < trace_.size(); ++at) {
    const auto& event = trace_[at];
    const bool alloc = event.kind == EventKind::alloc;
    if (!alloc && (!frees || event.kind != lifetimes_.free_kind)) continue;
    const auto content = event.stack * 2 + (alloc ? 1 : 0);
    auto& symbol = symbol_of[content];
    if (symbol == HashIndex::none) {
      const auto& stack = sites_.stack(event.stack);
      if (stack.path == 0 ||
          sites_.function_of(sites_.last_frame(sites_.root(stack.path))) != main) {
        symbol = 0;
      } else {
        const auto place = id_of(places, stack.path, stack.callee);
        place_symbols.resize(std::max<std::size_t>(place_symbols.size(), place * 2 + 2));
        auto& known = place_symbols[place * 2 + (alloc ? 1 : 0)];
        if (known == 0) {
          known = static_cast<std::uint32_t>(symbols_.size());
          symbols_.push_back({stack.path, place, alloc, stack.callee == no_frame});
        }
        symbol = known;
      }
    }
    Token token{at, content, symbol, 0};
    if (symbol != 0 && alloc && symbols_[symbol].direct) {
      token.sized = id_of(sized, symbol, static_cast<std::uint64_t>(event.size));
      if (token.sized == sized_symbol_.size()) sized_symbol_.push_back(symbol);
    }
    tokens_.push_back(token);
  }
  contents_ = static_cast<std::uint32_t>(sites_.stacks() * 2);
  places_ = static_cast<std::uint32_t>(places.size());
}

void Search::tokens_by_size() {
  PairIds sizes;
  for (const auto& allocation : lifetimes_.allocations) {
    const auto& event = trace_[allocation.born];
    const auto id = id_of(sizes, static_cast<std::uint64_t>(event.size), 0);
    if (id == symbols_.size()) symbols_.push_back({0, id, true, true});
    tokens_.push_back({allocation.born, id, id, 0});
  }
  contents_ = static_cast<std::uint32_t>(symbols_.size());
  places_ = contents_;
}

// Every key with at least three visits: symbols, then sized ones. The best first.
std::vector<Candidate> Search::candidates(const Sequence& sequence) const {
  const auto symbols = static_cast<std::uint32_t>(symbols_.size());
  const auto keys = symbols + static_cast<std::uint32_t>(sized_symbol_.size());
  const auto visit = [&](auto use) {
    std::uint32_t last_place = 0;
    for (std::uint32_t at = 0; at < sequence.size(); ++at) {
      const auto& token = tokens_[sequence[at]];
      const auto& symbol = symbols_[token.symbol];
      const bool stays = symbol.place == last_place && !symbol.direct;
      last_place = symbol.place;
      if (!symbol.alloc || stays || !wished(token)) continue;
      use(token.symbol, at);
      if (token.sized != 0) use(symbols + token.sized, at);
    }
  };
  std::vector<std::uint32_t> visits(keys);
  visit([&](std::uint32_t key, std::uint32_t) { ++visits[key]; });
  // The most frequent size of each line: a size that comes far more rarely is an exception in it.
  std::vector<std::uint32_t> most_of_symbol(symbols);
  for (std::uint32_t sized = 1; sized < sized_symbol_.size(); ++sized) {
    auto& most = most_of_symbol[sized_symbol_[sized]];
    most = std::max(most, visits[symbols + sized]);
  }
  std::vector<std::uint32_t> row(keys, HashIndex::none);
  std::vector<Candidate> found;
  for (std::uint32_t key = 0; key < keys; ++key) {
    if (visits[key] < 3) continue;
    if (key >= symbols && visits[key] * 4 < most_of_symbol[sized_symbol_[key - symbols]]) continue;
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
  }
  std::ranges::stable_sort(found, std::ranges::greater{}, &Candidate::explained);
  return found;
}

// The median likeness of what lies between one pair of visits and the next: tokens in common by
// those in either. Looks at a part of a long trace.
double Search::alike(const Sequence& sequence, const std::vector<std::uint32_t>& at) {
  constexpr std::size_t most_pairs = 48;
  constexpr std::size_t most_tokens = 1'000'000;
  std::vector<double> likeness;
  const auto pairs = at.size() - 2;
  const auto stride = std::max<std::size_t>(1, pairs / most_pairs);
  std::size_t looked_at = 0;
  for (std::size_t pair = pairs % stride; pair < pairs && looked_at < most_tokens; pair += stride) {
    std::int64_t apart = 0;
    const auto from = at[pair];
    const auto middle = at[pair + 1];
    const auto to = at[pair + 2];
    looked_at += to - from;
    for (auto q = from; q < middle; ++q) ++scratch_[tokens_[sequence[q]].content];
    for (auto q = middle; q < to; ++q) --scratch_[tokens_[sequence[q]].content];
    for (auto q = from; q < to; ++q) {
      apart += std::abs(std::exchange(scratch_[tokens_[sequence[q]].content], 0));
    }
    const auto total = static_cast<double>(to - from);
    // Twice the common ones are the total less those apart.
    likeness.push_back((total - static_cast<double>(apart)) / (total + static_cast<double>(apart)));
  }
  const auto median = likeness.begin() + static_cast<std::ptrdiff_t>(likeness.size() / 2);
  std::ranges::nth_element(likeness, median);
  return *median;
}

// The part of the bytes allocated between two visits that is freed before the visit after next: a
// step frees what it allocates, a layer of a forward pass does not.
double Search::freed_soon(const Sequence& sequence, const std::vector<std::uint32_t>& at) const {
  double allocated = 0;
  double freed = 0;
  for (std::size_t visit = 0; visit + 2 < at.size(); ++visit) {
    const auto limit = tokens_[sequence[at[visit + 2]]].event;
    for (auto q = at[visit]; q < at[visit + 1]; ++q) {
      // By size, tokens are allocations.
      const auto& allocation = lifetimes_.allocations[sequence[q]];
      const auto bytes = static_cast<double>(trace_[allocation.born].size);
      allocated += bytes;
      if (allocation.freed <= limit) freed += bytes;
    }
  }
  return allocated == 0 ? 0 : freed / allocated;
}

// The part of the pairs of visits between which there are tokens without symbol: a backward pass.
double Search::with_others(const Sequence& sequence, const std::vector<std::uint32_t>& at) const {
  std::int64_t with = 0;
  for (std::size_t visit = 1; visit < at.size(); ++visit) {
    const auto from = sequence[at[visit - 1]];
    const auto to = sequence[at[visit]];
    with += others_before_[to] > others_before_[from] ? 1 : 0;
  }
  return static_cast<double>(with) / static_cast<double>(at.size() - 1);
}

std::optional<Candidate> Search::choose(const Sequence& sequence, std::int64_t depth) {
  constexpr std::size_t most_tried = 60;
  auto all = candidates(sequence);
  std::vector<Candidate> good;
  const auto others = others_before_.back();
  const bool others_matter = depth == 0 && others * 10 > tokens_.size();
  for (std::size_t tried = 0; tried < all.size() && tried < most_tried; ++tried) {
    auto& candidate = all[tried];
    if (!good.empty() && candidate.explained * 10 < good.front().explained * 6) break;
    candidate.alike = alike(sequence, candidate.at);
    if (candidate.alike < enough_alike) continue;
    if (by_ == LoopBy::sizes && wish_.count == 0 && freed_soon(sequence, candidate.at) < 0.8) continue;
    const auto first = sequence[candidate.at.front()];
    const auto last = sequence[candidate.at.back()];
    // Layers, all before the one backward pass.
    if (others_matter && others_before_[first] == others_before_[last]) continue;
    good.push_back(std::move(candidate));
  }
  if (good.empty()) return std::nullopt;
  const auto first = good.front().at.front();
  const auto last = good.front().at.back();
  std::erase_if(good, [&](const Candidate& each) {
    return each.at.front() >= last || each.at.back() <= first;
  });
  if (wish_.count != 0) return good.front();
  const auto symbols = symbols_.size();
  const auto path_of = [&](const Candidate& each) {
    return symbols_[each.key < symbols ? each.key : sized_symbol_[each.key - symbols]].path;
  };
  // Of each line the rarest, then of all lines the most frequent.
  std::map<PathId, const Candidate*> rarest;
  for (const auto& each : good) {
    auto& known = rarest[by_ == LoopBy::stacks ? path_of(each) : each.key];
    if (known == nullptr || each.at.size() < known->at.size()) known = &each;
  }
  const Candidate* best = nullptr;
  for (const auto& [path, each] : rarest) {
    if (best == nullptr || each->at.size() > best->at.size() ||
        (each->at.size() == best->at.size() &&
         (each->explained > best->explained ||
          (each->explained == best->explained && each->at.front() < best->at.front())))) {
      best = each;
    }
  }
  if (by_ == LoopBy::stacks && others_matter && with_others(sequence, best->at) < 0.3) {
    // A loop in a function that the step calls, over layers say, has no backward pass of its own.
    for (const auto& [path, each] : rarest) {
      if (sites_.depth(path_of(*each)) < sites_.depth(path_of(*best)) &&
          with_others(sequence, each->at) > 0.9) {
        return *each;
      }
    }
  }
  return *best;
}

void Search::search(const Sequence& sequence, std::int64_t depth,
                    std::vector<FoundLoop>& loops) {
  if (sequence.size() < 3) return;
  const auto chosen = choose(sequence, depth);
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
  std::vector<bool> usual(places_ + 1);
  for (std::size_t visit = 0; visit < gaps.size(); ++visit) {
    if (gaps[visit] * 4 > median * 5) continue;
    for (auto q = at[visit]; q < at[visit + 1]; ++q) {
      usual[symbols_[tokens_[sequence[q]].symbol].place] = true;
    }
  }
  // What the long iterations hold beyond the usual, each by itself, and what follows the last one.
  Sequence beyond;
  std::vector<std::uint32_t> part_of;  // by position in `beyond`
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t part) {
    for (auto q = from; q < to; ++q) {
      if (usual[symbols_[tokens_[sequence[q]].symbol].place]) continue;
      beyond.push_back(sequence[q]);
      part_of.push_back(part);
    }
  };
  for (std::size_t visit = 0; visit < gaps.size(); ++visit) {
    if (gaps[visit] * 2 > median * 3) {
      add(at[visit], at[visit + 1], static_cast<std::uint32_t>(visit));
    }
  }
  add(at.back(), static_cast<std::uint32_t>(sequence.size()),
      static_cast<std::uint32_t>(gaps.size()));
  std::vector<FoundLoop> inner;
  search(beyond, depth + 1, inner);
  for (auto& each : inner) {
    // What comes once in each long iteration is the end of an epoch and no loop.
    bool repeats = false;
    std::uint32_t last_part = HashIndex::none;
    for (const auto token : each.anchors) {
      const auto place = std::ranges::lower_bound(beyond, token) - beyond.begin();
      const auto part = part_of[static_cast<std::size_t>(place)];
      repeats = repeats || part == last_part;
      last_part = part;
    }
    if (repeats) loops.push_back(std::move(each));
  }
  const Sequence before(sequence.begin(), sequence.begin() + at.front());
  search(before, depth + 1, loops);
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
  if (found) return best;
  auto lowest = to;
  for (auto at = to; at > from; --at) {
    if (tokens_[at].symbol == 0 || trace_[tokens_[at].event].kind != EventKind::alloc) continue;
    if (levels_[tokens_[at].event] < levels_[tokens_[lowest].event]) lowest = at;
  }
  return lowest;
}

// Where the first iteration begins: at the line that the others begin with.
std::uint32_t Search::first_cut(const std::vector<std::uint32_t>& anchors,
                                const std::vector<std::uint32_t>& cuts) const {
  if (cuts.empty() || by_ == LoopBy::sizes) return anchors.front();
  std::map<PathId, std::int64_t> begins;
  for (const auto at : cuts) ++begins[path(at)];
  const auto usual = std::ranges::max_element(
      begins, {}, [](const auto& entry) { return entry.second; })->first;
  // No farther back than the others begin before their anchors.
  std::uint32_t span = 0;
  for (std::size_t each = 0; each < cuts.size(); ++each) {
    span = std::max(span, anchors[each + 1] - cuts[each]);
  }
  auto first = anchors.front();
  for (auto at = anchors.front(); at-- > 0 && anchors.front() - at <= span;) {
    if (tokens_[at].symbol != 0 && path(at) == usual) first = at;
  }
  return first;
}

// Where an iteration begins that the trace ends in before it gets to its anchor; 0: none does.
std::uint32_t Search::begun_at_end(const std::vector<std::uint32_t>& cuts,
                                   std::uint32_t last) const {
  if (by_ == LoopBy::sizes || cuts.size() < 2) return 0;
  std::map<std::uint32_t, std::int64_t> begins;
  for (const auto at : cuts) ++begins[tokens_[at].symbol];
  const auto usual = std::ranges::max_element(begins, {}, [](const auto& entry) {
                       return entry.second;
                     })->first;
  auto before = last;
  for (auto at = last + 1; at < tokens_.size(); ++at) {
    if (tokens_[at].symbol == 0) continue;
    if (tokens_[at].symbol == usual && path(before) != path(at) &&
        sites_.fork(path(before), path(at)).back > 0) {
      return at;
    }
    before = at;
  }
  return 0;
}

LoopsFound Search::found() {
  LoopsFound result;
  if (tokens_.empty()) return result;
  levels_ = levels(trace_, lifetimes_);
  Sequence sequence;
  for (std::uint32_t at = 0; at < tokens_.size(); ++at) {
    if (tokens_[at].symbol != 0) sequence.push_back(at);
  }
  std::vector<FoundLoop> loops;
  search(sequence, 0, loops);
  if (loops.empty()) return result;
  std::size_t steps = 0;
  for (const auto& loop : loops) steps += loop.anchors.size();
  std::size_t earliest = tokens_.size();
  std::size_t latest = 0;
  for (const auto& loop : loops) {
    earliest = std::min<std::size_t>(earliest, loop.anchors.front());
    latest = std::max<std::size_t>(latest, loop.anchors.back() + loop.anchors.back() -
                                               loop.anchors[loop.anchors.size() - 2]);
  }
  result.covered = static_cast<double>(std::min(latest, tokens_.size()) - earliest) /
                   static_cast<double>(tokens_.size());
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
  result.begin.push_back(tokens_[first_cut(tokens, cuts)].event);
  for (const auto at : cuts) result.begin.push_back(tokens_[at].event);
  if (const auto at = begun_at_end(cuts, tokens.back()); at != 0) {
    result.begin.push_back(tokens_[at].event);
    result.kind.push_back(result.kind.back());
  }
  return result;
}

}  // namespace

LoopsFound find_loops(std::span<const TraceEvent> trace, const Sites& sites,
                      const Lifetimes& lifetimes, LoopBy by, const LoopWish& wish) {
  return Search(trace, sites, lifetimes, by, wish).found();
}

}  // namespace leaklab

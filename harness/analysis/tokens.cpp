#include "tokens.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

namespace leaklab {
namespace {

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
using PairIds =
    std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t, PairHash>;

std::uint32_t id_of(PairIds& ids, std::uint64_t first, std::uint64_t second) {
  return ids.try_emplace({first, second}, static_cast<std::uint32_t>(ids.size()) + 1).first->second;
}

// Whether frees carry the stack that freed, not the one that had allocated.
bool frees_have_own_stacks(const Trace& trace, const Lifetimes& lifetimes) {
  std::int64_t frees = 0;
  std::int64_t same = 0;
  for (const auto& allocation : lifetimes.allocations) {
    if (allocation.freed >= trace.size()) continue;
    const auto freed = trace[allocation.freed];
    if (freed.kind != lifetimes.free_kind) continue;
    ++frees;
    same += freed.stack == trace[allocation.born].stack ? 1 : 0;
  }
  return same * 10 < frees * 9;
}

PathId main_root(const Trace& trace, const Sites& sites) {
  // By function: the same function stands on several lines.
  std::map<std::pair<StringId, StringId>, std::pair<std::int64_t, PathId>> roots;
  std::vector<std::int64_t> stacks(sites.stacks());
  for (const auto event : trace) {
    if (event.kind == EventKind::alloc) ++stacks[event.stack];
  }
  for (StackId id = 0; id < stacks.size(); ++id) {
    const auto path = sites.stack(id).path;
    if (stacks[id] == 0 || path == 0) continue;
    const auto root = sites.root(path);
    auto& [events, first] = roots[sites.function_of(sites.last_frame(root))];
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

// The allocations of the line that makes most of those that call a module, if no other line
// allocates between its first and its last one.
std::vector<std::size_t> calls_of_one_line(const Tokens& found) {
  const auto allocates = [&](const Token& token) { return found.symbols[token.symbol].alloc; };
  std::vector<std::size_t> by_symbol(found.symbols.size());
  for (const auto& token : found.tokens) {
    by_symbol[token.symbol] += allocates(token) && found.symbols[token.symbol].layer ? 1 : 0;
  }
  const auto most = std::ranges::max_element(by_symbol);
  if (most == by_symbol.end() || *most == 0) return {};
  const auto symbol = static_cast<std::uint32_t>(most - by_symbol.begin());
  std::vector<std::size_t> calls;
  for (std::size_t at = 0; at < found.tokens.size() && calls.size() < *most; ++at) {
    if (found.tokens[at].symbol == symbol) {
      calls.push_back(at);
    } else if (!calls.empty() && allocates(found.tokens[at])) {
      return {};
    }
  }
  return calls;
}

// By what `value` says of an event that allocates or frees. A size alone says little: many
// allocations of a step share it. With the sizes before it, it says where in the step it is.
template <typename Value>
Tokens tokens_by(const Trace& trace, const Lifetimes& lifetimes, const Value& value) {
  Tokens found;
  constexpr std::size_t context = 8;
  PairIds values;
  PairIds places;
  std::array<std::uint64_t, context> last{};
  std::size_t next = 0;
  for (EventIndex at = 0; at < trace.size(); ++at) {
    const auto event = trace[at];
    const bool alloc = event.kind == EventKind::alloc;
    if (!alloc && event.kind != lifetimes.free_kind) continue;
    last[next] = value(at) * 2 + (alloc ? 1 : 0);
    next = (next + 1) % context;
    if (!alloc) continue;
    std::uint64_t hash = 0;
    for (std::size_t each = 0; each < context; ++each) {
      hash = mixed(hash, last[(next + each) % context]);
    }
    const auto place = id_of(places, hash, 0);
    if (place == found.symbols.size()) found.symbols.push_back({0, place, true, true});
    found.tokens.push_back({at, id_of(values, value(at), 0), place, 0});
  }
  found.contents = static_cast<std::uint32_t>(values.size());
  found.places = static_cast<std::uint32_t>(places.size());
  return found;
}

}  // namespace

Tokens tokens_by_stack(const Trace& trace, const Sites& sites, const Lifetimes& lifetimes) {
  Tokens found;
  const auto root = main_root(trace, sites);
  if (root == 0) return found;
  const auto main = sites.function_of(sites.last_frame(root));
  const bool frees = frees_have_own_stacks(trace, lifetimes);
  PairIds functions;
  PairIds places;
  PairIds sized;
  std::vector<std::uint32_t> place_symbols;  // place * 2 + alloc
  // Lines with a comprehension, which is one visit with all that the line does besides.
  std::set<PathId> gathering;
  for (StackId id = 0; id < sites.stacks(); ++id) {
    const auto& stack = sites.stack(id);
    if (stack.callee != no_frame && sites.frame(stack.callee).comprehension) {
      gathering.insert(stack.path);
    }
  }
  std::vector<std::uint32_t> symbol_of(sites.stacks() * 2, HashIndex::none);
  for (EventIndex at = 0; at < trace.size(); ++at) {
    const auto event = trace[at];
    // A request that failed begins a step as one that succeeds does.
    const bool alloc = event.kind == EventKind::alloc || event.kind == EventKind::oom;
    if (!alloc && (!frees || event.kind != lifetimes.free_kind)) continue;
    const auto content = event.stack * 2 + (alloc ? 1 : 0);
    auto& symbol = symbol_of[content];
    if (symbol == HashIndex::none) {
      const auto& stack = sites.stack(event.stack);
      if (stack.path == 0 || sites.function_of(sites.last_frame(sites.root(stack.path))) != main) {
        symbol = 0;
      } else {
        // Of the called function, whatever its line: what it does is one visit of the line above
        // it.
        std::uint32_t function = 0;
        const bool gathers = gathering.contains(stack.path);
        if (stack.callee != no_frame && !gathers) {
          const auto [file, name] = sites.function_of(stack.callee);
          function = id_of(functions, file, name);
        }
        const auto place = id_of(places, stack.path, function);
        place_symbols.resize(std::max<std::size_t>(place_symbols.size(), place * 2 + 2));
        auto& known = place_symbols[place * 2 + (alloc ? 1 : 0)];
        if (known == 0) {
          known = static_cast<std::uint32_t>(found.symbols.size());
          const bool layer = stack.callee != no_frame && sites.frame(stack.callee).layer;
          found.symbols.push_back({stack.path, place, alloc, stack.callee == no_frame && !gathers,
                                   layer && !stack.loads_model});
        }
        symbol = known;
      }
    }
    Token token{at, content, symbol, 0};
    if (symbol != 0 && alloc && found.symbols[symbol].direct) {
      token.sized = id_of(sized, symbol, static_cast<std::uint64_t>(event.size));
      if (token.sized == found.sized_symbol.size()) found.sized_symbol.push_back(symbol);
    }
    found.tokens.push_back(token);
  }
  for (const auto at : calls_of_one_line(found)) {
    auto& token = found.tokens[at];
    token.sized = id_of(sized, token.content, static_cast<std::uint64_t>(trace[token.event].size));
    if (token.sized == found.sized_symbol.size()) found.sized_symbol.push_back(token.symbol);
  }
  found.contents = static_cast<std::uint32_t>(sites.stacks() * 2);
  found.places = static_cast<std::uint32_t>(places.size());
  return found;
}

Tokens tokens_by_size(const Trace& trace, const Lifetimes& lifetimes) {
  return tokens_by(trace, lifetimes,
                   [&](EventIndex at) { return static_cast<std::uint64_t>(trace[at].size); });
}

Tokens tokens_by_life(const Trace& trace, const Lifetimes& lifetimes) {
  const auto values = lives(trace, lifetimes);
  return tokens_by(trace, lifetimes, [&](EventIndex at) { return std::uint64_t{values[at]}; });
}

}  // namespace leaklab

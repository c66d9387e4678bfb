// What of a trace a loop is looked for in: one token for each event that may tell where the program
// is.
#pragma once

#include <cstdint>
#include <vector>

#include "lifetimes.h"
#include "sites.h"

namespace leaklab {

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
  bool layer = false;   // what it calls is a module's call
};

struct Tokens {
  std::vector<Token> tokens;                   // by event
  std::vector<Symbol> symbols{Symbol{}};       // by symbol
  std::vector<std::uint32_t> sized_symbol{0};  // by sized: its symbol
  std::uint32_t contents = 0;                  // how many there are
  std::uint32_t places = 0;
};

// By the line of the loop's function that asked for it. Empty where no stack has such a line.
Tokens tokens_by_stack(const Trace& trace, const Sites& sites, const Lifetimes& lifetimes);

// By its size and the sizes before it: of allocations alone, as many as `lifetimes` has.
Tokens tokens_by_size(const Trace& trace, const Lifetimes& lifetimes);

// The same by how many events an allocation lives, which is as long whatever the size of the batch.
Tokens tokens_by_life(const Trace& trace, const Lifetimes& lifetimes);

}  // namespace leaklab

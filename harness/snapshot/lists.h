// Makes stacks, lists of rows and traces out of the elements of lists.
#pragma once

#include <span>
#include <vector>

#include "generics.h"
#include "parts.h"
#include "value.h"

namespace leaklab {

class __attribute__((visibility("hidden"))) Lists {
 public:
  Lists(Parts& parts, Generics& generics) : parts_(parts), generics_(generics) {}

  // The list with the elements, whose rows must follow each other. Throws Refusal where it is none.
  Value append(Value list, std::span<const Value> elements);
  // The stack that a Value of Tag::open_stack has become.
  Value close(Value list);

 private:
  // Remembers which element of a list of rows is none, should the list be refused for it: under a
  // key that we don't know it may hold anything.
  void note_odd_entry(Value list, std::span<const Value> elements);
  Value append_frames(Value list, std::span<const Value> elements);
  Value append_rows(Value list, std::span<const Value> elements);
  Value append_traces(Value list, std::span<const Value> elements);
  TraceAndExtras close_trace(Value events);

  Parts& parts_;
  Generics& generics_;
  std::vector<std::vector<FrameId>> open_stacks_;
  std::vector<FrameId> scratch_;
};

}  // namespace leaklab

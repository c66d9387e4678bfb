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
  // Of a list of rows to which elements come that are none: which is the first. No error where the
  // list stands under a key that we don't know.
  void note_odd_entry(Value list, std::span<const Value> elements);
  Value append_frames(Value list, std::span<const Value> elements);
  Value append_rows(Value list, std::span<const Value> elements);
  Value append_traces(Value list, std::span<const Value> elements);
  Trace close_trace(Value events);

  Parts& parts_;
  Generics& generics_;
  std::vector<std::vector<FrameId>> open_stacks_;
  std::vector<FrameId> scratch_;
};

}  // namespace leaklab

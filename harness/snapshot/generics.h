// What no table has, as JSON values: unknown keys, and lists and dicts of any other shape.
#pragma once

#include <optional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "interner.h"
#include "parts.h"
#include "tree.h"
#include "value.h"

namespace leaklab {

class Generics {
 public:
  Generics(Parts& parts, Interner& interner) : parts_(parts), interner_(interner) {}

  // The list with the elements, the dict with the items (keys and values in turn), as a Value of
  // Tag::json, or of Tag::dropped where that is too large to keep. Throw Refusal where the list is
  // none, the dict is none, or either is nested too deep.
  Value append(Value list, std::span<const Value> elements);
  Value set(Value dict, std::span<const Value> items);

  // The value as JSON, or nothing where it is too large to keep.
  std::optional<nlohmann::json> json_of(Value value);
  // Two integers that stood in a list; nothing where the value is anything else.
  std::optional<std::pair<std::int64_t, std::int64_t>> pair_of(Value value);

  // Keeps what a row has no column for, or remembers in Snapshot::dropped that it didn't.
  void keep(std::vector<Extra>& extras, std::uint32_t row, Value key, Value value);
  void drop(Value key);

 private:
  struct Generic {
    nlohmann::json value;
    std::uint32_t depth;
  };
  struct TooLarge {};

  // Throws TooLarge.
  Generic generic_of(Value value);
  Generic make(Value value);
  Generic make_rows(Value value);
  static Generic measured(nlohmann::json made);
  Value hold(Generic generic);
  Tree tree();
  void charge(std::size_t nodes);

  Parts& parts_;
  Interner& interner_;
  std::vector<Generic> held_;  // what Values of Tag::json refer to
  std::size_t nodes_ = 0;      // JSON values made so far
  std::unordered_set<StringId> dropped_;
};

}  // namespace leaklab

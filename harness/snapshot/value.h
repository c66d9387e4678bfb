// What stands on the stack while a snapshot is read.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fields.h"
#include "leaklab/snapshot.h"

namespace leaklab {

enum class Tag : std::uint8_t {
  unset,  // a number of the memo that was never set
  none,
  boolean,
  integer,
  wide_integer,   // payload: index into Parts::wide
  wide_unsigned,  // likewise
  real,           // likewise
  string,         // payload: StringId, and the Field that it means as a key; never marked
  pool,           // a tuple of two integers; payload: index into Snapshot::pools
  // From here on values are known by their identity.
  empty_list,
  empty_dict,
  stack,       // a list of frames; payload: StackId
  open_stack,  // a list of frames that may get more; payload: Lists knows
  items,       // a dict of which more may come; payload: Dicts knows
  frame,       // payload: FrameId
  json,        // payload: Generics knows
  dropped,     // too large to keep
  event,       // payload: its number, Parts::runs know; of the others: row of the table of Snapshot
  block,
  entry,  // of a block's history
  segment,
  annotation,
  events,  // a list of rows; payload: index into Parts::ranges
  blocks,
  entries,
  segments,
  annotations,
  traces,     // a list of lists of events; payload: index into Parts::trace_lists
  top,        // the snapshot itself
  used,       // a row or a list of rows that has been put somewhere
  reference,  // payload: index into the Builder's memo
};

// The tag of a list of such rows.
constexpr Tag list_of(Tag row) {
  constexpr int distance = static_cast<int>(Tag::events) - static_cast<int>(Tag::event);
  return static_cast<Tag>(static_cast<int>(row) + distance);
}

// As messages call it.
std::string_view what(Tag tag);

// 8 bytes: 7 bits of tag, a mark, 56 bits of payload. What is marked: in the Builder's memo, a
// list or dict that may still change; of a value that was taken to be put somewhere, that others
// refer to it.
class Value {
 public:
  explicit Value(Tag tag) : Value(tag, 0) {}
  template <std::integral Payload>
  Value(Tag tag, Payload payload)
      : bits_(static_cast<std::uint64_t>(payload) << 8 | static_cast<std::uint64_t>(tag)) {}
  static Value string(StringId id, Field field) {
    return {Tag::string, std::uint64_t{id} << 8 | static_cast<std::uint64_t>(field)};
  }
  static bool holds(std::int64_t value) {
    return value >= -(std::int64_t{1} << 55) && value < std::int64_t{1} << 55;
  }

  Tag tag() const { return static_cast<Tag>(bits_ & 0x7f); }
  std::int64_t payload() const { return static_cast<std::int64_t>(bits_) >> 8; }
  std::size_t index() const { return static_cast<std::size_t>(bits_ >> 8); }
  std::uint32_t id() const { return static_cast<std::uint32_t>(bits_ >> 8); }
  StringId string_id() const { return static_cast<StringId>(bits_ >> 16); }
  // What the value means as a key.
  Field field() const {
    return tag() == Tag::string ? static_cast<Field>(bits_ >> 8 & 0xff) : Field::unknown;
  }
  bool is_key(Field field) const {
    return static_cast<std::uint16_t>(bits_) == static_cast<std::uint16_t>(string(0, field).bits_);
  }
  // Whether it is known by its identity, as all are that can be marked.
  bool has_identity() const {
    return static_cast<std::uint8_t>(bits_) >= static_cast<std::uint8_t>(Tag::empty_list);
  }
  // Whether it is a value, and not known by its identity.
  bool is_plain() const {
    return static_cast<std::uint8_t>(bits_ - 1) < static_cast<std::uint8_t>(Tag::empty_list) - 1;
  }
  // Whether it is known by its identity, and no reference to it.
  bool is_object() const { return has_identity() && tag() != Tag::reference; }
  bool is_marked() const { return (bits_ & 0x80) != 0; }
  Value marked() const { return Value(bits_ | 0x80); }
  Value unmarked() const { return Value(bits_ & ~std::uint64_t{0x80}); }
  Value marked_as(Value other) const { return Value(bits_ | (other.bits_ & 0x80)); }
  friend bool operator==(Value, Value) = default;

 private:
  explicit Value(std::uint64_t bits) : bits_(bits) {}
  std::uint64_t bits_;
};

}  // namespace leaklab

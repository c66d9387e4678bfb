// Makes rows of tables out of the keys and values of dicts.
#pragma once

#include <span>
#include <vector>

#include "columns.h"
#include "generics.h"
#include "interner.h"
#include "parts.h"
#include "value.h"

namespace leaklab {

class __attribute__((visibility("hidden"))) Dicts {
 public:
  Dicts(Parts& parts, Interner& interner, Generics& generics)
      : parts_(parts), interner_(interner), generics_(generics) {}

  // The dict with the items, keys and values in turn. What it is shows from its keys: a row of a
  // table, or else a generic one. Throw Refusal where it is none, and where a column would hold a
  // value of another type.
  Value set(Value dict, std::span<const Value> items);
  // The same where more may come: what it is shows at close().
  Value set_one(Value dict, std::span<const Value> item);
  Value close(Value dict);

  // What is left of the tables when the whole file has been read and `root` is what it holds.
  Snapshot finish(Value root);

 private:
  Value hold_items();
  Value make(std::span<const Value> items);
  Value make_event(std::span<const Value> items);
  [[gnu::noinline]] void begin_run(std::size_t place);
  void add_to_event(Value event, std::span<const Value> items);
  // The number that the next event gets.
  std::uint32_t next_event() const;
  // `bytes`: that an entry takes in the file, at least.
  template <typename Row>
  Value make_row(Tag tag, std::vector<Row>& rows, std::uint64_t bytes,
                 std::span<const Value> items);

  void fill(TraceEvent& event, std::uint32_t number, std::span<const Value> items);
  void fill(HistoryEntry& entry, std::uint32_t number, std::span<const Value> items);
  void fill(Block& block, std::uint32_t number, std::span<const Value> items);
  void fill(Segment& segment, std::uint32_t number, std::span<const Value> items);
  void fill(Annotation& annotation, std::uint32_t number, std::span<const Value> items);
  Value make_frame(Frame frame, std::span<const Value> items);
  void fill_top(std::span<const Value> items);

  // Sets what the row has columns for, and gives the rest to `other`: a pointer to the key, which
  // the value follows.
  template <typename Row, typename Other>
  void fill_columns(Row& row, std::span<const Value> items, Other other);
  // Whether the row says all of the value now.
  template <typename Column, typename Row>
  bool set_column(Row& row, Value value);

  // What a column shall hold; `of` names the entry in the Refusal where it is of another type.
  std::int64_t integer_of(Value value, Field field, const char* of) const {
    return value.tag() == Tag::integer ? value.payload() : other_integer_of(value, field, of);
  }
  std::int64_t other_integer_of(Value value, Field field, const char* of) const;
  std::uint32_t pool_of(Value value, Field field, const char* of);
  // An empty list has no rows.
  Range range_of(Value value, Tag tag, Field field, const char* of) const;

  Parts& parts_;
  Interner& interner_;
  Generics& generics_;
  std::vector<std::vector<Value>> items_;  // of dicts that aren't closed
  Range segments_;
  Range annotations_;
  bool has_top_ = false;
};

}  // namespace leaklab

// Makes a snapshot's tables out of the operations of a pickle, or of a JSON text put in the same
// terms: values are pushed on a stack, and what lies on it is put into lists and dicts.
//
// There is no tree. A dict becomes a row of a table when its keys come, and what stands on the
// stack from then on is the row's number; a list of rows is a range of them, a list of frames a
// stack. Only what no table has is kept as a JSON value. A row, and a list of rows, can be put into
// one place only; strings, frames and stacks into any number. A list or dict that was put somewhere
// can't change any more, and can't be put into itself.
#pragma once

#include <optional>
#include <span>

#include "fields.h"
#include "leaklab/snapshot.h"
#include "source.h"

namespace leaklab {

class [[gnu::visibility("hidden")]] Builder {
 public:
  // `source` tells how much is still to come.
  explicit Builder(const Source& source);

  void push_none() { stack_.push_back({Tag::none, 0}); }
  void push_boolean(bool value) { stack_.push_back({Tag::boolean, value ? 1 : 0}); }
  void push_integer(std::int64_t value) {
    if (Value::holds(value)) [[likely]] {
      stack_.push_back({Tag::integer, value});
    } else {
      push_wide(Tag::wide_integer, static_cast<std::uint64_t>(value));
    }
  }
  void push_unsigned(std::uint64_t value) {
    if (value <= INT64_MAX) {
      push_integer(static_cast<std::int64_t>(value));
    } else {
      push_wide(Tag::wide_unsigned, value);
    }
  }
  void push_real(double value);
  void push_string(std::string_view text) { stack_.push_back({Tag::string, intern(text)}); }
  void push_empty_list() { stack_.push_back({Tag::empty_list, 0}); }
  void push_empty_dict() { stack_.push_back({Tag::empty_dict, 0}); }

  void mark() { marks_.push_back(stack_.size()); }
  void pop();
  void pop_mark() { stack_.resize(take_mark()); }

  void append();   // the top, to the list below it
  void appends();  // what is above the mark, to the list below it
  void set_item();
  void set_items();
  void list();   // of what is above the mark
  void dict();   // of what is above the mark
  void tuple();  // of what is above the mark
  void tuple(std::size_t size);

  void memoize() { put(memo_.size()); }
  void put(std::uint64_t index);
  void get(std::uint64_t index) {
    if (index >= memo_.size() || memo_[index] == 0) [[unlikely]]
      refuse_get(index);
    const std::uint32_t object = memo_[index] - 1;
    const Value value = objects_[object];
    if (value.tag() < Tag::empty_list) {
      stack_.push_back(value);
    } else {
      stack_.push_back({Tag::reference, object});
    }
  }

  // The snapshot, when nothing else is to come.
  Snapshot finish();

 private:
  enum class Tag : std::uint8_t {
    none,
    boolean,
    integer,
    wide_integer,   // payload: index into wide_
    wide_unsigned,  // likewise
    real,           // likewise
    string,         // payload: StringId
    pool,           // a tuple of two integers; payload: index into the pools
    // From here on values are known by their identity.
    empty_list,
    empty_dict,
    stack,       // a list of frames; payload: StackId
    open_stack,  // a list of frames that may get more; payload: index into open_stacks_
    items,       // a dict of which more may come; payload: index into items_
    frame,       // payload: FrameId
    json,        // payload: index into generics_
    dropped,     // too large to keep
    event,       // payload: row of events_, and so on
    block,
    entry,  // of a block's history
    segment,
    annotation,
    events,  // a list of rows; payload: index into ranges_
    blocks,
    entries,
    segments,
    annotations,
    traces,     // a list of lists of events; payload: index into trace_lists_
    top,        // the snapshot itself
    used,       // a row or a list of rows that has been put somewhere
    reference,  // payload: index into objects_
  };

  // 8 bytes: 7 bits of tag, a mark, 56 bits of payload. What is marked: in objects_, a list or dict
  // that may still change; of a value that was taken to be put somewhere, that others refer to it.
  class Value {
   public:
    Value(Tag tag, std::int64_t payload)
        : bits_(static_cast<std::uint64_t>(payload) << 8 | static_cast<std::uint64_t>(tag)) {}
    static bool holds(std::int64_t value) {
      return value >= -(std::int64_t{1} << 55) && value < std::int64_t{1} << 55;
    }
    Tag tag() const { return static_cast<Tag>(bits_ & 0x7f); }
    std::int64_t payload() const { return static_cast<std::int64_t>(bits_) >> 8; }
    std::size_t index() const { return static_cast<std::size_t>(bits_ >> 8); }
    std::uint32_t id() const { return static_cast<std::uint32_t>(bits_ >> 8); }
    bool is_marked() const { return (bits_ & 0x80) != 0; }
    Value marked() const { return Value(bits_ | 0x80); }
    Value unmarked() const { return Value(bits_ & ~std::uint64_t{0x80}); }
    Value marked_as(Value other) const { return Value(bits_ | (other.bits_ & 0x80)); }

   private:
    explicit Value(std::uint64_t bits) : bits_(bits) {}
    std::uint64_t bits_;
  };

  // A vector, but what is called for every value of the file is inlined.
  class Stack {
   public:
    [[gnu::always_inline]] void push_back(Value value) {
      if (size_ == values_.size()) [[unlikely]]
        grow();
      values_[size_++] = value;
    }
    void pop_back() { --size_; }
    void resize(std::size_t size) { size_ = size; }  // to fewer
    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    Value& back() { return values_[size_ - 1]; }
    Value& operator[](std::size_t index) { return values_[index]; }
    std::span<Value> from(std::size_t index) { return {values_.data() + index, size_ - index}; }
    std::span<Value> last(std::size_t size) { return from(size_ - size); }

   private:
    [[gnu::noinline]] void grow() { values_.resize(2 * size_ + 64, {Tag::none, 0}); }

    std::vector<Value> values_;
    std::size_t size_ = 0;
  };

  // What a string means where it is a key, an action or a state.
  struct Meaning {
    Field field = Field::unknown;
    EventKind kind = EventKind::other;
    BlockState state = BlockState::other;
  };
  struct Range {
    std::uint32_t first;
    std::uint32_t count;
  };
  struct Generic {
    nlohmann::json value;
    std::uint32_t depth;
  };
  struct Trace {
    std::vector<TraceEvent> events;
    std::vector<Extra> extras;
  };
  struct TooLarge {};

  void push_wide(Tag tag, std::uint64_t bits);
  StringId intern(std::string_view text);
  [[noreturn]] static void refuse_get(std::uint64_t index);
  std::size_t take_mark();
  Value& container(std::size_t index);
  static std::string_view what(Tag tag);

  // `value` as it is put somewhere: no reference, and no longer open. Marked: shared.
  Value take(Value value);
  Value close(Value value);
  // Takes every so many in place.
  void take_all(std::span<Value> values, std::size_t first, std::size_t every);

  // Lists. The elements have been taken.
  Value append_to(Value list, std::span<const Value> elements);
  Value append_frames(Value list, std::span<const Value> elements);
  Value append_rows(Value list, std::span<const Value> elements);
  Value append_traces(Value list, std::span<const Value> elements);
  Value append_generic(Value list, std::span<const Value> elements);
  std::uint32_t close_trace(Value events);

  // Dicts, of keys and values in turn. The values have been taken.
  Value set_in(Value dict, std::span<const Value> items);
  Value fill(Value dict, std::span<const Value> items);
  Value make(std::span<const Value> items);
  Value fill_frame(Frame frame, std::span<const Value> items);
  void fill_top(std::span<const Value> items);
  void fill_event(std::uint32_t row, std::span<const Value> items);
  void fill_block(std::uint32_t row, std::span<const Value> items);
  void fill_entry(std::uint32_t row, std::span<const Value> items);
  void fill_segment(std::uint32_t row, std::span<const Value> items);
  void fill_annotation(std::uint32_t row, std::span<const Value> items);
  Value fill_generic(Value dict, std::span<const Value> items);

  StringId key_of(Value key);
  Field field_of(Value key) const {
    return key.tag() == Tag::string ? meanings_[key.index()].field : Field::unknown;
  }
  void add_extra(std::vector<Extra> & extras, std::uint32_t row, Value key, Value value);
  void drop(Value key);

  // What a field holds; `of` names the entry in the Refusal where it is of another type.
  std::int64_t integer_of(Value value, Field field, const char* of) const;
  std::uint64_t unsigned_of(Value value, Field field, const char* of) const;
  StringId string_of(Value value, Field field, const char* of) const;
  StackId frames_of(Value value, Field field, const char* of) const;
  std::uint32_t pool_of(Value value, Field field, const char* of);
  std::uint32_t stream_of(Value value, const char* of);
  // An empty list has no rows.
  Range range_of(Value value, Tag tag, Field field, const char* of) const;
  [[noreturn]] static void refuse_type(Value value, Field field, const char* of,
                                       const char* wanted);
  std::uint32_t pool(std::int64_t first, std::int64_t second);

  // JSON values. Nothing where it is too large to keep.
  std::optional<Generic> generic_of(Value value);
  Generic make_generic(Value value);
  Generic rows_of(Value value);
  Value push_generic(Generic generic);
  void charge(std::size_t nodes);

  void keep_blocks();
  void complete_blocks();

  const Source& source_;
  Snapshot snapshot_;
  Stack stack_;
  std::vector<std::size_t> marks_;   // how many values are below
  std::vector<Value> objects_;       // what the memo refers to
  std::vector<std::uint32_t> memo_;  // index into objects_ plus one; 0: never set
  std::vector<std::uint64_t> wide_;  // numbers that a Value can't hold
  std::vector<Meaning> meanings_;    // of the strings
  std::vector<Range> ranges_;
  std::vector<std::vector<FrameId>> open_stacks_;
  std::vector<std::vector<Value>> items_;
  std::vector<Generic> generics_;
  std::size_t nodes_ = 0;  // JSON values made so far
  HashIndex frame_index_;
  HashIndex pool_index_;
  HashIndex stream_index_;
  std::vector<TraceEvent> events_;  // of the traces that are not complete
  std::vector<Extra> event_extras_;
  std::vector<Trace> closed_traces_;
  std::vector<std::vector<std::uint32_t>> trace_lists_;  // indices into closed_traces_
  std::vector<FrameId> scratch_;
  Range segments_{0, 0};
  Range annotations_{0, 0};
  bool has_top_ = false;
};

}  // namespace leaklab

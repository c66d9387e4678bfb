// Makes a snapshot's tables out of the operations of a pickle, or of a JSON text put in the same
// terms: values are pushed on a stack, and what lies on it is put into lists and dicts.
//
// There is no tree. A dict becomes a row of a table when its keys come, and what stands on the
// stack from then on is the row's number; a list of rows is a range of them, a list of frames a
// stack. Only what no table has is kept as a JSON value. A row, and a list of rows, can be put into
// one place only; strings, frames and stacks into any number. A list or dict that was put somewhere
// can't change any more, and can't be put into itself.
//
// Here are the stack, its marks and the memo; lists.h and dicts.h know what becomes of the values.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "dicts.h"
#include "generics.h"
#include "interner.h"
#include "lists.h"
#include "parts.h"
#include "source.h"
#include "value.h"

namespace leaklab {

// Every operation throws Refusal where the file is corrupted or no snapshot. Hidden, as Lists and
// Dicts: the compiler then inlines what is called for every entry.
class __attribute__((visibility("hidden"))) Builder {
 public:
  // `source` tells how much was read, and how much is still to come.
  explicit Builder(const Source& source);

  void push_none() { stack_.push(Value(Tag::none)); }
  void push_boolean(bool value) { stack_.push({Tag::boolean, value}); }
  void push_integer(std::int64_t value) {
    if (Value::holds(value)) [[likely]] {
      stack_.push({Tag::integer, value});
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
  void push_string(std::string_view text) { stack_.push(interner_.string(text)); }
  void push_empty_list() { stack_.push(Value(Tag::empty_list)); }
  void push_empty_dict() { stack_.push(Value(Tag::empty_dict)); }

  void mark() { parts_.marks.push_back(stack_.size()); }
  void pop();
  void pop_mark();

  void append();   // the top, to the list below it
  void appends();  // what is above the mark, to the list below it
  void set_item();
  void set_items();
  void list();   // of what is above the mark
  void dict();   // of what is above the mark
  void tuple();  // of what is above the mark
  void tuple(std::size_t size);

  void memoize() { put(next_in_memo_); }
  void put(std::uint64_t index);
  void get(std::uint64_t index) {
    if (index >= memo_.size()) [[unlikely]]
      refuse_get(index);
    get_short(index);
  }
  // Of one byte, as most are: the memo has so many numbers from the beginning.
  [[gnu::always_inline]] void get_short(std::uint64_t index) {
    const Value value = memo_[index];
    if (value.is_plain()) [[likely]] {
      stack_.push(value);
    } else {
      if (value.tag() == Tag::unset) refuse_get(index);
      stack_.push(value.is_object() ? Value(Tag::reference, index) : value);
    }
  }

  // The snapshot, when nothing else is to come.
  Snapshot finish();

 private:
  // A vector, but what is called for every value of the file is inlined, and short; and it grows
  // without a copy, and without touching more memory than it fills: some files put all entries on
  // it.
  class Stack {
   public:
    [[gnu::always_inline]] void push(Value value) {
      if (end_ == limit_) [[unlikely]]
        grow();
      *end_++ = value;
    }
    void cut(std::size_t size) { end_ = values_.get() + size; }  // to fewer
    std::size_t size() const { return static_cast<std::size_t>(end_ - values_.get()); }
    Value& top() { return end_[-1]; }
    Value& operator[](std::size_t index) { return values_.get()[index]; }
    std::span<Value> from(std::size_t index) { return {values_.get() + index, end_}; }
    std::span<Value> last(std::size_t size) { return {end_ - size, end_}; }

   private:
    struct Free {
      void operator()(Value* values) const { std::free(values); }
    };
    [[gnu::noinline]] void grow() {
      const std::size_t size = this->size();
      const std::size_t capacity = 2 * size + 64;
      Value* const old = values_.release();
      auto* const grown = static_cast<Value*>(std::realloc(old, capacity * sizeof(Value)));
      values_.reset(grown != nullptr ? grown : old);
      if (grown == nullptr) throw std::bad_alloc();
      end_ = values_.get() + size;
      limit_ = values_.get() + capacity;
    }

    std::unique_ptr<Value, Free> values_;
    Value* end_ = nullptr;
    Value* limit_ = nullptr;
  };

  void push_wide(Tag tag, std::uint64_t bits);
  [[noreturn]] static void refuse_get(std::uint64_t index);
  std::size_t take_mark();
  // The list or dict at `index` of the stack, to be changed.
  Value& container(std::size_t index);

  // `value` as it is put somewhere: no reference, and no longer open. Marked: shared.
  Value take(Value value);
  Value close(Value value);
  // Take in place: all values, or the values of keys and values in turn.
  void take_all(std::span<Value> values);
  void take_items(std::span<Value> items);

  Parts parts_;
  Interner interner_;
  Generics generics_;
  Lists lists_;
  Dicts dicts_;
  Stack stack_;
  // What is known by its identity is here alone, and referred to.
  std::vector<Value> memo_ = std::vector<Value>(256, Value(Tag::unset));
  std::uint64_t next_in_memo_ = 0;
};

}  // namespace leaklab

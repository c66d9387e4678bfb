#include "builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace leaklab {
namespace {

// Out of line, so that the operations stay short.
[[noreturn, gnu::cold]] void refuse(const char* why) { throw Refusal(why); }

[[noreturn, gnu::cold]] void refuse_change(Value object) {
  throw Refusal(
      fmt::format("{} that contains itself, or changes after it was put into another; a "
                  "snapshot has none",
                  what(object.tag())));
}

}  // namespace

Builder::Builder(const Source& source)
    : parts_(source),
      interner_(parts_.snapshot),
      generics_(parts_, interner_),
      lists_(parts_, generics_),
      dicts_(parts_, interner_, generics_) {}

void Builder::push_wide(Tag tag, std::uint64_t bits) {
  stack_.push({tag, parts_.wide.size()});
  parts_.wide.push_back(bits);
}

void Builder::push_real(double value) { push_wide(Tag::real, std::bit_cast<std::uint64_t>(value)); }

void Builder::pop() {
  if (!parts_.marks.empty() && parts_.marks.back() == stack_.size()) return parts_.marks.pop_back();
  if (stack_.size() == 0) refuse("takes from an empty stack; the file is corrupted");
  stack_.cut(stack_.size() - 1);
}

inline std::size_t Builder::take_mark() {
  if (parts_.marks.empty()) refuse("a mark is missing; the file is corrupted");
  const std::size_t mark = parts_.marks.back();
  parts_.marks.pop_back();
  return mark;
}

void Builder::pop_mark() { stack_.cut(take_mark()); }

// ---- The memo ----

void Builder::refuse_get(std::uint64_t index) {
  throw Refusal(fmt::format(
      "refers to number {} of the memo, which was never set; the file is corrupted", index));
}

void Builder::put(std::uint64_t index) {
  if (stack_.size() == 0) refuse("nothing to memoize; the file is corrupted");
  const Source& source = parts_.source;
  if (index > source.offset()) {
    throw Refusal(fmt::format(
        "sets number {} of the memo, more than the file can hold; the file is corrupted", index));
  }
  if (index >= memo_.size()) {
    make_room(memo_, source, 4);
    memo_.resize(index + 1, Value(Tag::unset));
  } else if (memo_[index].tag() != Tag::unset) {
    // What stands elsewhere may refer to it.
    throw Refusal(
        fmt::format("sets number {} of the memo a second time; the file is corrupted", index));
  }
  next_in_memo_ = std::max(next_in_memo_, index + 1);
  Value& top = stack_.top();
  if (top.is_object()) {
    memo_[index] = top.marked();
    top = {Tag::reference, index};
  } else {
    memo_[index] = top;
  }
}

inline Value& Builder::container(std::size_t index) {
  if (index >= stack_.size() || (!parts_.marks.empty() && index < parts_.marks.back())) {
    refuse("nothing to put values into; the file is corrupted");
  }
  Value& value = stack_[index];
  if (value.tag() != Tag::reference) return value;
  Value& object = memo_[value.index()];
  if (!object.is_marked()) refuse_change(object);
  return object;
}

inline Value Builder::close(Value value) {
  if (value.tag() == Tag::open_stack) return lists_.close(value);
  if (value.tag() == Tag::items) return dicts_.close(value);
  return value;
}

Value Builder::take(Value value) {
  if (value.tag() != Tag::reference) return close(value);
  Value& object = memo_[value.index()];
  const Value state = close(object.unmarked());
  if (state.tag() == Tag::used) {
    refuse("a part of the snapshot stands in two places; the file is corrupted");
  }
  if (state.tag() >= Tag::event) {
    object = Value(Tag::used);
    return state;
  }
  object = state;
  return state.marked();
}

inline void Builder::take_all(std::span<Value> values) {
  for (Value& value : values) {
    if (value.has_identity()) value = take(value);
  }
}

inline void Builder::take_items(std::span<Value> items) {
  for (std::size_t i = 1; i < items.size(); i += 2) {
    if (items[i].has_identity()) items[i] = take(items[i]);
  }
}

// ---- Lists ----

void Builder::append() {
  if (stack_.size() < 2) refuse("nothing to append to; the file is corrupted");
  const std::span<Value> element = stack_.last(1);
  take_all(element);
  Value& list = container(stack_.size() - 2);
  list = lists_.append(list.unmarked(), element).marked_as(list);
  stack_.cut(stack_.size() - 1);
}

void Builder::appends() {
  const std::size_t mark = take_mark();
  const std::span<Value> elements = stack_.from(mark);
  take_all(elements);
  Value& list = container(mark - 1);
  list = lists_.append(list.unmarked(), elements).marked_as(list);
  stack_.cut(mark);
}

void Builder::list() {
  const std::size_t mark = take_mark();
  const std::span<Value> elements = stack_.from(mark);
  take_all(elements);
  const Value made = lists_.append(Value(Tag::empty_list), elements);
  stack_.cut(mark);
  stack_.push(made);
}

void Builder::tuple() { tuple(stack_.size() - take_mark()); }

void Builder::tuple(std::size_t size) {
  const std::size_t below = parts_.marks.empty() ? 0 : parts_.marks.back();
  if (stack_.size() < below + size) {
    refuse("a tuple of more than there is; the file is corrupted");
  }
  const std::span<Value> elements = stack_.last(size);
  Value made(Tag::empty_list);
  if (size == 2 && elements[0].tag() == Tag::integer && elements[1].tag() == Tag::integer) {
    made = {Tag::pool, interner_.pool(elements[0].payload(), elements[1].payload())};
  } else {
    take_all(elements);
    made = lists_.append(made, elements);
  }
  stack_.cut(stack_.size() - size);
  stack_.push(made);
}

// ---- Dicts ----

void Builder::set_item() {
  if (stack_.size() < 3) refuse("no dict to set an item of; the file is corrupted");
  const std::span<Value> item = stack_.last(2);
  take_items(item);
  Value& dict = container(stack_.size() - 3);
  dict = dicts_.set_one(dict.unmarked(), item).marked_as(dict);
  stack_.cut(stack_.size() - 2);
}

void Builder::set_items() {
  const std::size_t mark = take_mark();
  const std::span<Value> items = stack_.from(mark);
  take_items(items);
  Value& dict = container(mark - 1);
  dict = dicts_.set(dict.unmarked(), items).marked_as(dict);
  stack_.cut(mark);
}

void Builder::dict() {
  const std::size_t mark = take_mark();
  const std::span<Value> items = stack_.from(mark);
  take_items(items);
  const Value made = dicts_.set(Value(Tag::empty_dict), items);
  stack_.cut(mark);
  stack_.push(made);
}

Snapshot Builder::finish() {
  if (stack_.size() != 1 || !parts_.marks.empty()) {
    throw Refusal(fmt::format("ends with {} values where one is expected; the file is corrupted",
                              stack_.size()));
  }
  return dicts_.finish(take(stack_.top()));
}

}  // namespace leaklab

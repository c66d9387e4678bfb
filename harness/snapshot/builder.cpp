#include "builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tree.h"

namespace leaklab {
namespace {

using nlohmann::json;

constexpr std::size_t max_depth = 64;
constexpr std::size_t max_nodes = 1'000'000;
constexpr std::size_t pickle_batch = 1000;  // Python puts at most so many elements at a time

// Whether `text` is UTF-8; as in Python's pickles, halves of surrogate pairs may stand alone.
bool is_text(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - at <= more) return false;
    std::uint32_t code = lead & (0x3fU >> more);
    for (std::size_t i = 1; i <= more; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fU);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && (code < 0x10000 || code > 0x10ffff))) {
      return false;
    }
    at += more + 1;
  }
  return true;
}

Field field_named(std::string_view text) {
  const auto* found = std::ranges::find(field_names, text);
  return found == field_names.end() ? Field::unknown
                                    : static_cast<Field>(found - field_names.begin());
}

constexpr std::uint64_t bit(Field field) { return std::uint64_t{1} << static_cast<int>(field); }

std::uint64_t hash_pair(std::uint64_t first, std::uint64_t second) {
  std::uint64_t state = first * 0x9e3779b97f4a7c15ULL + second;
  state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9ULL;
  state = (state ^ state >> 27) * 0x94d049bb133111ebULL;
  return state ^ state >> 31;
}

std::uint32_t row_number(std::size_t rows) {
  if (rows >= HashIndex::none) throw Refusal("holds more than 4 billion entries of one kind");
  return static_cast<std::uint32_t>(rows);
}

// Room for one more where `left` bytes are still to come, each element of `bytes` or more: reserved
// at once, so that the table isn't copied, and touched only as far as it is filled.
template <typename T>
void make_room(std::vector<T>& table, std::uint64_t left, std::uint64_t bytes) {
  if (table.size() < table.capacity() || table.size() < 4096) return;
  table.reserve(table.size() + std::max<std::size_t>(table.size() / 2, left / bytes));
}

std::size_t count_nodes(const json& value) {
  std::size_t nodes = 1;
  if (value.is_structured()) {
    for (const json& element : value) nodes += count_nodes(element);
  } else if (value.is_string()) {
    nodes += value.get_ref<const std::string&>().size() / 32;
  }
  return nodes;
}

std::size_t depth_of(const json& value) {
  std::size_t depth = 0;
  if (value.is_structured()) {
    for (const json& element : value) depth = std::max(depth, depth_of(element));
    ++depth;
  }
  return depth;
}

EventKind kind_of(std::string_view action) {
  for (int kind = 0; kind < static_cast<int>(EventKind::other); ++kind) {
    if (name(static_cast<EventKind>(kind)) == action) return static_cast<EventKind>(kind);
  }
  return EventKind::other;
}

BlockState state_named(std::string_view state) {
  for (int kind = 0; kind < static_cast<int>(BlockState::other); ++kind) {
    if (name(static_cast<BlockState>(kind)) == state) return static_cast<BlockState>(kind);
  }
  return BlockState::other;
}

}  // namespace

Builder::Builder(const Source& source) : source_(source), meanings_(1) {
  snapshot_.keys = 0;
  stream_index_.insert(hash_pair(0, 0), 0);
  pool_index_.insert(hash_pair(0, 0), 0);
}

// ---- The stack ----

void Builder::push_wide(Tag tag, std::uint64_t bits) {
  stack_.push_back({tag, static_cast<std::int64_t>(wide_.size())});
  wide_.push_back(bits);
}

void Builder::push_real(double value) { push_wide(Tag::real, std::bit_cast<std::uint64_t>(value)); }

StringId Builder::intern(std::string_view text) {
  const StringId id = snapshot_.strings.intern(text);
  if (id == meanings_.size()) {
    if (!is_text(text)) throw Refusal("a string that is no UTF-8 text; the file is corrupted");
    meanings_.push_back({field_named(text), kind_of(text), state_named(text)});
  }
  return id;
}

void Builder::refuse_get(std::uint64_t index) {
  throw Refusal(
      fmt::format("refers to number {} of the memo, which was never set; the file is "
                  "corrupted",
                  index));
}

void Builder::put(std::uint64_t index) {
  if (stack_.empty()) throw Refusal("nothing to memoize; the file is corrupted");
  if (index > source_.offset()) {
    throw Refusal(
        fmt::format("sets number {} of the memo, more than the file can hold; the file "
                    "is corrupted",
                    index));
  }
  if (index >= memo_.size()) {
    make_room(memo_, source_.left(), 4);
    memo_.resize(index + 1);
  }
  Value& top = stack_.back();
  if (top.tag() != Tag::reference) {
    const std::uint32_t object = row_number(objects_.size());
    make_room(objects_, source_.left(), 4);
    if (top.tag() < Tag::empty_list) {
      objects_.push_back(top);
    } else {
      objects_.push_back(top.marked());
      top = {Tag::reference, object};
    }
    memo_[index] = object + 1;
  } else {
    memo_[index] = top.id() + 1;
  }
}

void Builder::pop() {
  if (!marks_.empty() && marks_.back() == stack_.size()) return marks_.pop_back();
  if (stack_.empty()) throw Refusal("takes from an empty stack; the file is corrupted");
  stack_.pop_back();
}

std::size_t Builder::take_mark() {
  if (marks_.empty()) throw Refusal("a mark is missing; the file is corrupted");
  const std::size_t mark = marks_.back();
  marks_.pop_back();
  return mark;
}

// The list or dict at `index` of the stack, to be changed.
Builder::Value& Builder::container(std::size_t index) {
  if (index >= stack_.size() || (!marks_.empty() && index < marks_.back())) {
    throw Refusal("nothing to put values into; the file is corrupted");
  }
  Value& value = stack_[index];
  if (value.tag() != Tag::reference) return value;
  Value& object = objects_[value.index()];
  if (!object.is_marked()) {
    throw Refusal(
        fmt::format("a {} that contains itself, or changes after it was put into another; a "
                    "snapshot has none",
                    what(object.tag())));
  }
  return object;
}

Builder::Value Builder::take(Value value) {
  if (value.tag() != Tag::reference) return close(value);
  Value& object = objects_[value.index()];
  const Value state = close(object.unmarked());
  if (state.tag() == Tag::used) {
    throw Refusal("a part of the snapshot stands in two places; the file is corrupted");
  }
  if (state.tag() >= Tag::event) {
    object = {Tag::used, 0};
    return state;
  }
  object = state;
  return state.marked();
}

void Builder::take_all(std::span<Value> values, std::size_t first, std::size_t every) {
  for (std::size_t i = first; i < values.size(); i += every) {
    if (values[i].tag() >= Tag::empty_list) values[i] = take(values[i]);
  }
}

Builder::Value Builder::close(Value value) {
  if (value.tag() == Tag::open_stack) {
    std::vector<FrameId>& frames = open_stacks_[value.index()];
    const StackId stack = snapshot_.stacks.intern(frames);
    std::vector<FrameId>().swap(frames);
    return {Tag::stack, stack};
  }
  if (value.tag() == Tag::items) {
    const std::vector<Value> items = std::move(items_[value.index()]);
    return make(items);
  }
  return value;
}

std::string_view Builder::what(Tag tag) {
  switch (tag) {
    case Tag::none:
      return "None";
    case Tag::boolean:
      return "boolean";
    case Tag::integer:
    case Tag::wide_integer:
    case Tag::wide_unsigned:
      return "integer";
    case Tag::real:
      return "float";
    case Tag::string:
      return "string";
    case Tag::pool:
      return "tuple";
    case Tag::empty_list:
    case Tag::events:
    case Tag::blocks:
    case Tag::entries:
    case Tag::segments:
    case Tag::annotations:
    case Tag::traces:
      return "list";
    case Tag::stack:
    case Tag::open_stack:
      return "list of frames";
    case Tag::empty_dict:
    case Tag::items:
    case Tag::top:
      return "dict";
    case Tag::frame:
      return "frame";
    case Tag::event:
      return "trace entry";
    case Tag::block:
      return "block";
    case Tag::entry:
      return "history entry";
    case Tag::segment:
      return "segment";
    case Tag::annotation:
      return "annotation";
    default:
      return "value of another shape";
  }
}

// ---- Lists ----

void Builder::append() {
  if (stack_.size() < 2) throw Refusal("nothing to append to; the file is corrupted");
  const std::span<Value> element = stack_.last(1);
  take_all(element, 0, 1);
  Value& list = container(stack_.size() - 2);
  list = append_to(list.unmarked(), element).marked_as(list);
  stack_.pop_back();
}

void Builder::appends() {
  const std::size_t mark = take_mark();
  const std::span<Value> elements = stack_.from(mark);
  take_all(elements, 0, 1);
  Value& list = container(mark - 1);
  list = append_to(list.unmarked(), elements).marked_as(list);
  stack_.resize(mark);
}

void Builder::list() {
  const std::size_t mark = take_mark();
  const std::span<Value> elements = stack_.from(mark);
  take_all(elements, 0, 1);
  const Value made = append_to({Tag::empty_list, 0}, elements);
  stack_.resize(mark);
  stack_.push_back(made);
}

void Builder::tuple() { tuple(stack_.size() - take_mark()); }

void Builder::tuple(std::size_t size) {
  const std::size_t below = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() < below + size) {
    throw Refusal("a tuple of more than there is; the file is corrupted");
  }
  const std::span<Value> elements = stack_.last(size);
  Value made{Tag::empty_list, 0};
  if (size == 2 && elements[0].tag() == Tag::integer && elements[1].tag() == Tag::integer) {
    made = {Tag::pool, pool(elements[0].payload(), elements[1].payload())};
  } else {
    take_all(elements, 0, 1);
    made = append_to(made, elements);
  }
  stack_.resize(stack_.size() - size);
  stack_.push_back(made);
}

Builder::Value Builder::append_to(Value list, std::span<const Value> elements) {
  if (elements.empty()) return list;
  const auto all = [&](auto&&... tags) {
    return std::ranges::all_of(elements,
                               [&](Value element) { return ((element.tag() == tags) || ...); });
  };
  const Tag first = elements.front().tag();
  switch (list.tag()) {
    case Tag::empty_list:
      if (first == Tag::frame && all(first)) return append_frames(list, elements);
      if (first >= Tag::event && first <= Tag::annotation && all(first)) {
        return append_rows(list, elements);
      }
      if (all(Tag::events, Tag::empty_list)) return append_traces(list, elements);
      break;
    case Tag::stack:
    case Tag::open_stack:
      if (all(Tag::frame)) return append_frames(list, elements);
      break;
    case Tag::events:
    case Tag::blocks:
    case Tag::entries:
    case Tag::segments:
    case Tag::annotations: {
      const int lists_after_rows = static_cast<int>(Tag::events) - static_cast<int>(Tag::event);
      if (static_cast<int>(list.tag()) == static_cast<int>(first) + lists_after_rows &&
          all(first)) {
        return append_rows(list, elements);
      }
      break;
    }
    case Tag::traces:
      if (all(Tag::events, Tag::empty_list)) return append_traces(list, elements);
      break;
    case Tag::json:
    case Tag::dropped:
      break;
    default:
      throw Refusal(fmt::format("appends to a {}; the file is corrupted", what(list.tag())));
  }
  return append_generic(list, elements);
}

Builder::Value Builder::append_frames(Value list, std::span<const Value> elements) {
  const auto id = [](Value frame) { return frame.id(); };
  if (list.tag() == Tag::empty_list && elements.size() < pickle_batch) {
    scratch_.clear();
    std::ranges::transform(elements, std::back_inserter(scratch_), id);
    return {Tag::stack, snapshot_.stacks.intern(scratch_)};
  }
  if (list.tag() != Tag::open_stack) {
    const std::span<const FrameId> so_far =
        list.tag() == Tag::stack ? snapshot_.stacks[list.id()] : std::span<const FrameId>();
    open_stacks_.emplace_back(so_far.begin(), so_far.end());
    list = {Tag::open_stack, static_cast<std::int64_t>(open_stacks_.size() - 1)};
  }
  std::ranges::transform(elements, std::back_inserter(open_stacks_[list.index()]), id);
  return list;
}

Builder::Value Builder::append_rows(Value list, std::span<const Value> elements) {
  if (list.tag() == Tag::empty_list) {
    const int lists_after_rows = static_cast<int>(Tag::events) - static_cast<int>(Tag::event);
    const auto tag = static_cast<Tag>(static_cast<int>(elements.front().tag()) + lists_after_rows);
    list = {tag, static_cast<std::int64_t>(ranges_.size())};
    ranges_.push_back({elements.front().id(), 0});
  }
  Range& range = ranges_[list.index()];
  for (const Value& row : elements) {
    if (row.id() != range.first + range.count) {
      throw Refusal(
          "the entries of a list are not in the order in which the file makes them; the "
          "file is corrupted");
    }
    ++range.count;
  }
  return list;
}

Builder::Value Builder::append_traces(Value list, std::span<const Value> elements) {
  if (list.tag() == Tag::empty_list) {
    list = {Tag::traces, static_cast<std::int64_t>(trace_lists_.size())};
    trace_lists_.emplace_back();
  }
  for (const Value& element : elements) {
    trace_lists_[list.index()].push_back(element.tag() == Tag::events ? close_trace(element)
                                                                      : HashIndex::none);
  }
  return list;
}

// The rows leave events_, which is empty again when no other list has some.
std::uint32_t Builder::close_trace(Value events) {
  const Range range = ranges_[events.index()];
  std::ranges::stable_sort(event_extras_, {}, &Extra::row);
  Trace trace;
  if (range.count == events_.size()) {
    trace.events.swap(events_);
    trace.extras.swap(event_extras_);
  } else {
    const auto first = events_.begin() + range.first;
    const auto last = first + range.count;
    trace.events.assign(first, last);
    for (Extra extra : event_extras_) {
      if (extra.row < range.first || extra.row >= range.first + range.count) continue;
      extra.row -= range.first;
      trace.extras.push_back(extra);
    }
    if (last == events_.end()) {
      events_.erase(first, last);
      std::erase_if(event_extras_, [&](const Extra& extra) { return extra.row >= range.first; });
    }
  }
  closed_traces_.push_back(std::move(trace));
  return row_number(closed_traces_.size() - 1);
}

Builder::Value Builder::append_generic(Value list, std::span<const Value> elements) {
  if (list.tag() == Tag::dropped) return list;
  std::optional<Generic> made = generic_of(list);
  if (made && !made->value.is_array()) {
    throw Refusal("appends to a dict; the file is corrupted");
  }
  for (const Value& element : elements) {
    if (!made) break;
    std::optional<Generic> value = generic_of(element);
    if (!value) {
      made.reset();
      break;
    }
    made->depth = std::max(made->depth, value->depth + 1);
    made->value.push_back(std::move(value->value));
  }
  return made ? push_generic(std::move(*made)) : Value{Tag::dropped, 0};
}

// ---- Dicts ----

void Builder::set_item() {
  if (stack_.size() < 3) throw Refusal("no dict to set an item of; the file is corrupted");
  const std::span<Value> item = stack_.last(2);
  take_all(item, 1, 2);
  Value& dict = container(stack_.size() - 3);
  Value state = dict.unmarked();
  if (state.tag() == Tag::empty_dict) {
    // The kind shows when all the keys are there.
    state = {Tag::items, static_cast<std::int64_t>(items_.size())};
    items_.emplace_back();
  }
  dict = set_in(state, item).marked_as(dict);
  stack_.resize(stack_.size() - 2);
}

void Builder::set_items() {
  const std::size_t mark = take_mark();
  const std::span<Value> items = stack_.from(mark);
  take_all(items, 1, 2);
  Value& dict = container(mark - 1);
  dict = set_in(dict.unmarked(), items).marked_as(dict);
  stack_.resize(mark);
}

void Builder::dict() {
  const std::size_t mark = take_mark();
  const std::span<Value> items = stack_.from(mark);
  take_all(items, 1, 2);
  const Value made = set_in({Tag::empty_dict, 0}, items);
  stack_.resize(mark);
  stack_.push_back(made);
}

Builder::Value Builder::set_in(Value dict, std::span<const Value> items) {
  if (items.size() % 2 != 0) throw Refusal("a key without a value; the file is corrupted");
  if (items.empty()) return dict;
  if (dict.tag() == Tag::empty_dict) {
    if (items.size() < 2 * pickle_batch) return make(items);
    dict = {Tag::items, static_cast<std::int64_t>(items_.size())};
    items_.emplace_back();
  }
  return fill(dict, items);
}

Builder::Value Builder::make(std::span<const Value> items) {
  std::uint64_t fields = 0;
  for (std::size_t i = 0; i < items.size(); i += 2) fields |= bit(field_of(items[i]));
  const auto any = [&](auto... field) { return (fields & (bit(field) | ...)) != 0; };
  using enum Field;
  const auto new_row = [&](Tag tag, auto& rows, std::uint64_t bytes) {
    const std::uint32_t row = row_number(rows.size());
    make_room(rows, source_.left(), bytes);
    auto& made = rows.emplace_back();
    made.keys = 0;
    if constexpr (std::is_same_v<decltype(made), HistoryEntry&>) made.block = HashIndex::none;
    return fill({tag, row}, items);
  };
  if (any(action) && any(addr, device_free, size)) return new_row(Tag::event, events_, 32);
  if (any(filename) && any(line, Field::name)) return fill_frame({}, items);
  if (any(state) && any(size)) return new_row(Tag::block, snapshot_.blocks, 24);
  if (any(blocks, segment_type) && any(total_size, address)) {
    return new_row(Tag::segment, snapshot_.segments, 64);
  }
  if (any(stage) && any(Field::name)) {
    return new_row(Tag::annotation, snapshot_.annotations, 16);
  }
  if (any(real_size)) return new_row(Tag::entry, snapshot_.history, 16);
  if (any(segments, device_traces)) {
    fill_top(items);
    return {Tag::top, 0};
  }
  return fill_generic({Tag::empty_dict, 0}, items);
}

Builder::Value Builder::fill(Value dict, std::span<const Value> items) {
  switch (dict.tag()) {
    case Tag::event:
      fill_event(dict.id(), items);
      return dict;
    case Tag::block:
      fill_block(dict.id(), items);
      return dict;
    case Tag::entry:
      fill_entry(dict.id(), items);
      return dict;
    case Tag::segment:
      fill_segment(dict.id(), items);
      return dict;
    case Tag::annotation:
      fill_annotation(dict.id(), items);
      return dict;
    case Tag::top:
      fill_top(items);
      return dict;
    case Tag::frame:
      return fill_frame(snapshot_.frames[dict.index()], items);
    case Tag::items: {
      std::vector<Value>& so_far = items_[dict.index()];
      so_far.insert(so_far.end(), items.begin(), items.end());
      return dict;
    }
    case Tag::empty_dict:
    case Tag::json:
    case Tag::dropped:
      return fill_generic(dict, items);
    default:
      throw Refusal(fmt::format("sets a key of a {}; the file is corrupted", what(dict.tag())));
  }
}

void Builder::fill_event(std::uint32_t row, std::span<const Value> items) {
  constexpr const char* of = "a trace entry";
  TraceEvent event = events_[row];
  const Value* address = nullptr;
  const Value* device_free = nullptr;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = field_of(items[i]);
    if (value.tag() == Tag::none && field != Field::addr && field != Field::device_free) {
      add_extra(event_extras_, row, items[i], value);
      continue;
    }
    switch (field) {
      case Field::action:
        event.kind = meanings_[string_of(value, field, of)].kind;
        if (event.kind == EventKind::other) add_extra(event_extras_, row, items[i], value);
        break;
      case Field::addr:
        address = &items[i];
        break;
      case Field::device_free:
        device_free = &items[i];
        break;
      case Field::size:
        event.size = integer_of(value, field, of);
        event.keys |= TraceEvent::has_size;
        break;
      case Field::stream:
        event.stream = stream_of(value, of);
        event.keys |= TraceEvent::has_stream;
        break;
      case Field::time_us:
        event.time_us = integer_of(value, field, of);
        event.keys |= TraceEvent::has_time_us;
        break;
      case Field::compile_context:
        event.compile_context = string_of(value, field, of);
        event.keys |= TraceEvent::has_compile_context;
        break;
      case Field::user_metadata:
        event.user_metadata = string_of(value, field, of);
        event.keys |= TraceEvent::has_user_metadata;
        break;
      case Field::frames:
        event.stack = frames_of(value, field, of);
        event.keys |= TraceEvent::has_frames;
        break;
      case Field::pool_id:
        event.pool = pool_of(value, field, of);
        event.keys |= TraceEvent::has_pool_id;
        break;
      default:
        add_extra(event_extras_, row, items[i], value);
    }
  }
  // Which of the two is the address depends on the action, which may come after.
  if (event.kind == EventKind::oom) std::swap(address, device_free);
  if (device_free != nullptr) add_extra(event_extras_, row, device_free[0], device_free[1]);
  if (address != nullptr && address[1].tag() == Tag::none) {
    add_extra(event_extras_, row, address[0], address[1]);
  } else if (address != nullptr) {
    event.address = unsigned_of(address[1], field_of(address[0]), of);
    event.keys |= TraceEvent::has_address;
  }
  events_[row] = event;
}

void Builder::fill_block(std::uint32_t row, std::span<const Value> items) {
  constexpr const char* of = "a block";
  Block& block = snapshot_.blocks[row];
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = field_of(items[i]);
    if (value.tag() == Tag::none) {
      add_extra(snapshot_.block_extras, row, items[i], value);
      continue;
    }
    switch (field) {
      case Field::address:
        block.address = unsigned_of(value, field, of);
        block.keys |= Block::has_address;
        break;
      case Field::size:
        block.size = integer_of(value, field, of);
        block.keys |= Block::has_size;
        break;
      case Field::requested_size:
        block.requested = integer_of(value, field, of);
        block.keys |= Block::has_requested_size;
        break;
      case Field::state:
        block.state = meanings_[string_of(value, field, of)].state;
        block.keys |= Block::has_state;
        if (block.state == BlockState::other) {
          add_extra(snapshot_.block_extras, row, items[i], value);
        }
        break;
      case Field::frames:
        block.stack = frames_of(value, field, of);
        block.keys |= Block::has_frames;
        break;
      case Field::history: {
        const Range range = range_of(value, Tag::entries, field, of);
        for (std::uint32_t k = 0; k < range.count; ++k) {
          snapshot_.history[range.first + k].block = row;
        }
        block.keys |= Block::has_history;
        break;
      }
      default:
        add_extra(snapshot_.block_extras, row, items[i], value);
    }
  }
}

void Builder::fill_entry(std::uint32_t row, std::span<const Value> items) {
  constexpr const char* of = "a history entry";
  HistoryEntry& entry = snapshot_.history[row];
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = field_of(items[i]);
    switch (field) {
      case Field::addr:
        entry.address = unsigned_of(value, field, of);
        entry.keys |= HistoryEntry::has_address;
        break;
      case Field::real_size:
        entry.real_size = integer_of(value, field, of);
        entry.keys |= HistoryEntry::has_real_size;
        break;
      case Field::frames:
        entry.stack = frames_of(value, field, of);
        entry.keys |= HistoryEntry::has_frames;
        break;
      default:
        drop(items[i]);
    }
  }
}

void Builder::fill_segment(std::uint32_t row, std::span<const Value> items) {
  constexpr const char* of = "a segment";
  Segment& segment = snapshot_.segments[row];
  const auto set = [&](std::int64_t& member, Segment::Key key, Value value, Field field) {
    member = integer_of(value, field, of);
    segment.keys |= key;
  };
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = field_of(items[i]);
    if (value.tag() == Tag::none) {
      add_extra(snapshot_.segment_extras, row, items[i], value);
      continue;
    }
    switch (field) {
      case Field::device: {
        const std::int64_t device = integer_of(value, field, of);
        if (device < INT32_MIN || device > INT32_MAX) {
          throw Refusal(fmt::format("device {} of a segment; the file is corrupted", device));
        }
        segment.device = static_cast<std::int32_t>(device);
        segment.keys |= Segment::has_device;
        break;
      }
      case Field::address:
        segment.address = unsigned_of(value, field, of);
        segment.keys |= Segment::has_address;
        break;
      case Field::total_size:
        set(segment.total_size, Segment::has_total_size, value, field);
        break;
      case Field::allocated_size:
        set(segment.allocated_size, Segment::has_allocated_size, value, field);
        break;
      case Field::active_size:
        set(segment.active_size, Segment::has_active_size, value, field);
        break;
      case Field::requested_size:
        set(segment.requested_size, Segment::has_requested_size, value, field);
        break;
      case Field::stream:
        segment.stream = stream_of(value, of);
        segment.keys |= Segment::has_stream;
        break;
      case Field::segment_type:
        segment.type = string_of(value, field, of);
        segment.keys |= Segment::has_type;
        break;
      case Field::segment_pool_id:
        segment.pool = pool_of(value, field, of);
        segment.keys |= Segment::has_pool_id;
        break;
      case Field::is_expandable:
        segment.expandable = integer_of(value, field, of) != 0;
        segment.keys |= Segment::has_expandable;
        break;
      case Field::frames:
        segment.stack = frames_of(value, field, of);
        segment.keys |= Segment::has_frames;
        break;
      case Field::blocks: {
        const Range range = range_of(value, Tag::blocks, field, of);
        segment.first_block = range.first;
        segment.blocks = range.count;
        segment.keys |= Segment::has_blocks;
        break;
      }
      default:
        add_extra(snapshot_.segment_extras, row, items[i], value);
    }
  }
}

void Builder::fill_annotation(std::uint32_t row, std::span<const Value> items) {
  constexpr const char* of = "an annotation";
  Annotation& annotation = snapshot_.annotations[row];
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = field_of(items[i]);
    if (value.tag() == Tag::none) {
      add_extra(snapshot_.annotation_extras, row, items[i], value);
      continue;
    }
    switch (field) {
      case Field::stage:
        annotation.stage = string_of(value, field, of);
        annotation.keys |= Annotation::has_stage;
        break;
      case Field::name:
        annotation.name = string_of(value, field, of);
        annotation.keys |= Annotation::has_name;
        break;
      case Field::device:
        annotation.device = integer_of(value, field, of);
        annotation.keys |= Annotation::has_device;
        break;
      case Field::time_us:
        annotation.time_us = integer_of(value, field, of);
        annotation.keys |= Annotation::has_time_us;
        break;
      default:
        add_extra(snapshot_.annotation_extras, row, items[i], value);
    }
  }
}

// A frame that is there already, or a new one. One with extras is always new.
Builder::Value Builder::fill_frame(Frame frame, std::span<const Value> items) {
  constexpr const char* of = "a frame";
  const auto is_extra = [&](std::size_t i) {
    const Field field = field_of(items[i]);
    return items[i + 1].tag() == Tag::none ||
           (field != Field::filename && field != Field::name && field != Field::line);
  };
  bool plain = true;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = field_of(items[i]);
    if (is_extra(i)) {
      plain = false;
    } else if (field == Field::filename) {
      frame.file = string_of(value, field, of);
    } else if (field == Field::name) {
      frame.function = string_of(value, field, of);
    } else {
      frame.line = unsigned_of(value, field, of);
    }
  }
  const FrameId next = row_number(snapshot_.frames.size());
  if (plain) {
    const std::uint64_t hash =
        hash_pair(std::uint64_t{frame.file} << 32 | frame.function, frame.line);
    const FrameId found =
        frame_index_.find(hash, [&](FrameId row) { return snapshot_.frames[row] == frame; });
    if (found != HashIndex::none) return {Tag::frame, found};
    frame_index_.insert(hash, next);
  }
  snapshot_.frames.push_back(frame);
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (is_extra(i)) add_extra(snapshot_.frame_extras, next, items[i], items[i + 1]);
  }
  return {Tag::frame, next};
}

void Builder::fill_top(std::span<const Value> items) {
  constexpr const char* of = "the snapshot";
  if (has_top_) throw Refusal("holds two snapshots; the file is corrupted");
  has_top_ = true;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = field_of(items[i]);
    switch (value.tag() == Tag::none ? Field::unknown : field) {
      case Field::segments:
        segments_ = range_of(value, Tag::segments, field, of);
        snapshot_.keys |= Snapshot::has_segments;
        break;
      case Field::device_traces:
        if (value.tag() == Tag::traces) {
          for (const std::uint32_t index : trace_lists_[value.index()]) {
            Trace trace = index == HashIndex::none ? Trace{} : std::move(closed_traces_[index]);
            snapshot_.traces.push_back(std::move(trace.events));
            snapshot_.trace_extras.push_back(std::move(trace.extras));
          }
        } else if (value.tag() != Tag::empty_list) {
          refuse_type(value, field, of, "a list with a list of entries for each device");
        }
        snapshot_.keys |= Snapshot::has_device_traces;
        break;
      case Field::allocator_settings:
        if (std::optional<Generic> settings = generic_of(value)) {
          snapshot_.allocator_settings = std::move(settings->value);
          snapshot_.keys |= Snapshot::has_allocator_settings;
        } else {
          drop(items[i]);
        }
        break;
      case Field::external_annotations:
        annotations_ = range_of(value, Tag::annotations, field, of);
        snapshot_.keys |= Snapshot::has_external_annotations;
        break;
      default:
        add_extra(snapshot_.extras, 0, items[i], value);
    }
  }
}

Builder::Value Builder::fill_generic(Value dict, std::span<const Value> items) {
  if (dict.tag() == Tag::dropped) return dict;
  std::optional<Generic> made = generic_of(dict);
  if (made && !made->value.is_object()) {
    throw Refusal("sets a key of a list; the file is corrupted");
  }
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const StringId key = key_of(items[i]);
    std::optional<Generic> value = made ? generic_of(items[i + 1]) : std::nullopt;
    if (!value) return {Tag::dropped, 0};
    made->depth = std::max(made->depth, value->depth + 1);
    made->value[std::string(snapshot_.strings[key])] = std::move(value->value);
  }
  return push_generic(std::move(*made));
}

StringId Builder::key_of(Value key) {
  if (key.tag() == Tag::string) return key.id();
  if (key.tag() != Tag::integer) {
    throw Refusal(
        fmt::format("a dict with a {} for a key; a snapshot has strings", what(key.tag())));
  }
  return intern(std::to_string(key.payload()));
}

void Builder::drop(Value key) {
  const std::string_view text = snapshot_.strings[key_of(key)];
  if (std::ranges::find(snapshot_.dropped, text) == snapshot_.dropped.end()) {
    snapshot_.dropped.emplace_back(text);
  }
}

void Builder::add_extra(std::vector<Extra>& extras, std::uint32_t row, Value key, Value value) {
  using Kind = Extra::Kind;
  Extra extra{.row = row, .key = key_of(key)};
  switch (value.tag()) {
    case Tag::none:
      break;
    case Tag::boolean:
      extra.kind = Kind::boolean;
      extra.value = value.index();
      break;
    case Tag::integer:
      extra.kind = Kind::integer;
      extra.value = static_cast<std::uint64_t>(value.payload());
      break;
    case Tag::wide_integer:
      extra.kind = Kind::integer;
      extra.value = wide_[value.index()];
      break;
    case Tag::wide_unsigned:
      extra.kind = Kind::unsigned_integer;
      extra.value = wide_[value.index()];
      break;
    case Tag::real:
      extra.kind = Kind::real;
      extra.value = wide_[value.index()];
      break;
    case Tag::string:
      extra.kind = Kind::text;
      extra.value = value.id();
      break;
    case Tag::stack:
      extra.kind = Kind::stack;
      extra.value = value.id();
      break;
    default: {
      std::optional<Generic> generic = generic_of(value);
      if (!generic) return drop(key);
      extra.kind = Kind::json;
      extra.value = snapshot_.values.size();
      snapshot_.values.push_back(std::move(generic->value));
    }
  }
  make_room(extras, source_.left(), 32);
  extras.push_back(extra);
}

// ---- Fields ----

void Builder::refuse_type(Value value, Field field, const char* of, const char* wanted) {
  throw Refusal(
      fmt::format("`{}` of {} is a {}, not {}; the file is corrupted or no memory "
                  "snapshot",
                  text_of(field), of, what(value.tag()), wanted));
}

std::int64_t Builder::integer_of(Value value, Field field, const char* of) const {
  switch (value.tag()) {
    case Tag::integer:
    case Tag::boolean:
      return value.payload();
    case Tag::wide_integer:
    case Tag::wide_unsigned:
      return static_cast<std::int64_t>(wide_[value.index()]);
    case Tag::real: {
      // A file that went through a table of floats.
      const auto real = std::bit_cast<double>(wide_[value.index()]);
      if (std::abs(real) < 9e15 && real == std::floor(real)) return static_cast<std::int64_t>(real);
      break;
    }
    default:
      break;
  }
  refuse_type(value, field, of, "an integer");
}

std::uint64_t Builder::unsigned_of(Value value, Field field, const char* of) const {
  return static_cast<std::uint64_t>(integer_of(value, field, of));
}

StringId Builder::string_of(Value value, Field field, const char* of) const {
  if (value.tag() != Tag::string) refuse_type(value, field, of, "a string");
  return value.id();
}

StackId Builder::frames_of(Value value, Field field, const char* of) const {
  if (value.tag() == Tag::stack) return value.id();
  if (value.tag() != Tag::empty_list) refuse_type(value, field, of, "a list of frames");
  return 0;
}

Builder::Range Builder::range_of(Value value, Tag tag, Field field, const char* of) const {
  if (value.tag() == tag) return ranges_[value.index()];
  if (value.tag() == Tag::empty_list) return {0, 0};
  refuse_type(value, field, of,
              tag == Tag::segments ? "a list of segments"
              : tag == Tag::blocks ? "a list of blocks"
                                   : "a list of such entries");
}

std::uint32_t Builder::pool(std::int64_t first, std::int64_t second) {
  const std::uint64_t hash =
      hash_pair(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(second));
  const std::uint32_t found = pool_index_.find(
      hash, [&](std::uint32_t row) { return snapshot_.pools[row] == std::pair(first, second); });
  if (found != HashIndex::none) return found;
  const std::uint32_t row = row_number(snapshot_.pools.size());
  snapshot_.pools.emplace_back(first, second);
  pool_index_.insert(hash, row);
  return row;
}

std::uint32_t Builder::pool_of(Value value, Field field, const char* of) {
  if (value.tag() == Tag::pool) return value.id();
  if (value.tag() == Tag::json) {
    const json& list = generics_[value.index()].value;
    if (list.is_array() && list.size() == 2 && list[0].is_number_integer() &&
        list[1].is_number_integer()) {
      const std::uint32_t row = pool(list[0].get<std::int64_t>(), list[1].get<std::int64_t>());
      if (!value.is_marked() && value.index() + 1 == generics_.size()) generics_.pop_back();
      return row;
    }
  }
  refuse_type(value, field, of, "a pair of integers");
}

std::uint32_t Builder::stream_of(Value value, const char* of) {
  const std::uint64_t handle = unsigned_of(value, Field::stream, of);
  if (handle == 0) return 0;
  const std::uint64_t hash = hash_pair(handle, 0);
  const std::uint32_t found =
      stream_index_.find(hash, [&](std::uint32_t row) { return snapshot_.streams[row] == handle; });
  if (found != HashIndex::none) return found;
  const std::uint32_t row = row_number(snapshot_.streams.size());
  snapshot_.streams.push_back(handle);
  stream_index_.insert(hash, row);
  return row;
}

// ---- JSON values ----

void Builder::charge(std::size_t nodes) {
  // What is referred to many times is copied, and may grow far beyond the file.
  nodes_ += nodes;
  if (nodes_ > std::min<std::uint64_t>(1000 + source_.offset(), max_nodes)) throw TooLarge();
}

std::optional<Builder::Generic> Builder::generic_of(Value value) {
  try {
    Generic made = make_generic(value);
    if (made.depth > max_depth) {
      throw Refusal(fmt::format("nested more than {} levels deep; a snapshot is not", max_depth));
    }
    return made;
  } catch (const TooLarge&) {
    return std::nullopt;
  }
}

Builder::Generic Builder::make_generic(Value value) {
  if (value.tag() == Tag::json) {
    Generic& held = generics_[value.index()];
    if (value.is_marked()) {
      charge(count_nodes(held.value));
      return held;
    }
    Generic moved = std::move(held);
    if (value.index() + 1 == generics_.size()) generics_.pop_back();
    return moved;
  }
  charge(1);
  switch (value.tag()) {
    case Tag::none:
      return {nullptr, 0};
    case Tag::boolean:
      return {value.payload() != 0, 0};
    case Tag::integer:
      return {value.payload(), 0};
    case Tag::wide_integer:
      return {static_cast<std::int64_t>(wide_[value.index()]), 0};
    case Tag::wide_unsigned:
      return {wide_[value.index()], 0};
    case Tag::real:
      return {std::bit_cast<double>(wide_[value.index()]), 0};
    case Tag::string: {
      const std::string_view text = snapshot_.strings[value.id()];
      charge(text.size() / 32);
      return {text, 0};
    }
    case Tag::pool: {
      const auto& [first, second] = snapshot_.pools[value.index()];
      return {json::array({first, second}), 1};
    }
    case Tag::empty_list:
      return {json::array(), 1};
    case Tag::empty_dict:
      return {json::object(), 1};
    case Tag::frame:
    case Tag::stack: {
      Tree tree(snapshot_);
      if (value.tag() == Tag::frame) {
        charge(4);
        leaklab::put(tree, snapshot_, snapshot_.frames[value.index()],
                     extras_of(snapshot_.frame_extras, value.index()));
      } else {
        charge(4 * snapshot_.stacks[value.id()].size());
        tree.stack(value.id());
      }
      json made = tree.take();
      const auto depth = static_cast<std::uint32_t>(depth_of(made));
      return {std::move(made), depth};
    }
    case Tag::dropped:
      throw TooLarge();
    default:
      return rows_of(value);
  }
}

// Rows of a table: of a shape that we know, in a place that we don't.
Builder::Generic Builder::rows_of(Value value) {
  Tree tree(snapshot_);
  const auto put_event = [&](const std::vector<TraceEvent>& events,
                             const std::vector<Extra>& extras, std::size_t row) {
    charge(10 + 4 * snapshot_.stacks[events[row].stack].size());
    leaklab::put(tree, snapshot_, events[row], extras_of(extras, row));
  };
  const auto put_row = [&](Tag tag, std::size_t row) {
    switch (tag) {
      case Tag::event:
      case Tag::events:
        return put_event(events_, event_extras_, row);
      case Tag::block:
      case Tag::blocks:
        charge(6 + 4 * snapshot_.stacks[snapshot_.blocks[row].stack].size());
        return leaklab::put(tree, snapshot_, snapshot_.blocks[row], history_of(snapshot_, row),
                            extras_of(snapshot_.block_extras, row));
      case Tag::entry:
      case Tag::entries:
        charge(4 + 4 * snapshot_.stacks[snapshot_.history[row].stack].size());
        return leaklab::put(tree, snapshot_, snapshot_.history[row]);
      case Tag::segment:
      case Tag::segments: {
        const Segment& segment = snapshot_.segments[row];
        charge(12 + 4 * snapshot_.stacks[segment.stack].size());
        for (std::uint32_t k = 0; k < segment.blocks; ++k) charge(6);
        return leaklab::put(tree, snapshot_, segment, extras_of(snapshot_.segment_extras, row));
      }
      case Tag::annotation:
      case Tag::annotations:
        charge(4);
        return leaklab::put(tree, snapshot_, snapshot_.annotations[row],
                            extras_of(snapshot_.annotation_extras, row));
      default:
        throw Refusal(fmt::format("a {} where none can be; the file is corrupted", what(tag)));
    }
  };
  if (value.tag() <= Tag::annotation) {
    put_row(value.tag(), value.index());
  } else if (value.tag() == Tag::traces) {
    tree.begin_array();
    for (const std::uint32_t index : trace_lists_[value.index()]) {
      tree.begin_array();
      const Trace trace = index == HashIndex::none ? Trace{} : std::move(closed_traces_[index]);
      for (std::size_t row = 0; row < trace.events.size(); ++row) {
        put_event(trace.events, trace.extras, row);
      }
      tree.end_array();
    }
    tree.end_array();
  } else if (value.tag() <= Tag::annotations) {
    const Range range = ranges_[value.index()];
    tree.begin_array();
    for (std::uint32_t k = 0; k < range.count; ++k) put_row(value.tag(), range.first + k);
    tree.end_array();
  } else {
    put_row(value.tag(), 0);
  }
  json made = tree.take();
  const auto depth = static_cast<std::uint32_t>(depth_of(made));
  return {std::move(made), depth};
}

Builder::Value Builder::push_generic(Generic generic) {
  generics_.push_back(std::move(generic));
  return {Tag::json, static_cast<std::int64_t>(generics_.size() - 1)};
}

// ---- The end ----

namespace {

// Leaves the rows of `range` alone.
template <typename Row, typename Range>
void keep(std::vector<Row>& rows, std::vector<Extra>& extras, const Range& range) {
  std::ranges::stable_sort(extras, {}, &Extra::row);
  if (range.count == rows.size()) return;
  const auto first = rows.begin() + range.first;
  rows = std::vector<Row>(first, first + range.count);
  std::erase_if(extras, [&](Extra& extra) {
    const bool kept = extra.row >= range.first && extra.row - range.first < range.count;
    extra.row -= range.first;
    return !kept;
  });
}

}  // namespace

// The blocks of the segments, in their order.
void Builder::keep_blocks() {
  std::erase_if(snapshot_.history,
                [](const HistoryEntry& entry) { return entry.block == HashIndex::none; });
  std::ranges::stable_sort(snapshot_.history, {}, &HistoryEntry::block);
  std::ranges::stable_sort(snapshot_.block_extras, {}, &Extra::row);
  std::size_t next = 0;
  bool in_order = true;
  for (Segment& segment : snapshot_.segments) {
    if (segment.blocks == 0) segment.first_block = static_cast<std::uint32_t>(next);
    in_order = in_order && segment.first_block == next;
    next += segment.blocks;
  }
  if (in_order && next == snapshot_.blocks.size()) return;

  std::vector<Block> blocks;
  std::vector<HistoryEntry> history;
  std::vector<Extra> extras;
  for (Segment& segment : snapshot_.segments) {
    const std::uint32_t from = segment.first_block;
    segment.first_block = static_cast<std::uint32_t>(blocks.size());
    for (std::uint32_t row = from; row < from + segment.blocks; ++row) {
      const auto to = static_cast<std::uint32_t>(blocks.size());
      blocks.push_back(snapshot_.blocks[row]);
      for (HistoryEntry entry : history_of(snapshot_, row)) {
        entry.block = to;
        history.push_back(entry);
      }
      for (Extra extra : extras_of(snapshot_.block_extras, row)) {
        extra.row = to;
        extras.push_back(extra);
      }
    }
  }
  snapshot_.blocks = std::move(blocks);
  snapshot_.history = std::move(history);
  snapshot_.block_extras = std::move(extras);
}

// What the keys that a block lacks would have said.
void Builder::complete_blocks() {
  for (const Segment& segment : snapshot_.segments) {
    std::uint64_t address = segment.address;
    for (std::uint32_t k = 0; k < segment.blocks; ++k) {
      Block& block = snapshot_.blocks[segment.first_block + k];
      if ((block.keys & Block::has_address) == 0) block.address = address;
      address = block.address + static_cast<std::uint64_t>(block.size);
    }
  }
  // From the last to the first, so that a block's first entry wins.
  for (std::size_t k = snapshot_.history.size(); k-- > 0;) {
    const HistoryEntry& entry = snapshot_.history[k];
    Block& block = snapshot_.blocks[entry.block];
    if ((block.keys & Block::has_requested_size) == 0) block.requested = entry.real_size;
    if ((block.keys & Block::has_frames) == 0) block.stack = entry.stack;
  }
}

Snapshot Builder::finish() {
  if (stack_.size() != 1 || !marks_.empty()) {
    throw Refusal(fmt::format("ends with {} values where one is expected; the file is corrupted",
                              stack_.size()));
  }
  const Value value = take(stack_.back());
  if (value.tag() == Tag::segments || value.tag() == Tag::empty_list) {
    snapshot_.bare_segments = true;
    snapshot_.keys = Snapshot::has_segments;
    segments_ = range_of(value, Tag::segments, Field::segments, "the snapshot");
  } else if (value.tag() != Tag::top) {
    throw Refusal(
        fmt::format("holds a {}, no memory snapshot; give the file that "
                    "torch.cuda.memory._dump_snapshot wrote",
                    what(value.tag())));
  }
  keep(snapshot_.segments, snapshot_.segment_extras, segments_);
  keep(snapshot_.annotations, snapshot_.annotation_extras, annotations_);
  keep_blocks();
  complete_blocks();
  return std::move(snapshot_);
}

}  // namespace leaklab

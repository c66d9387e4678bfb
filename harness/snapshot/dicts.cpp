#include "dicts.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "complete.h"

namespace leaklab {
namespace {

constexpr std::uint64_t bit(Field field) { return std::uint64_t{1} << static_cast<int>(field); }

// The tag of what a dict with these keys is.
Tag shape_of(std::span<const Value> items) {
  std::uint64_t keys = 0;
  const auto any = [&](auto... field) { return (keys & (bit(field) | ...)) != 0; };
  using enum Field;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    keys |= bit(items[i].field());
    // Most are, and show it early.
    if (any(action) && any(addr, device_free, size)) return Tag::event;
  }
  if (any(filename) && any(line, Field::name)) return Tag::frame;
  if (any(state) && any(size)) return Tag::block;
  if (any(blocks, segment_type) && any(total_size, address)) return Tag::segment;
  if (any(stage) && any(Field::name)) return Tag::annotation;
  if (any(real_size)) return Tag::entry;
  if (any(segments, device_traces)) return Tag::top;
  return Tag::json;
}

[[noreturn]] void refuse_type(Value value, Field field, const char* of, std::string_view wanted) {
  throw Refusal(fmt::format("`{}` of {} is {}, not {}; the file is corrupted or no memory snapshot",
                            text_of(field), of, what(value.tag()), wanted));
}

StringId string_of(Value value, Field field, const char* of) {
  if (value.tag() != Tag::string) refuse_type(value, field, of, "a string");
  return value.string_id();
}

StackId frames_of(Value value, Field field, const char* of) {
  if (value.tag() == Tag::stack) return value.id();
  if (value.tag() != Tag::empty_list) refuse_type(value, field, of, "a list of frames");
  return 0;
}

// Of two names one would be an Extra, and which of them holds could not be told.
[[noreturn]] void refuse_second(Field field, const char* of) {
  throw Refusal(fmt::format("{} with two `{}`; the file is corrupted", of, text_of(field)));
}

// The key of `items` that means `field`, or null.
const Value* find(std::span<const Value> items, Field field) {
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (items[i].is_key(field)) return &items[i];
  }
  return nullptr;
}

}  // namespace

Value Dicts::set_one(Value dict, std::span<const Value> item) {
  return set(dict.tag() == Tag::empty_dict ? hold_items() : dict, item);
}

Value Dicts::set(Value dict, std::span<const Value> items) {
  if (items.size() % 2 != 0) throw Refusal("a key without a value; the file is corrupted");
  if (items.empty()) return dict;
  if (dict.tag() == Tag::empty_dict) {
    if (items.size() < 2 * pickle_batch) return make(items);
    dict = hold_items();
  }
  switch (dict.tag()) {
    case Tag::items: {
      std::vector<Value>& so_far = items_[dict.index()];
      so_far.insert(so_far.end(), items.begin(), items.end());
      return dict;
    }
    case Tag::event:
      add_to_event(dict, items);
      return dict;
    case Tag::block:
      fill(parts_.snapshot.blocks[dict.index()], dict.id(), items);
      return dict;
    case Tag::entry:
      fill(parts_.snapshot.history[dict.index()], dict.id(), items);
      return dict;
    case Tag::segment:
      fill(parts_.snapshot.segments[dict.index()], dict.id(), items);
      return dict;
    case Tag::annotation:
      fill(parts_.snapshot.annotations[dict.index()], dict.id(), items);
      return dict;
    case Tag::frame:
      return make_frame(parts_.snapshot.frames[dict.index()], items);
    case Tag::top:
      fill_top(items);
      return dict;
    case Tag::json:
    case Tag::dropped:
      return generics_.set(dict, items);
    default:
      throw Refusal(fmt::format("sets a key of {}; the file is corrupted", what(dict.tag())));
  }
}

Value Dicts::hold_items() {
  items_.emplace_back();
  return {Tag::items, items_.size() - 1};
}

Value Dicts::close(Value dict) {
  const std::vector<Value> items = std::move(items_[dict.index()]);
  return make(items);
}

Value Dicts::make(std::span<const Value> items) {
  switch (shape_of(items)) {
    case Tag::event:
      return make_event(items);
    case Tag::block:
      return make_row(Tag::block, parts_.snapshot.blocks, 24, items);
    case Tag::entry:
      return make_row(Tag::entry, parts_.snapshot.history, 16, items);
    case Tag::segment:
      return make_row(Tag::segment, parts_.snapshot.segments, 64, items);
    case Tag::annotation:
      return make_row(Tag::annotation, parts_.snapshot.annotations, 16, items);
    case Tag::frame:
      return make_frame({}, items);
    case Tag::top:
      fill_top(items);
      return Value(Tag::top);
    default:
      return generics_.set(Value(Tag::empty_dict), items);
  }
}

template <typename Row>
Value Dicts::make_row(Tag tag, std::vector<Row>& rows, std::uint64_t bytes,
                      std::span<const Value> items) {
  const std::uint32_t number = row_number(rows.size());
  make_room(rows, parts_.source, bytes);
  Row& row = rows.emplace_back();
  row.keys = 0;
  if constexpr (std::is_same_v<Row, HistoryEntry>) row.block = HashIndex::none;
  fill(row, number, items);
  return {tag, number};
}

Value Dicts::make_event(std::span<const Value> items) {
  // Lists that stand side by side have each a mark of its own below.
  const std::size_t place = parts_.marks.empty() ? 0 : parts_.marks.back();
  if (parts_.runs.empty() || parts_.runs.back().place != place) [[unlikely]]
    begin_run(place);
  Run& run = parts_.runs.back();
  const std::uint32_t number = row_number(run.first + run.trace.events.size());
  make_room(run.trace.events, parts_.source, 24);
  TraceEvent event;
  event.keys = 0;
  fill(event, number, items);
  run.trace.events.push_back(event);
  return {Tag::event, number};
}

void Dicts::begin_run(std::size_t place) {
  parts_.runs.push_back({.place = place, .first = next_event(), .trace = {}});
}

// More keys: of the last one, so that the extras are in the order of rows.
void Dicts::add_to_event(Value event, std::span<const Value> items) {
  constexpr const char* of = Table<TraceEvent>::entry;
  if (find(items, Field::action) != nullptr) refuse_second(Field::action, of);
  if (event.index() + 1 != next_event()) {
    throw Refusal(fmt::format("a key of {} comes after the next entry; the file is corrupted", of));
  }
  Trace& trace = parts_.runs.back().trace.events;
  TraceEvent last = trace.back();
  fill(last, event.id(), items);
  trace.set(trace.size() - 1, last);
}

std::uint32_t Dicts::next_event() const {
  if (parts_.runs.empty()) return 0;
  const Run& last = parts_.runs.back();
  return last.first + static_cast<std::uint32_t>(last.trace.events.size());
}

// ---- The tables ----

// The keys come in the order of the columns, so one walk over the columns finds them all; where
// they don't, each walk finds some.
template <typename Row, typename Other>
void Dicts::fill_columns(Row& row, std::span<const Value> items, Other other) {
  const Value* item = items.data();
  const Value* const end = item + items.size();
  while (item != end) {
    const Value* const before = item;
    Table<Row>::each([&]<typename Column>(Column column) {
      if (item == end || !item->is_key(column.key(row))) return;
      if (item[1].tag() == Tag::none || !set_column<Column>(row, item[1])) other(item);
      item += 2;
    });
    if (item == before) {
      other(item);
      item += 2;
    }
  }
}

template <typename Column, typename Row>
bool Dicts::set_column(Row& row, Value value) {
  const Field field = Column::key(row);
  constexpr Type type = Column::type;
  constexpr const char* of = Table<Row>::entry;
  if constexpr (type == Type::rows) {
    return false;
  } else {
    auto& member = row.*Column::member;
    using Member = std::remove_reference_t<decltype(member)>;
    if constexpr (type == Type::integer) {
      const std::int64_t number = integer_of(value, field, of);
      if (!std::in_range<Member>(number)) {
        throw Refusal(
            fmt::format("{} {} of {}; the file is corrupted", text_of(field), number, of));
      }
      member = static_cast<Member>(number);
    } else if constexpr (type == Type::address || type == Type::event_address) {
      member = static_cast<std::uint64_t>(integer_of(value, field, of));
    } else if constexpr (type == Type::boolean) {
      member = integer_of(value, field, of) != 0;
    } else if constexpr (type == Type::string) {
      member = string_of(value, field, of);
    } else if constexpr (type == Type::stream) {
      member = interner_.stream(static_cast<std::uint64_t>(integer_of(value, field, of)));
    } else if constexpr (type == Type::pool) {
      member = pool_of(value, field, of);
    } else if constexpr (type == Type::frames) {
      member = frames_of(value, field, of);
    } else {
      static_assert(type == Type::name);
      if constexpr (Column::bit != 0) {
        if (Column::is_in(row)) refuse_second(field, of);
      }
      member = interner_.named<Member>(string_of(value, field, of));
    }
    if constexpr (Column::bit != 0) row.keys |= Column::bit;
    if constexpr (type == Type::name) return member != Member::other;
    return true;
  }
}

void Dicts::fill(TraceEvent& event, std::uint32_t number, std::span<const Value> items) {
  // The action tells which key is the address, and may come after it.
  const Value* action = find(items, Field::action);
  if (action != nullptr && action[1].tag() == Tag::string) {
    event.kind = interner_.named<EventKind>(action[1].string_id());
  }
  const EventKind kind = event.kind;
  fill_columns(event, items, [&](const Value* item) {
    Run& run = parts_.runs.back();
    generics_.keep(run.trace.extras, number - run.first, item[0], item[1]);
  });
  if (event.kind != kind) refuse_second(Field::action, Table<TraceEvent>::entry);
}

void Dicts::fill(HistoryEntry& entry, std::uint32_t /*number*/, std::span<const Value> items) {
  fill_columns(entry, items, [&](const Value* item) { generics_.drop(*item); });
}

void Dicts::fill(Block& block, std::uint32_t number, std::span<const Value> items) {
  fill_columns(block, items, [&](const Value* item) {
    if (!item->is_key(Field::history) || item[1].tag() == Tag::none) {
      return generics_.keep(parts_.snapshot.block_extras, number, item[0], item[1]);
    }
    const Range range = range_of(item[1], Tag::entries, Field::history, Table<Block>::entry);
    for (std::uint32_t k = 0; k < range.count; ++k) {
      parts_.snapshot.history[range.first + k].block = number;
    }
    block.keys |= Block::has_history;
  });
}

void Dicts::fill(Segment& segment, std::uint32_t number, std::span<const Value> items) {
  fill_columns(segment, items, [&](const Value* item) {
    if (!item->is_key(Field::blocks) || item[1].tag() == Tag::none) {
      return generics_.keep(parts_.snapshot.segment_extras, number, item[0], item[1]);
    }
    const Range range = range_of(item[1], Tag::blocks, Field::blocks, Table<Segment>::entry);
    segment.first_block = range.first;
    segment.blocks = range.count;
    segment.keys |= Segment::has_blocks;
  });
}

void Dicts::fill(Annotation& annotation, std::uint32_t number, std::span<const Value> items) {
  fill_columns(annotation, items, [&](const Value* item) {
    generics_.keep(parts_.snapshot.annotation_extras, number, item[0], item[1]);
  });
}

// A frame that is there already, or a new one. One with extras is always new.
Value Dicts::make_frame(Frame frame, std::span<const Value> items) {
  std::vector<const Value*> others;
  fill_columns(frame, items, [&](const Value* item) { others.push_back(item); });
  if (others.empty()) return {Tag::frame, interner_.frame(frame)};
  const FrameId number = row_number(parts_.snapshot.frames.size());
  parts_.snapshot.frames.push_back(frame);
  for (const Value* item : others) {
    generics_.keep(parts_.snapshot.frame_extras, number, item[0], item[1]);
  }
  return {Tag::frame, number};
}

void Dicts::fill_top(std::span<const Value> items) {
  constexpr const char* of = "the snapshot";
  Snapshot& snapshot = parts_.snapshot;
  if (has_top_) throw Refusal("holds two snapshots; the file is corrupted");
  has_top_ = true;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const Value value = items[i + 1];
    const Field field = items[i].field();
    switch (value.tag() == Tag::none ? Field::unknown : field) {
      case Field::segments:
        segments_ = range_of(value, Tag::segments, field, of);
        snapshot.keys |= Snapshot::has_segments;
        break;
      case Field::device_traces:
        if (value.tag() == Tag::traces) {
          Traces& traces = parts_.trace_lists[value.index()];
          snapshot.traces = std::move(traces.events);
          snapshot.trace_extras = std::move(traces.extras);
        } else if (value.tag() != Tag::empty_list) {
          refuse_type(value, field, of,
                      "a list with a list of entries for each device" + parts_.odd_entry);
        }
        snapshot.keys |= Snapshot::has_device_traces;
        break;
      case Field::allocator_settings:
        if (std::optional<nlohmann::json> settings = generics_.json_of(value)) {
          snapshot.allocator_settings = std::move(*settings);
          snapshot.keys |= Snapshot::has_allocator_settings;
        } else {
          generics_.drop(items[i]);
        }
        break;
      case Field::external_annotations:
        annotations_ = range_of(value, Tag::annotations, field, of);
        snapshot.keys |= Snapshot::has_external_annotations;
        break;
      default:
        generics_.keep(snapshot.extras, 0, items[i], value);
    }
  }
}

// ---- Values ----

std::int64_t Dicts::other_integer_of(Value value, Field field, const char* of) const {
  switch (value.tag()) {
    case Tag::boolean:
      return value.payload();
    case Tag::wide_integer:
    case Tag::wide_unsigned:
      return static_cast<std::int64_t>(parts_.wide[value.index()]);
    case Tag::real: {
      // A file that went through a table of floats.
      const auto real = std::bit_cast<double>(parts_.wide[value.index()]);
      if (std::abs(real) < 9e15 && real == std::floor(real)) return static_cast<std::int64_t>(real);
      break;
    }
    default:
      break;
  }
  refuse_type(value, field, of, "an integer");
}

std::uint32_t Dicts::pool_of(Value value, Field field, const char* of) {
  if (value.tag() == Tag::pool) return value.id();
  const auto pair = generics_.pair_of(value);
  if (!pair) refuse_type(value, field, of, "a pair of integers");
  return interner_.pool(pair->first, pair->second);
}

Range Dicts::range_of(Value value, Tag tag, Field field, const char* of) const {
  if (value.tag() == tag) return parts_.ranges[value.index()];
  if (value.tag() == Tag::empty_list) return {};
  const char* wanted = tag == Tag::segments ? "a list of segments"
                       : tag == Tag::blocks ? "a list of blocks"
                                            : "a list of such entries";
  refuse_type(value, field, of, wanted + parts_.odd_entry);
}

Snapshot Dicts::finish(Value root) {
  if (root.tag() == Tag::segments || root.tag() == Tag::empty_list) {
    parts_.snapshot.bare_segments = true;
    parts_.snapshot.keys = Snapshot::has_segments;
    segments_ = range_of(root, Tag::segments, Field::segments, "the snapshot");
  } else if (root.tag() != Tag::top) {
    throw Refusal(
        fmt::format("holds {}, no memory snapshot; give the file that "
                    "torch.cuda.memory._dump_snapshot wrote",
                    what(root.tag())));
  }
  complete(parts_.snapshot, segments_, annotations_);
  return std::move(parts_.snapshot);
}

}  // namespace leaklab

#include "generics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tree.h"

namespace leaklab {
namespace {

using nlohmann::json;

constexpr std::size_t max_depth = 64;
constexpr std::size_t max_nodes = 1'000'000;

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

}  // namespace

Value Generics::append(Value list, std::span<const Value> elements) {
  if (list.tag() == Tag::dropped) return list;
  std::optional<Generic> made = generic_of(list);
  if (!made) return Value(Tag::dropped);
  if (!made->value.is_array()) throw Refusal("appends to a dict; the file is corrupted");
  for (const Value& element : elements) {
    std::optional<Generic> value = generic_of(element);
    if (!value) return Value(Tag::dropped);
    made->depth = std::max(made->depth, value->depth + 1);
    made->value.push_back(std::move(value->value));
  }
  return hold(std::move(*made));
}

Value Generics::set(Value dict, std::span<const Value> items) {
  if (dict.tag() == Tag::dropped) return dict;
  std::optional<Generic> made = generic_of(dict);
  if (!made) return Value(Tag::dropped);
  if (!made->value.is_object()) throw Refusal("sets a key of a list; the file is corrupted");
  for (std::size_t i = 0; i < items.size(); i += 2) {
    const StringId key = interner_.key(items[i]);
    std::optional<Generic> value = generic_of(items[i + 1]);
    if (!value) return Value(Tag::dropped);
    made->depth = std::max(made->depth, value->depth + 1);
    made->value[std::string(parts_.snapshot.strings[key])] = std::move(value->value);
  }
  return hold(std::move(*made));
}

std::optional<json> Generics::json_of(Value value) {
  std::optional<Generic> made = generic_of(value);
  if (!made) return std::nullopt;
  return std::move(made->value);
}

std::optional<std::pair<std::int64_t, std::int64_t>> Generics::pair_of(Value value) {
  if (value.tag() != Tag::json) return std::nullopt;
  const json& list = held_[value.index()].value;
  if (!list.is_array() || list.size() != 2 || !list[0].is_number_integer() ||
      !list[1].is_number_integer()) {
    return std::nullopt;
  }
  const std::pair pair(list[0].get<std::int64_t>(), list[1].get<std::int64_t>());
  if (!value.is_marked() && value.index() + 1 == held_.size()) held_.pop_back();
  return pair;
}

void Generics::keep(std::vector<Extra>& extras, std::uint32_t row, Value key, Value value) {
  using Kind = Extra::Kind;
  Extra extra{.row = row, .key = interner_.key(key)};
  const auto say = [&](Kind kind, std::uint64_t bits) {
    extra.kind = kind;
    extra.value = bits;
  };
  switch (value.tag()) {
    case Tag::none:
      break;
    case Tag::boolean:
      say(Kind::boolean, value.index());
      break;
    case Tag::integer:
      say(Kind::integer, static_cast<std::uint64_t>(value.payload()));
      break;
    case Tag::wide_integer:
      say(Kind::integer, parts_.wide[value.index()]);
      break;
    case Tag::wide_unsigned:
      say(Kind::unsigned_integer, parts_.wide[value.index()]);
      break;
    case Tag::real:
      say(Kind::real, parts_.wide[value.index()]);
      break;
    case Tag::string:
      say(Kind::text, value.string_id());
      break;
    case Tag::stack:
      say(Kind::stack, value.id());
      break;
    default: {
      std::optional<json> made = json_of(value);
      if (!made) return drop(key);
      say(Kind::json, parts_.snapshot.values.size());
      parts_.snapshot.values.push_back(std::move(*made));
    }
  }
  make_room(extras, parts_.source, 32);
  extras.push_back(extra);
}

void Generics::drop(Value key) {
  const std::string_view text = parts_.snapshot.strings[interner_.key(key)];
  std::vector<std::string>& dropped = parts_.snapshot.dropped;
  if (std::ranges::find(dropped, text) == dropped.end()) dropped.emplace_back(text);
}

Value Generics::hold(Generic generic) {
  held_.push_back(std::move(generic));
  return {Tag::json, held_.size() - 1};
}

void Generics::charge(std::size_t nodes) {
  // What is referred to many times is copied, and may grow far beyond the file.
  nodes_ += nodes;
  if (nodes_ > std::min<std::uint64_t>(1000 + parts_.source.offset(), max_nodes)) {
    throw TooLarge();
  }
}

std::optional<Generics::Generic> Generics::generic_of(Value value) {
  try {
    Generic made = make(value);
    if (made.depth > max_depth) {
      throw Refusal(fmt::format("nested more than {} levels deep; a snapshot is not", max_depth));
    }
    return made;
  } catch (const TooLarge&) {
    return std::nullopt;
  }
}

Generics::Generic Generics::measured(json made) {
  const auto depth = static_cast<std::uint32_t>(depth_of(made));
  return {std::move(made), depth};
}

Generics::Generic Generics::make(Value value) {
  const Snapshot& snapshot = parts_.snapshot;
  if (value.tag() == Tag::json) {
    Generic& held = held_[value.index()];
    if (value.is_marked()) {
      charge(count_nodes(held.value));
      return held;
    }
    Generic moved = std::move(held);
    if (value.index() + 1 == held_.size()) held_.pop_back();
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
      return {static_cast<std::int64_t>(parts_.wide[value.index()]), 0};
    case Tag::wide_unsigned:
      return {parts_.wide[value.index()], 0};
    case Tag::real:
      return {std::bit_cast<double>(parts_.wide[value.index()]), 0};
    case Tag::string: {
      const std::string_view text = snapshot.strings[value.string_id()];
      charge(text.size() / 32);
      return {text, 0};
    }
    case Tag::pool: {
      const auto& [first, second] = snapshot.pools[value.index()];
      return {json::array({first, second}), 1};
    }
    case Tag::empty_list:
      return {json::array(), 1};
    case Tag::empty_dict:
      return {json::object(), 1};
    case Tag::frame: {
      charge(4);
      Tree tree(snapshot);
      put_frame(tree, snapshot, value.id());
      return measured(tree.take());
    }
    case Tag::stack: {
      charge(4 * snapshot.stacks[value.id()].size());
      Tree tree(snapshot);
      tree.stack(value.id());
      return measured(tree.take());
    }
    case Tag::dropped:
      throw TooLarge();
    default:
      return make_rows(value);
  }
}

// Rows of a table: of a shape that we know, in a place that we don't.
Generics::Generic Generics::make_rows(Value value) {
  const Snapshot& snapshot = parts_.snapshot;
  Tree tree(snapshot);
  const auto charge_row = [&](std::size_t keys, StackId stack) {
    charge(keys + 4 * snapshot.stacks[stack].size());
  };
  const auto put_event = [&](const Trace& trace, std::size_t row) {
    charge_row(10, trace.events[row].stack);
    put_row(tree, snapshot, trace.events[row], extras_of(trace.extras, row));
  };
  const auto put_any = [&](Tag tag, std::size_t row) {
    switch (tag) {
      case Tag::event:
      case Tag::events: {
        const auto run = run_of(parts_.runs, static_cast<std::uint32_t>(row));
        return put_event(run->trace, row - run->first);
      }
      case Tag::block:
      case Tag::blocks:
        charge_row(6, snapshot.blocks[row].stack);
        return put_block(tree, snapshot, row);
      case Tag::entry:
      case Tag::entries:
        charge_row(4, snapshot.history[row].stack);
        return put_row(tree, snapshot, snapshot.history[row], {});
      case Tag::segment:
      case Tag::segments: {
        const Segment& segment = snapshot.segments[row];
        charge_row(12, segment.stack);
        for (std::uint32_t k = 0; k < segment.blocks; ++k) charge(6);
        return put_segment(tree, snapshot, row);
      }
      case Tag::annotation:
      case Tag::annotations:
        charge(4);
        return put_row(tree, snapshot, snapshot.annotations[row],
                       extras_of(snapshot.annotation_extras, row));
      default:
        throw Refusal(fmt::format("a {} where none can be; the file is corrupted", what(tag)));
    }
  };
  if (value.tag() == Tag::traces) {
    tree.begin_array();
    for (Trace& closed : parts_.trace_lists[value.index()]) {
      tree.begin_array();
      const Trace trace = std::move(closed);
      for (std::size_t row = 0; row < trace.events.size(); ++row) {
        put_event(trace, row);
      }
      tree.end_array();
    }
    tree.end_array();
  } else if (value.tag() >= Tag::events && value.tag() <= Tag::annotations) {
    const Range range = parts_.ranges[value.index()];
    tree.begin_array();
    for (std::uint32_t k = 0; k < range.count; ++k) put_any(value.tag(), range.first + k);
    tree.end_array();
  } else {
    put_any(value.tag(), value.index());
  }
  return measured(tree.take());
}

}  // namespace leaklab

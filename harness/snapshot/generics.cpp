#include "generics.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace leaklab {
namespace {

using nlohmann::json;

constexpr std::size_t max_depth = 64;
constexpr std::size_t max_nodes = 1'000'000;

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
  try {
    Generic made = generic_of(list);
    if (!made.value.is_array()) throw Refusal("appends to a dict; the file is corrupted");
    for (const Value& element : elements) {
      Generic value = generic_of(element);
      made.depth = std::max(made.depth, value.depth + 1);
      made.value.push_back(std::move(value.value));
    }
    return hold(std::move(made));
  } catch (const TooLarge&) {
    return Value(Tag::dropped);
  }
}

Value Generics::set(Value dict, std::span<const Value> items) {
  if (dict.tag() == Tag::dropped) return dict;
  try {
    Generic made = generic_of(dict);
    if (!made.value.is_object()) throw Refusal("sets a key of a list; the file is corrupted");
    for (std::size_t i = 0; i < items.size(); i += 2) {
      const StringId key = interner_.key(items[i]);
      Generic value = generic_of(items[i + 1]);
      made.depth = std::max(made.depth, value.depth + 1);
      const std::string_view text = parts_.snapshot.strings[key];
      charge(text.size() / 32);
      made.value[std::string(text)] = std::move(value.value);
    }
    return hold(std::move(made));
  } catch (const TooLarge&) {
    return Value(Tag::dropped);
  }
}

std::optional<json> Generics::json_of(Value value) {
  try {
    return generic_of(value).value;
  } catch (const TooLarge&) {
    return std::nullopt;
  }
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
  const StringId id = interner_.key(key);
  if (dropped_.insert(id).second) {
    parts_.snapshot.dropped.emplace_back(parts_.snapshot.strings[id]);
  }
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

Generics::Generic Generics::generic_of(Value value) {
  Generic made = make(value);
  if (made.depth > max_depth) {
    throw Refusal(fmt::format("nested more than {} levels deep; a snapshot is not", max_depth));
  }
  return made;
}

Tree Generics::tree() {
  return {parts_.snapshot, [this](std::size_t nodes) { charge(nodes); }};
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
      charge_for(held.value, [this](std::size_t nodes) { charge(nodes); });
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
      Tree tree = this->tree();
      put_frame(tree, snapshot, value.id());
      return measured(tree.take());
    }
    case Tag::stack: {
      Tree tree = this->tree();
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
  Tree tree = this->tree();
  const auto put_any = [&](Tag tag, std::size_t row) {
    switch (tag) {
      case Tag::event:
      case Tag::events: {
        const auto run = run_of(parts_.runs, static_cast<std::uint32_t>(row));
        const std::size_t at = row - run->first;
        return put_row(tree, snapshot, run->trace.events[at], extras_of(run->trace.extras, at));
      }
      case Tag::block:
      case Tag::blocks:
        return put_block(tree, snapshot, row);
      case Tag::entry:
      case Tag::entries:
        return put_row(tree, snapshot, snapshot.history[row], {});
      case Tag::segment:
      case Tag::segments:
        return put_segment(tree, snapshot, row);
      case Tag::annotation:
      case Tag::annotations:
        return put_row(tree, snapshot, snapshot.annotations[row],
                       extras_of(snapshot.annotation_extras, row));
      default:
        throw Refusal(fmt::format("{} where none can be; the file is corrupted", what(tag)));
    }
  };
  if (value.tag() == Tag::traces) {
    const Traces traces = std::move(parts_.trace_lists[value.index()]);
    put_traces(tree, snapshot, traces.events, traces.extras);
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

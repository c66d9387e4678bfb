#include "lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace leaklab {
namespace {

constexpr std::size_t most_devices = 1024;

// Adds to `to` the rows of `from` from `row` on, `most` at most.
void take(TraceAndExtras& from, std::size_t row, std::size_t most, TraceAndExtras& to) {
  const std::size_t rows = std::min(from.events.size() - row, most);
  const bool all = rows == from.events.size();
  if (all && to.events.empty()) {
    to = std::exchange(from, {});
    return;
  }
  const auto at = [&](std::size_t which) {
    return std::ranges::lower_bound(from.extras, which, {}, &Extra::row);
  };
  for (Extra extra : std::span(at(row), at(row + rows))) {
    extra.row = static_cast<std::uint32_t>(extra.row - row + to.events.size());
    to.extras.push_back(extra);
  }
  for (std::size_t k = row; k < row + rows; ++k) to.events.push_back(from.events[k]);
  if (all) from = {};
}

}  // namespace

Value Lists::append(Value list, std::span<const Value> elements) {
  if (elements.empty()) return list;
  const auto all = [&](auto... tags) {
    return std::ranges::all_of(elements,
                               [&](Value element) { return ((element.tag() == tags) || ...); });
  };
  const Tag first = elements.front().tag();
  switch (list.tag()) {
    case Tag::empty_list:
      if (first == Tag::frame && all(first)) return append_frames(list, elements);
      if (first >= Tag::event && first <= Tag::annotation && all(first)) {
        return append_rows({list_of(first), parts_.ranges.size()}, elements);
      }
      if (all(Tag::events, Tag::empty_list)) {
        return append_traces({Tag::traces, parts_.trace_lists.size()}, elements);
      }
      break;
    case Tag::stack:
    case Tag::open_stack:
      if (all(Tag::frame)) return append_frames(list, elements);
      break;
    case Tag::events:
    case Tag::blocks:
    case Tag::entries:
    case Tag::segments:
    case Tag::annotations:
      if (list.tag() == list_of(first) && all(first)) return append_rows(list, elements);
      break;
    case Tag::traces:
      if (all(Tag::events, Tag::empty_list)) return append_traces(list, elements);
      break;
    case Tag::json:
    case Tag::dropped:
      break;
    default:
      throw Refusal(fmt::format("appends to {}; the file is corrupted", what(list.tag())));
  }
  if (parts_.odd_entry.empty()) note_odd_entry(list, elements);
  return generics_.append(list, elements);
}

void Lists::note_odd_entry(Value list, std::span<const Value> elements) {
  const auto is_row = [](Value value) {
    return value.tag() >= Tag::event && value.tag() <= Tag::annotations;
  };
  std::size_t before = 0;
  Tag made = list.tag();
  if (made == Tag::traces) {
    before = parts_.trace_lists[list.index()].events.size();
  } else if (is_row(list)) {
    before = parts_.ranges[list.index()].count;
  } else if (const auto row = std::ranges::find_if(elements, is_row); row != elements.end()) {
    made = row->tag() == Tag::events ? Tag::traces : list_of(row->tag());
  } else {
    return;
  }
  const auto odd = std::ranges::find_if(elements, [&](Value element) {
    return made == Tag::traces ? element.tag() != Tag::events && element.tag() != Tag::empty_list
                               : list_of(element.tag()) != made;
  });
  if (odd == elements.end()) return;
  parts_.odd_entry = fmt::format("; entry {} of a list before byte {} is {}, unlike others of it",
                                 before + static_cast<std::size_t>(odd - elements.begin()),
                                 parts_.source.offset(), what(odd->tag()));
}

Value Lists::append_frames(Value list, std::span<const Value> elements) {
  const auto id = [](Value frame) { return frame.id(); };
  if (list.tag() == Tag::empty_list && elements.size() < pickle_batch) {
    scratch_.clear();
    std::ranges::transform(elements, std::back_inserter(scratch_), id);
    return {Tag::stack, parts_.snapshot.stacks.intern(scratch_)};
  }
  if (list.tag() != Tag::open_stack) {
    const std::span<const FrameId> so_far =
        list.tag() == Tag::stack ? parts_.snapshot.stacks[list.id()] : std::span<const FrameId>();
    open_stacks_.emplace_back(so_far.begin(), so_far.end());
    list = {Tag::open_stack, open_stacks_.size() - 1};
  }
  std::ranges::transform(elements, std::back_inserter(open_stacks_[list.index()]), id);
  return list;
}

Value Lists::close(Value list) {
  const std::vector<FrameId> frames = std::move(open_stacks_[list.index()]);
  return {Tag::stack, parts_.snapshot.stacks.intern(frames)};
}

Value Lists::append_rows(Value list, std::span<const Value> elements) {
  if (list.index() == parts_.ranges.size()) parts_.ranges.push_back({elements.front().id(), 0});
  Range& range = parts_.ranges[list.index()];
  for (const Value& row : elements) {
    if (row.id() != range.first + range.count) {
      throw Refusal(
          "the entries of a list are not in the order in which the file makes them; the file is "
          "corrupted");
    }
    ++range.count;
  }
  return list;
}

Value Lists::append_traces(Value list, std::span<const Value> elements) {
  if (list.index() == parts_.trace_lists.size()) parts_.trace_lists.emplace_back();
  Traces& traces = parts_.trace_lists[list.index()];
  // An empty trace takes hundreds of bytes here and one in the file.
  if (traces.events.size() + elements.size() > most_devices) {
    throw Refusal(
        fmt::format("lists traces of more than {} devices; the file is corrupted", most_devices));
  }
  for (const Value& element : elements) {
    TraceAndExtras trace = element.tag() == Tag::events ? close_trace(element) : TraceAndExtras();
    traces.events.push_back(std::move(trace.events));
    traces.extras.push_back(std::move(trace.extras));
  }
  return list;
}

// The events leave Parts::runs.
TraceAndExtras Lists::close_trace(Value events) {
  const Range range = parts_.ranges[events.index()];
  TraceAndExtras trace;
  auto run = run_of(parts_.runs, range.first);
  for (std::size_t row = range.first - run->first; trace.events.size() < range.count; row = 0) {
    take(run->trace, row, range.count - trace.events.size(), trace);
    ++run;
  }
  while (!parts_.runs.empty() && parts_.runs.back().trace.events.empty()) parts_.runs.pop_back();
  return trace;
}

}  // namespace leaklab

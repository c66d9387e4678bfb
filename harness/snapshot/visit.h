// Walks over a snapshot's entries in the order of the file and says them to an `out`: the pickle
// writer, the JSON writer, or a tree of JSON values.
#pragma once

#include <algorithm>
#include <bit>
#include <span>

#include "fields.h"
#include "leaklab/snapshot.h"

namespace leaklab {

// A name of the file's, or one that only our tables have.
template <typename Out>
void put_extra(Out& out, const Snapshot& snapshot, const Extra& extra) {
  out.key(extra.key);
  switch (extra.kind) {
    case Extra::Kind::none:
      return out.none();
    case Extra::Kind::boolean:
      return out.boolean(extra.value != 0);
    case Extra::Kind::integer:
      return out.integer(static_cast<std::int64_t>(extra.value));
    case Extra::Kind::unsigned_integer:
      return out.unsigned_integer(extra.value);
    case Extra::Kind::real:
      return out.real(std::bit_cast<double>(extra.value));
    case Extra::Kind::text:
      return out.string(static_cast<StringId>(extra.value));
    case Extra::Kind::stack:
      return out.stack(static_cast<StackId>(extra.value));
    case Extra::Kind::json:
      return out.json(snapshot.values[extra.value]);
  }
}

template <typename Out>
void put_extras(Out& out, const Snapshot& snapshot, std::span<const Extra> extras) {
  for (const Extra& extra : extras) put_extra(out, snapshot, extra);
}

inline bool has_key(const Snapshot& snapshot, std::span<const Extra> extras, Field field) {
  return std::ranges::any_of(
      extras, [&](const Extra& extra) { return snapshot.strings[extra.key] == text_of(field); });
}

template <typename Out>
void put_integer(Out& out, Field field, std::int64_t value, bool there) {
  if (!there) return;
  out.key(field);
  out.integer(value);
}

template <typename Out>
void put_address(Out& out, Field field, std::uint64_t value, bool there) {
  if (!there) return;
  out.key(field);
  out.unsigned_integer(value);
}

template <typename Out>
void put_string(Out& out, Field field, StringId value, bool there) {
  if (!there) return;
  out.key(field);
  out.string(value);
}

template <typename Out>
void put_frames(Out& out, StackId stack, bool there) {
  if (!there) return;
  out.key(Field::frames);
  out.stack(stack);
}

template <typename Out>
void put_pool(Out& out, Field field, const std::pair<std::int64_t, std::int64_t>& pool,
              bool there) {
  if (!there) return;
  out.key(field);
  out.pool(pool);
}

template <typename Out>
void put(Out& out, const Snapshot& snapshot, const TraceEvent& event,
         std::span<const Extra> extras) {
  const auto has = [&](TraceEvent::Key key) { return (event.keys & key) != 0; };
  out.begin_object();
  if (event.kind != EventKind::other || !has_key(snapshot, extras, Field::action)) {
    out.key(Field::action);
    out.text(name(event.kind));
  }
  put_address(out, event.kind == EventKind::oom ? Field::device_free : Field::addr, event.address,
              has(TraceEvent::has_address));
  put_integer(out, Field::size, event.size, has(TraceEvent::has_size));
  put_address(out, Field::stream, snapshot.streams[event.stream], has(TraceEvent::has_stream));
  put_integer(out, Field::time_us, event.time_us, has(TraceEvent::has_time_us));
  put_string(out, Field::compile_context, event.compile_context,
             has(TraceEvent::has_compile_context));
  put_string(out, Field::user_metadata, event.user_metadata, has(TraceEvent::has_user_metadata));
  put_pool(out, Field::pool_id, snapshot.pools[event.pool], has(TraceEvent::has_pool_id));
  put_frames(out, event.stack, has(TraceEvent::has_frames));
  put_extras(out, snapshot, extras);
  out.end_object();
}

template <typename Out>
void put(Out& out, const Snapshot& /*snapshot*/, const HistoryEntry& entry) {
  const auto has = [&](HistoryEntry::Key key) { return (entry.keys & key) != 0; };
  out.begin_object();
  put_address(out, Field::addr, entry.address, has(HistoryEntry::has_address));
  put_integer(out, Field::real_size, entry.real_size, has(HistoryEntry::has_real_size));
  put_frames(out, entry.stack, has(HistoryEntry::has_frames));
  out.end_object();
}

template <typename Out>
void put(Out& out, const Snapshot& snapshot, const Block& block,
         std::span<const HistoryEntry> history, std::span<const Extra> extras) {
  const auto has = [&](Block::Key key) { return (block.keys & key) != 0; };
  out.begin_object();
  put_address(out, Field::address, block.address, has(Block::has_address));
  put_integer(out, Field::size, block.size, has(Block::has_size));
  put_integer(out, Field::requested_size, block.requested, has(Block::has_requested_size));
  if (has(Block::has_state) &&
      (block.state != BlockState::other || !has_key(snapshot, extras, Field::state))) {
    out.key(Field::state);
    out.text(name(block.state));
  }
  if (has(Block::has_history)) {
    out.key(Field::history);
    out.begin_array();
    for (const HistoryEntry& entry : history) put(out, snapshot, entry);
    out.end_array();
  }
  put_frames(out, block.stack, has(Block::has_frames));
  put_extras(out, snapshot, extras);
  out.end_object();
}

inline std::span<const HistoryEntry> history_of(const Snapshot& snapshot, std::size_t block) {
  const auto [first, last] = std::equal_range(
      snapshot.history.begin(), snapshot.history.end(),
      HistoryEntry{.block = static_cast<std::uint32_t>(block)},
      [](const HistoryEntry& left, const HistoryEntry& right) { return left.block < right.block; });
  return {first, last};
}

template <typename Out>
void put(Out& out, const Snapshot& snapshot, const Segment& segment,
         std::span<const Extra> extras) {
  const auto has = [&](Segment::Key key) { return (segment.keys & key) != 0; };
  out.begin_object();
  put_integer(out, Field::device, segment.device, has(Segment::has_device));
  put_address(out, Field::address, segment.address, has(Segment::has_address));
  put_integer(out, Field::total_size, segment.total_size, has(Segment::has_total_size));
  put_integer(out, Field::allocated_size, segment.allocated_size, has(Segment::has_allocated_size));
  put_integer(out, Field::active_size, segment.active_size, has(Segment::has_active_size));
  put_integer(out, Field::requested_size, segment.requested_size, has(Segment::has_requested_size));
  put_address(out, Field::stream, snapshot.streams[segment.stream], has(Segment::has_stream));
  put_string(out, Field::segment_type, segment.type, has(Segment::has_type));
  put_pool(out, Field::segment_pool_id, snapshot.pools[segment.pool], has(Segment::has_pool_id));
  if (has(Segment::has_expandable)) {
    out.key(Field::is_expandable);
    out.boolean(segment.expandable);
  }
  put_frames(out, segment.stack, has(Segment::has_frames));
  if (has(Segment::has_blocks)) {
    out.key(Field::blocks);
    out.begin_array();
    for (std::size_t row = segment.first_block; row < segment.first_block + segment.blocks; ++row) {
      put(out, snapshot, snapshot.blocks[row], history_of(snapshot, row),
          extras_of(snapshot.block_extras, row));
    }
    out.end_array();
  }
  put_extras(out, snapshot, extras);
  out.end_object();
}

template <typename Out>
void put(Out& out, const Snapshot& snapshot, const Annotation& annotation,
         std::span<const Extra> extras) {
  const auto has = [&](Annotation::Key key) { return (annotation.keys & key) != 0; };
  out.begin_object();
  put_string(out, Field::stage, annotation.stage, has(Annotation::has_stage));
  put_string(out, Field::name, annotation.name, has(Annotation::has_name));
  put_integer(out, Field::device, annotation.device, has(Annotation::has_device));
  put_integer(out, Field::time_us, annotation.time_us, has(Annotation::has_time_us));
  put_extras(out, snapshot, extras);
  out.end_object();
}

template <typename Out>
void put(Out& out, const Snapshot& snapshot, const Frame& frame, std::span<const Extra> extras) {
  out.begin_object();
  put_string(out, Field::name, frame.function, true);
  put_string(out, Field::filename, frame.file, true);
  put_address(out, Field::line, frame.line, true);
  put_extras(out, snapshot, extras);
  out.end_object();
}

// The extras of rows that are visited from the first to the last.
class ExtrasInOrder {
 public:
  explicit ExtrasInOrder(std::span<const Extra> extras) : left_(extras) {}
  std::span<const Extra> of(std::size_t row) {
    std::size_t count = 0;
    while (count < left_.size() && left_[count].row == row) ++count;
    const std::span<const Extra> found = left_.first(count);
    left_ = left_.subspan(count);
    return found;
  }

 private:
  std::span<const Extra> left_;
};

template <typename Out>
void put_segments(Out& out, const Snapshot& snapshot) {
  out.begin_array();
  for (std::size_t row = 0; row < snapshot.segments.size(); ++row) {
    put(out, snapshot, snapshot.segments[row], extras_of(snapshot.segment_extras, row));
  }
  out.end_array();
}

template <typename Out>
void put_traces(Out& out, const Snapshot& snapshot) {
  out.begin_array();
  for (std::size_t device = 0; device < snapshot.traces.size(); ++device) {
    out.begin_array();
    ExtrasInOrder extras(device < snapshot.trace_extras.size()
                             ? std::span<const Extra>(snapshot.trace_extras[device])
                             : std::span<const Extra>());
    const std::vector<TraceEvent>& trace = snapshot.traces[device];
    for (std::size_t row = 0; row < trace.size(); ++row) {
      put(out, snapshot, trace[row], extras.of(row));
    }
    out.end_array();
  }
  out.end_array();
}

// The traces come first: the keys of events then have the first numbers in a pickle's memo, which
// are the short ones.
template <typename Out>
void put(Out& out, const Snapshot& snapshot) {
  if (snapshot.bare_segments) return put_segments(out, snapshot);
  out.begin_object();
  if ((snapshot.keys & Snapshot::has_device_traces) != 0) {
    out.key(Field::device_traces);
    put_traces(out, snapshot);
  }
  if ((snapshot.keys & Snapshot::has_segments) != 0) {
    out.key(Field::segments);
    put_segments(out, snapshot);
  }
  if ((snapshot.keys & Snapshot::has_allocator_settings) != 0) {
    out.key(Field::allocator_settings);
    out.json(snapshot.allocator_settings);
  }
  if ((snapshot.keys & Snapshot::has_external_annotations) != 0) {
    out.key(Field::external_annotations);
    out.begin_array();
    for (std::size_t row = 0; row < snapshot.annotations.size(); ++row) {
      put(out, snapshot, snapshot.annotations[row], extras_of(snapshot.annotation_extras, row));
    }
    out.end_array();
  }
  put_extras(out, snapshot, snapshot.extras);
  out.end_object();
}

}  // namespace leaklab

// Walks over a snapshot's entries in the order of the file and says them to an `out`: the pickle
// writer, the JSON writer, or a tree of JSON values.
#pragma once

#include <algorithm>
#include <bit>
#include <span>
#include <type_traits>

#include "columns.h"
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

struct NoRows {
  void operator()() const {}
};

// `put_rows` puts the entries of the row's list of rows, where the table has such a column.
template <typename Out, typename Row, typename PutRows = NoRows>
void put_row(Out& out, const Snapshot& snapshot, const Row& row, std::span<const Extra> extras,
             PutRows put_rows = {}) {
  out.begin_object();
  Table<Row>::each([&]<typename Column>(Column column) {
    constexpr Type type = Column::type;
    if (!column.is_in(row)) return;
    if constexpr (type == Type::rows) {
      out.key(column.field);
      out.begin_array();
      put_rows();
      out.end_array();
    } else {
      const auto& member = row.*column.member;
      if constexpr (type == Type::name) {
        if (member == std::decay_t<decltype(member)>::other &&
            has_key(snapshot, extras, column.field)) {
          return;
        }
        out.key(column.field);
        out.text(name(member));
      } else {
        out.key(column.key(row));
        if constexpr (type == Type::integer) {
          out.integer(member);
        } else if constexpr (type == Type::address || type == Type::event_address) {
          out.unsigned_integer(member);
        } else if constexpr (type == Type::boolean) {
          out.boolean(member);
        } else if constexpr (type == Type::string) {
          out.string(member);
        } else if constexpr (type == Type::stream) {
          out.unsigned_integer(snapshot.streams[member]);
        } else if constexpr (type == Type::pool) {
          out.pool(snapshot.pools[member]);
        } else if constexpr (type == Type::frames) {
          out.stack(member);
        }
      }
    }
  });
  put_extras(out, snapshot, extras);
  out.end_object();
}

template <typename Out>
void put_frame(Out& out, const Snapshot& snapshot, FrameId id) {
  put_row(out, snapshot, snapshot.frames[id], extras_of(snapshot.frame_extras, id));
}

inline std::span<const HistoryEntry> history_of(const Snapshot& snapshot, std::size_t block) {
  const auto [first, last] = std::equal_range(
      snapshot.history.begin(), snapshot.history.end(),
      HistoryEntry{.block = static_cast<std::uint32_t>(block)},
      [](const HistoryEntry& left, const HistoryEntry& right) { return left.block < right.block; });
  return {first, last};
}

template <typename Out>
void put_block(Out& out, const Snapshot& snapshot, std::size_t row) {
  put_row(out, snapshot, snapshot.blocks[row], extras_of(snapshot.block_extras, row), [&] {
    for (const HistoryEntry& entry : history_of(snapshot, row)) put_row(out, snapshot, entry, {});
  });
}

template <typename Out>
void put_segment(Out& out, const Snapshot& snapshot, std::size_t row) {
  const Segment& segment = snapshot.segments[row];
  put_row(out, snapshot, segment, extras_of(snapshot.segment_extras, row), [&] {
    for (std::uint32_t k = 0; k < segment.blocks; ++k) {
      put_block(out, snapshot, segment.first_block + k);
    }
  });
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
    put_segment(out, snapshot, row);
  }
  out.end_array();
}

// `extras`: shorter than `traces` where there is none.
template <typename Out>
void put_traces(Out& out, const Snapshot& snapshot, const std::vector<Trace>& traces,
                const std::vector<std::vector<Extra>>& trace_extras) {
  out.begin_array();
  for (std::size_t device = 0; device < traces.size(); ++device) {
    out.begin_array();
    ExtrasInOrder extras(device < trace_extras.size() ? std::span<const Extra>(trace_extras[device])
                                                      : std::span<const Extra>());
    const Trace& trace = traces[device];
    for (std::size_t row = 0; row < trace.size(); ++row) {
      put_row(out, snapshot, trace[row], extras.of(row));
    }
    out.end_array();
  }
  out.end_array();
}

// The traces come first: the keys of events then have the first numbers in a pickle's memo, which
// are the short ones.
template <typename Out>
void put_snapshot(Out& out, const Snapshot& snapshot) {
  if (snapshot.bare_segments) return put_segments(out, snapshot);
  out.begin_object();
  if ((snapshot.keys & Snapshot::has_device_traces) != 0) {
    out.key(Field::device_traces);
    put_traces(out, snapshot, snapshot.traces, snapshot.trace_extras);
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
      put_row(out, snapshot, snapshot.annotations[row], extras_of(snapshot.annotation_extras, row));
    }
    out.end_array();
  }
  put_extras(out, snapshot, snapshot.extras);
  out.end_object();
}

}  // namespace leaklab

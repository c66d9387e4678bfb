// The columns of a snapshot's tables: which key of an entry in the file is which member of a row.
// The reader, the writers and the comparison go by them: a new key of PyTorch is a Field, a member
// with a bit of `keys`, and a line here.
#pragma once

#include "fields.h"
#include "leaklab/snapshot.h"

namespace leaklab {

// How the member of a column stands for the value of the key.
enum class Type : std::uint8_t {
  integer,
  address,        // an integer without sign
  event_address,  // likewise; of an event that ran out of memory the key is `device_free`
  boolean,
  string,  // a StringId
  stream,  // an index into Snapshot::streams
  pool,    // an index into Snapshot::pools
  frames,  // a StackId
  name,    // an EventKind or a BlockState; where it is `other`, an Extra has the name
  rows,    // rows of another table; the member is their number, where there is one
};

// `bit`: the one of `keys` that says whether the entry has the key; 0: all have it.
template <Field Key, Type As, auto Bit, auto Member>
struct Column {
  static constexpr Field field = Key;
  static constexpr Type type = As;
  static constexpr auto bit = Bit;
  static constexpr auto member = Member;

  // The key that it has in such a row.
  template <typename Row>
  static Field key(const Row& row) {
    if constexpr (As == Type::event_address) {
      return row.kind == EventKind::oom ? Field::device_free : Field::addr;
    } else {
      return Key;
    }
  }
  template <typename Row>
  static bool is_in(const Row& row) {
    if constexpr (Bit == 0) {
      return true;
    } else {
      return (row.keys & Bit) != 0;
    }
  }
};

template <typename... Column>
struct Columns {
  template <typename Do>
  static void each(Do&& act) {
    (act(Column{}), ...);
  }
};

// Of each table, in the order of the file. `entry`: what messages call a row.
template <typename Row>
struct Table;

template <>
struct Table<TraceEvent>
    : Columns<
          Column<Field::action, Type::name, 0, &TraceEvent::kind>,
          Column<Field::addr, Type::event_address, TraceEvent::has_address, &TraceEvent::address>,
          Column<Field::size, Type::integer, TraceEvent::has_size, &TraceEvent::size>,
          Column<Field::stream, Type::stream, TraceEvent::has_stream, &TraceEvent::stream>,
          Column<Field::time_us, Type::integer, TraceEvent::has_time_us, &TraceEvent::time_us>,
          Column<Field::compile_context, Type::string, TraceEvent::has_compile_context,
                 &TraceEvent::compile_context>,
          Column<Field::user_metadata, Type::string, TraceEvent::has_user_metadata,
                 &TraceEvent::user_metadata>,
          Column<Field::pool_id, Type::pool, TraceEvent::has_pool_id, &TraceEvent::pool>,
          Column<Field::frames, Type::frames, TraceEvent::has_frames, &TraceEvent::stack>> {
  static constexpr const char* entry = "a trace entry";
};

template <>
struct Table<HistoryEntry>
    : Columns<Column<Field::addr, Type::address, HistoryEntry::has_address, &HistoryEntry::address>,
              Column<Field::real_size, Type::integer, HistoryEntry::has_real_size,
                     &HistoryEntry::real_size>,
              Column<Field::frames, Type::frames, HistoryEntry::has_frames, &HistoryEntry::stack>> {
  static constexpr const char* entry = "a history entry";
};

template <>
struct Table<Block>
    : Columns<Column<Field::address, Type::address, Block::has_address, &Block::address>,
              Column<Field::size, Type::integer, Block::has_size, &Block::size>,
              Column<Field::requested_size, Type::integer, Block::has_requested_size,
                     &Block::requested>,
              Column<Field::state, Type::name, Block::has_state, &Block::state>,
              Column<Field::history, Type::rows, Block::has_history, nullptr>,
              Column<Field::frames, Type::frames, Block::has_frames, &Block::stack>> {
  static constexpr const char* entry = "a block";
};

template <>
struct Table<Segment>
    : Columns<
          Column<Field::device, Type::integer, Segment::has_device, &Segment::device>,
          Column<Field::address, Type::address, Segment::has_address, &Segment::address>,
          Column<Field::total_size, Type::integer, Segment::has_total_size, &Segment::total_size>,
          Column<Field::allocated_size, Type::integer, Segment::has_allocated_size,
                 &Segment::allocated_size>,
          Column<Field::active_size, Type::integer, Segment::has_active_size,
                 &Segment::active_size>,
          Column<Field::requested_size, Type::integer, Segment::has_requested_size,
                 &Segment::requested_size>,
          Column<Field::stream, Type::stream, Segment::has_stream, &Segment::stream>,
          Column<Field::segment_type, Type::string, Segment::has_type, &Segment::type>,
          Column<Field::segment_pool_id, Type::pool, Segment::has_pool_id, &Segment::pool>,
          Column<Field::is_expandable, Type::boolean, Segment::has_expandable,
                 &Segment::expandable>,
          Column<Field::frames, Type::frames, Segment::has_frames, &Segment::stack>,
          Column<Field::blocks, Type::rows, Segment::has_blocks, &Segment::blocks>> {
  static constexpr const char* entry = "a segment";
};

template <>
struct Table<Annotation>
    : Columns<
          Column<Field::stage, Type::string, Annotation::has_stage, &Annotation::stage>,
          Column<Field::name, Type::string, Annotation::has_name, &Annotation::name>,
          Column<Field::device, Type::integer, Annotation::has_device, &Annotation::device>,
          Column<Field::time_us, Type::integer, Annotation::has_time_us, &Annotation::time_us>> {
  static constexpr const char* entry = "an annotation";
};

template <>
struct Table<Frame> : Columns<Column<Field::name, Type::string, 0, &Frame::function>,
                              Column<Field::filename, Type::string, 0, &Frame::file>,
                              Column<Field::line, Type::address, 0, &Frame::line>> {
  static constexpr const char* entry = "a frame";
};

}  // namespace leaklab

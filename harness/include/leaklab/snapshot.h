// A memory snapshot of PyTorch, as tables: what torch.cuda.memory._dump_snapshot and LibTorch's
// torch::cuda::_memory_snapshot_pickled() write, in every version from 2.0 on.
//
// What an entry holds besides the keys known here is kept as an Extra. So is a known key that holds
// None, and the name of an action or a state of a later version: the field then has its default.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leaklab {

// Indices into the tables of one snapshot. 0 is always the empty string, no frames.
using StringId = std::uint32_t;
using FrameId = std::uint32_t;
using StackId = std::uint32_t;

// Finds the rows of a table by hash: open addressing over row numbers. 16 bytes or fewer a row.
class HashIndex {
 public:
  static constexpr std::uint32_t none = 0xffffffff;

  // The row with that hash for which `equal(row)` holds, or none.
  template <typename Equal>
  std::uint32_t find(std::uint64_t hash, Equal equal) const {
    if (slots_.empty()) return none;
    const std::size_t mask = slots_.size() - 1;
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & mask; slots_[at].row != none; at = (at + 1) & mask) {
      if (slots_[at].tag == tag && equal(slots_[at].row)) return slots_[at].row;
    }
    return none;
  }
  // A row that find() did not find.
  void insert(std::uint64_t hash, std::uint32_t row);

 private:
  struct Slot {
    std::uint32_t tag = 0;  // the upper half of the hash
    std::uint32_t low = 0;  // the lower half
    std::uint32_t row = none;
  };
  void put(const Slot& slot);

  std::vector<Slot> slots_;  // a power of two, at most two thirds full
  std::size_t rows_ = 0;
};

// Each distinct string once, in the order of first appearance. A view that operator[] gave holds
// until the next intern().
class StringTable {
 public:
  StringTable();
  StringId intern(std::string_view text);
  std::string_view operator[](StringId id) const {
    return {text_.data() + ends_[id], ends_[id + 1] - ends_[id]};
  }
  std::size_t size() const { return ends_.size() - 1; }
  friend bool operator==(const StringTable& left, const StringTable& right) {
    return left.text_ == right.text_ && left.ends_ == right.ends_;
  }

 private:
  std::vector<char> text_;         // one after the other
  std::vector<std::size_t> ends_;  // ends_[id + 1] is where string id ends
  HashIndex index_;
};

struct Frame {
  StringId file = 0;
  StringId function = 0;
  std::uint64_t line = 0;  // 0 for C++ frames; some files hold -1 as unsigned
  friend bool operator==(const Frame&, const Frame&) = default;
};

// Each distinct stack once: frames innermost first. A span that operator[] gave holds until the
// next intern().
class StackTable {
 public:
  StackTable();
  StackId intern(std::span<const FrameId> frames);
  std::span<const FrameId> operator[](StackId id) const {
    return {frames_.data() + ends_[id], ends_[id + 1] - ends_[id]};
  }
  std::size_t size() const { return ends_.size() - 1; }

 private:
  std::vector<FrameId> frames_;
  std::vector<std::size_t> ends_;
  HashIndex index_;
};

enum class EventKind : std::uint8_t {
  alloc,
  free_requested,
  free_completed,
  segment_alloc,
  segment_free,
  segment_map,
  segment_unmap,
  oom,
  snapshot,  // the program took a snapshot; size is what was allocated then
  other,     // an action of a later version: action_of() has its name
};

// One entry of device_traces.
struct TraceEvent {
  // Which keys the entry had in the file, as bits of `keys`.
  enum Key : std::uint8_t {
    has_address = 1,  // addr; of oom: device_free
    has_size = 2,
    has_stream = 4,
    has_time_us = 8,
    has_compile_context = 16,
    has_user_metadata = 32,
    has_frames = 64,
    has_pool_id = 128,
  };
  static constexpr std::uint8_t usual_keys =
      has_address | has_size | has_stream | has_time_us | has_frames;

  std::uint64_t address = 0;  // of oom: the device's free bytes
  std::int64_t size = 0;      // bytes requested
  std::int64_t time_us = 0;   // 0 until PyTorch 2.1
  StackId stack = 0;
  StringId compile_context = 0;
  StringId user_metadata = 0;
  std::uint32_t stream = 0;  // index into Snapshot::streams
  std::uint32_t pool = 0;    // index into Snapshot::pools
  EventKind kind = EventKind::other;
  std::uint8_t keys = usual_keys;
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

// The events of one device, 24 bytes each and 8 more where any tells the time. An event is made
// when it is asked for; of one that is inlined, the compiler drops what nobody reads.
class Trace {
 public:
  class Iterator;

  std::size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  std::size_t capacity() const { return rows_.capacity(); }
  void reserve(std::size_t events);

  TraceEvent operator[](std::size_t at) const {
    const Row& row = rows_[at];
    const Detail& detail = details_[row.detail];
    return {.address = row.address,
            .size = row.size,
            .time_us = times_.empty() ? 0 : times_[at],
            .stack = row.stack,
            .compile_context = detail.compile_context,
            .user_metadata = detail.user_metadata,
            .stream = detail.stream,
            .pool = detail.pool,
            .kind = detail.kind,
            .keys = detail.keys};
  }
  TraceEvent front() const { return (*this)[0]; }
  TraceEvent back() const { return (*this)[size() - 1]; }
  inline Iterator begin() const;
  inline Iterator end() const;

  void push_back(const TraceEvent& event) {
    rows_.push_back(row_of(event));
    if (!times_.empty()) {
      times_.push_back(event.time_us);
    } else if (event.time_us != 0) {
      begin_times();
      times_.back() = event.time_us;
    }
  }
  void set(std::size_t at, const TraceEvent& event);

 private:
  // What many events have in common.
  struct Detail {
    std::uint32_t stream;
    std::uint32_t pool;
    StringId compile_context;
    StringId user_metadata;
    EventKind kind;
    std::uint8_t keys;
    friend bool operator==(const Detail&, const Detail&) = default;
  };
  struct Row {
    std::uint64_t address;
    std::int64_t size;
    StackId stack;
    std::uint32_t detail;  // index into details_
  };

  Row row_of(const TraceEvent& event) {
    return {event.address, event.size, event.stack,
            detail_of({event.stream, event.pool, event.compile_context, event.user_metadata,
                       event.kind, event.keys})};
  }
  // Mostly that of the last event of its kind.
  std::uint32_t detail_of(const Detail& detail) {
    std::uint32_t& last = last_of_kind_[static_cast<std::size_t>(detail.kind)];
    if (last >= details_.size() || details_[last] != detail) [[unlikely]]
      last = intern(detail);
    return last;
  }
  std::uint32_t intern(const Detail& detail);
  // Of the events so far: 0.
  void begin_times();

  std::vector<Row> rows_;
  std::vector<std::int64_t> times_;  // of each row; empty while all are 0
  std::vector<Detail> details_;      // each distinct one once
  HashIndex index_;                  // of details_
  std::array<std::uint32_t, static_cast<std::size_t>(EventKind::other) + 1> last_of_kind_ = {};
};

// Random access; the events that it gives are values.
class Trace::Iterator {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the standard's names
  using iterator_concept = std::random_access_iterator_tag;
  using iterator_category = std::input_iterator_tag;
  using value_type = TraceEvent;
  using difference_type = std::ptrdiff_t;
  using pointer = void;
  using reference = TraceEvent;
  // NOLINTEND(readability-identifier-naming)

  Iterator() = default;
  Iterator(const Trace& trace, std::size_t at) : trace_(&trace), at_(at) {}

  TraceEvent operator*() const { return (*trace_)[at_]; }
  TraceEvent operator[](std::ptrdiff_t by) const { return *(*this + by); }
  Iterator& operator+=(std::ptrdiff_t by) {
    at_ += static_cast<std::size_t>(by);
    return *this;
  }
  Iterator& operator-=(std::ptrdiff_t by) { return *this += -by; }
  Iterator& operator++() { return *this += 1; }
  Iterator& operator--() { return *this -= 1; }
  Iterator operator++(int) { return std::exchange(*this, *this + 1); }
  Iterator operator--(int) { return std::exchange(*this, *this - 1); }
  friend Iterator operator+(Iterator from, std::ptrdiff_t by) { return from += by; }
  friend Iterator operator+(std::ptrdiff_t by, Iterator from) { return from += by; }
  friend Iterator operator-(Iterator from, std::ptrdiff_t by) { return from -= by; }
  friend std::ptrdiff_t operator-(Iterator left, Iterator right) {
    return static_cast<std::ptrdiff_t>(left.at_ - right.at_);
  }
  friend bool operator==(Iterator left, Iterator right) { return left.at_ == right.at_; }
  friend auto operator<=>(Iterator left, Iterator right) { return left.at_ <=> right.at_; }

 private:
  const Trace* trace_ = nullptr;
  std::size_t at_ = 0;
};

Trace::Iterator Trace::begin() const { return {*this, 0}; }
Trace::Iterator Trace::end() const { return {*this, size()}; }

enum class BlockState : std::uint8_t { active_allocated, active_pending_free, inactive, other };

struct Block {
  enum Key : std::uint8_t {
    has_address = 1,  // else computed: blocks lie end to end
    has_size = 2,
    has_requested_size = 4,  // else, and where there is a history, the newest entry's real_size
    has_state = 8,
    has_frames = 16,   // else, and where there is a history, those of the newest entry
    has_history = 32,  // the entries are in Snapshot::history
  };
  static constexpr std::uint8_t usual_keys =
      has_address | has_size | has_requested_size | has_state | has_frames;

  std::uint64_t address = 0;
  std::int64_t size = 0;       // bytes, rounded by the allocator
  std::int64_t requested = 0;  // bytes
  StackId stack = 0;
  BlockState state = BlockState::inactive;
  std::uint8_t keys = usual_keys;
};

// PyTorch 2.0: what was allocated in a block, newest first.
struct HistoryEntry {
  enum Key : std::uint8_t { has_address = 1, has_real_size = 2, has_frames = 4 };

  std::uint32_t block = 0;  // index into Snapshot::blocks; the entries are in the order of blocks
  StackId stack = 0;
  std::uint64_t address = 0;
  std::int64_t real_size = 0;  // bytes requested
  std::uint8_t keys = has_address | has_real_size | has_frames;
};

struct Segment {
  enum Key : std::uint16_t {
    has_device = 1,
    has_address = 2,
    has_total_size = 4,
    has_allocated_size = 8,
    has_active_size = 16,
    has_requested_size = 32,
    has_stream = 64,
    has_type = 128,
    has_pool_id = 256,
    has_expandable = 512,
    has_frames = 1024,
    has_blocks = 2048,
  };
  static constexpr std::uint16_t usual_keys = 4095;

  std::int32_t device = 0;
  std::uint64_t address = 0;
  std::int64_t total_size = 0;
  std::int64_t allocated_size = 0;
  std::int64_t active_size = 0;
  std::int64_t requested_size = 0;
  std::uint32_t stream = 0;  // index into Snapshot::streams
  std::uint32_t pool = 0;    // index into Snapshot::pools
  StringId type = 0;         // "large", "small"
  bool expandable = false;
  StackId stack = 0;
  std::uint32_t first_block = 0;  // the segment's blocks are consecutive in Snapshot::blocks
  std::uint32_t blocks = 0;
  std::uint16_t keys = usual_keys;
};

// One entry of external_annotations.
struct Annotation {
  enum Key : std::uint8_t { has_stage = 1, has_name = 2, has_device = 4, has_time_us = 8 };

  StringId stage = 0;  // "START", "END"
  StringId name = 0;
  std::int64_t device = 0;
  std::int64_t time_us = 0;
  std::uint8_t keys = has_stage | has_name | has_device | has_time_us;
};

// One key of one entry, kept for the round trip.
struct Extra {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    unsigned_integer,
    real,
    text,
    stack,
    json
  };

  std::uint32_t row = 0;  // of the table that the extras belong to
  StringId key = 0;
  Kind kind = Kind::none;
  // By kind: 0 or 1, the integer's bits, the double's bits, a StringId, a StackId, an index into
  // Snapshot::values.
  std::uint64_t value = 0;
};

struct Snapshot {
  enum Key : std::uint8_t {
    has_segments = 1,
    has_device_traces = 2,
    has_allocator_settings = 4,
    has_external_annotations = 8,
  };

  StringTable strings;
  std::vector<Frame> frames;
  StackTable stacks;
  std::vector<std::uint64_t> streams = {0};                             // handles
  std::vector<std::pair<std::int64_t, std::int64_t>> pools = {{0, 0}};  // segment_pool_id
  std::vector<Segment> segments;
  std::vector<Block> blocks;
  std::vector<HistoryEntry> history;
  std::vector<Trace> traces;  // per device, oldest first
  std::vector<Annotation> annotations;
  nlohmann::json allocator_settings;

  std::uint8_t keys = 15;      // which keys the top level had
  bool bare_segments = false;  // the file is a list of segments: memory_snapshot()

  // What else the entries had, in the order of rows.
  std::vector<std::vector<Extra>> trace_extras;  // per device; shorter where there is none
  std::vector<Extra> segment_extras;
  std::vector<Extra> block_extras;
  std::vector<Extra> frame_extras;
  std::vector<Extra> annotation_extras;
  std::vector<Extra> extras;  // of the top level; row 0
  std::vector<nlohmann::json> values;
  // Unknown keys whose values were too large to keep, each once.
  std::vector<std::string> dropped;
};

// "alloc"; of EventKind::other, and of BlockState::other, "other".
std::string_view name(EventKind kind);
std::string_view name(BlockState state);

// The extras of one row.
std::span<const Extra> extras_of(const std::vector<Extra>& extras, std::size_t row);

// The action of traces[device][index] as the file spells it.
std::string_view action_of(const Snapshot& snapshot, std::size_t device, std::size_t index);

// Where two snapshots differ in what they say, for example "traces[0][17].stack"; empty: they say
// the same. Ids may differ, and so may rows of the tables of names that nothing refers to.
std::string difference(const Snapshot& left, const Snapshot& right);
inline bool operator==(const Snapshot& left, const Snapshot& right) {
  return difference(left, right).empty();
}

// Reads a pickle of protocol 2 to 5, or the same as JSON; the first byte tells which. Nothing of
// the file is run. Time grows with the file, whatever it holds. Throws UsageError: a sentence with
// the file, the offset or the entry, and the cause, where the file can't be read, is cut off,
// corrupted, no snapshot, or asks for code to be run.
//
// The file itself is read in pieces, from a pipe as well. Memory is what the tables need: 24 bytes
// an event, 32 where events tell the time, and while it reads 8 for each that the pickle numbers,
// as Python's does, and 8 for each of a list that is written at once, as LibTorch's are. The
// shortest entries, those of PyTorch 2.0 without frames, have 27 bytes in Python's pickles and 34
// in LibTorch's: that is at most 1.2 times the file, and 4 MB. Entries of PyTorch 2.11 have 55 and
// take 0.8 times the file.
Snapshot read_snapshot(const std::filesystem::path& path);
// The same of bytes in memory; `origin` stands for the file in messages.
Snapshot read_snapshot(std::string_view bytes, const std::string& origin);

enum class SnapshotFormat : std::uint8_t { pickle, json };

// Writes a pickle of protocol 4, which torch.cuda._memory_viz and the viewer at
// pytorch.org/memory_viz open, or JSON. Strings, frames and stacks are written once. Whole or not
// at all, as write_file(), which says what it throws.
void write_snapshot(const Snapshot& snapshot, const std::filesystem::path& path,
                    SnapshotFormat format = SnapshotFormat::pickle);
// The same bytes, in memory.
std::string snapshot_bytes(const Snapshot& snapshot,
                           SnapshotFormat format = SnapshotFormat::pickle);

}  // namespace leaklab

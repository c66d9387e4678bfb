// A memory snapshot of PyTorch, as tables: what torch.cuda.memory._dump_snapshot and LibTorch's
// torch::cuda::_memory_snapshot_pickled() write, in every version from 2.0 on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leaklab {

// Indices into the tables of one snapshot. 0 is always the empty string, no frames.
using StringId = std::uint32_t;
using FrameId = std::uint32_t;
using StackId = std::uint32_t;

// Each distinct string once, in the order of first appearance.
class StringTable {
 public:
  StringTable();
  StringId intern(std::string_view text);
  std::string_view operator[](StringId id) const;
  std::size_t size() const;
  friend bool operator==(const StringTable& left, const StringTable& right);
  // ... the reader's author fills this in
};

struct Frame {
  StringId file = 0;
  StringId function = 0;
  std::uint64_t line = 0;  // 0 for C++ frames; some files hold -1 as unsigned
  friend bool operator==(const Frame&, const Frame&) = default;
};

// Each distinct stack once: frames innermost first.
class StackTable {
 public:
  StackTable();
  StackId intern(std::span<const FrameId> frames);
  std::span<const FrameId> operator[](StackId id) const;
  std::size_t size() const;
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
  other,     // an action of a later version, kept by its name
};

// One entry of device_traces, 48 bytes.
struct TraceEvent {
  std::uint64_t address = 0;  // of oom: the device's free bytes
  std::int64_t size = 0;      // bytes requested
  std::int64_t time_us = 0;   // 0 until PyTorch 2.1
  StackId stack = 0;
  StringId compile_context = 0;
  StringId user_metadata = 0;
  std::uint16_t stream = 0;  // index into Snapshot::streams
  std::uint16_t pool = 0;    // index into Snapshot::pools
  EventKind kind = EventKind::other;
};

enum class BlockState : std::uint8_t { active_allocated, active_pending_free, inactive, other };

struct Block {
  std::uint64_t address = 0;
  std::int64_t size = 0;       // bytes, rounded by the allocator
  std::int64_t requested = 0;  // bytes
  StackId stack = 0;
  BlockState state = BlockState::inactive;
};

struct Segment {
  std::int32_t device = 0;
  std::uint64_t address = 0;
  std::int64_t total_size = 0;
  std::int64_t allocated_size = 0;
  std::int64_t active_size = 0;
  std::int64_t requested_size = 0;
  std::uint16_t stream = 0;
  std::uint16_t pool = 0;
  StringId type = 0;  // "large", "small"
  bool expandable = false;
  StackId stack = 0;
  std::uint32_t first_block = 0;  // the segment's blocks are consecutive in Snapshot::blocks
  std::uint32_t blocks = 0;
};

// One entry of external_annotations.
struct Annotation {
  StringId stage = 0;  // "START", "END"
  StringId name = 0;
  std::int64_t device = 0;
  std::int64_t time_us = 0;
};

struct Snapshot {
  StringTable strings;
  std::vector<Frame> frames;
  StackTable stacks;
  std::vector<std::uint64_t> streams;                      // handles; streams[0] = 0
  std::vector<std::pair<std::int64_t, std::int64_t>> pools;  // segment_pool_id; pools[0] = (0, 0)
  std::vector<Segment> segments;
  std::vector<Block> blocks;
  std::vector<std::vector<TraceEvent>> traces;  // per device, oldest first
  std::vector<Annotation> annotations;
  nlohmann::json allocator_settings;
  // ... unknown keys, and which keys the file had, for the round trip
};

}  // namespace leaklab

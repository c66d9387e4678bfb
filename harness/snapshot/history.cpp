#include "leaklab/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace leaklab {
namespace {

constexpr std::uint64_t first_address = 0x7f0000000000;
constexpr std::uint64_t rounding = 512;  // kMinBlockSize of c10/core/AllocatorConfig.h

std::uint64_t rounded(std::int64_t bytes) {
  const auto size = std::max(static_cast<std::uint64_t>(bytes), rounding);
  return (size + rounding - 1) / rounding * rounding;
}

class SnapshotOf {
 public:
  explicit SnapshotOf(const History& history) : history_(history) {
    snapshot_.traces.resize(1);
    snapshot_.allocator_settings = nlohmann::json::object();
    for (const auto& stack : history.stacks) stacks_.push_back(stack_of(stack));
  }

  Snapshot take() {
    std::size_t event = 0;
    for (std::size_t boundary = 0; boundary < history_.boundaries.size(); ++boundary) {
      for (; event < history_.boundaries[boundary]; ++event) add(history_.events[event]);
      if (boundary > 0) annotate(false, boundary - 1);
      if (boundary + 1 < history_.boundaries.size()) annotate(true, boundary);
    }
    for (; event < history_.events.size(); ++event) add(history_.events[event]);
    add_segment();
    return std::move(snapshot_);
  }

 private:
  StackId stack_of(const std::vector<History::Frame>& stack) {
    std::vector<FrameId> frames;
    for (const auto& frame : stack) {
      const auto next = static_cast<FrameId>(snapshot_.frames.size());
      const auto [known, fresh] = frames_.try_emplace(frame, next);
      if (fresh) {
        snapshot_.frames.push_back({snapshot_.strings.intern(frame.file),
                                    snapshot_.strings.intern(frame.function), frame.line});
      }
      frames.push_back(known->second);
    }
    return snapshot_.stacks.intern(frames);
  }

  void add(const History::Event& event) {
    TraceEvent entry;
    entry.size = event.bytes;
    if (event.alloc) {
      blocks_.resize(std::max<std::size_t>(blocks_.size(), event.allocation + 1));
      auto& block = blocks_[event.allocation];
      block.address = end_;
      block.size = static_cast<std::int64_t>(rounded(event.bytes));
      block.requested = event.bytes;
      block.stack = stacks_[event.stack];
      block.state = BlockState::active_allocated;
      end_ += rounded(event.bytes);
    } else {
      blocks_[event.allocation].state = BlockState::inactive;
    }
    entry.address = blocks_[event.allocation].address;
    entry.stack = event.alloc ? stacks_[event.stack] : 0;
    entry.kind = event.alloc ? EventKind::alloc : EventKind::free_requested;
    add(entry);
    if (event.alloc) return;
    entry.kind = EventKind::free_completed;
    add(entry);
  }

  void add(TraceEvent entry) {
    auto& trace = snapshot_.traces.front();
    entry.time_us = static_cast<std::int64_t>(2 * trace.size() + 1);
    trace.push_back(entry);
  }

  // Between two entries of the trace.
  void annotate(bool start, std::size_t step) {
    Annotation mark;
    mark.stage = snapshot_.strings.intern(start ? "START" : "END");
    mark.name = snapshot_.strings.intern(fmt::format("## step {} ##", step));
    mark.time_us = static_cast<std::int64_t>(2 * snapshot_.traces.front().size());
    snapshot_.annotations.push_back(mark);
  }

  // What was freed is one inactive block with its neighbours, as in the caching allocator.
  void add_segment() {
    Segment segment;
    segment.address = first_address;
    segment.total_size = static_cast<std::int64_t>(end_ - first_address);
    segment.type = snapshot_.strings.intern("large");
    for (auto& block : blocks_) {
      const bool live = block.state == BlockState::active_allocated;
      if (live) {
        segment.allocated_size += block.size;
        segment.requested_size += block.requested;
      } else {
        block.requested = 0;
        block.stack = 0;
        auto& rows = snapshot_.blocks;
        if (!rows.empty() && rows.back().state == BlockState::inactive) {
          rows.back().size += block.size;
          continue;
        }
      }
      snapshot_.blocks.push_back(block);
    }
    segment.active_size = segment.allocated_size;
    segment.blocks = static_cast<std::uint32_t>(snapshot_.blocks.size());
    if (segment.blocks > 0) snapshot_.segments.push_back(segment);
  }

  const History& history_;
  Snapshot snapshot_;
  std::map<History::Frame, FrameId> frames_;
  std::vector<StackId> stacks_;
  std::vector<Block> blocks_;  // by allocation
  std::uint64_t end_ = first_address;
};

}  // namespace

std::vector<Level> levels(const History& history) {
  std::vector<Level> levels;
  Level level;
  std::size_t event = 0;
  for (const auto boundary : history.boundaries) {
    for (; event < boundary; ++event) {
      const auto& at = history.events[event];
      level.requested += at.alloc ? at.bytes : -at.bytes;
      level.allocations += at.alloc ? 1 : -1;
    }
    levels.push_back(level);
  }
  return levels;
}

Snapshot to_snapshot(const History& history) { return SnapshotOf(history).take(); }

}  // namespace leaklab

#include "leaklab/history.h"

#include <fmt/format.h>

#include <algorithm>

namespace leaklab {
namespace {

constexpr std::uint64_t first_address = 0x7f0000000000;
constexpr std::uint64_t rounding = 512;  // kMinBlockSize of c10/core/AllocatorConfig.h

std::uint64_t rounded(std::int64_t bytes) {
  return (static_cast<std::uint64_t>(bytes) + rounding - 1) / rounding * rounding;
}

class SnapshotOf {
 public:
  explicit SnapshotOf(const History& history) : history_(history) {
    snapshot_.traces.resize(1);
    snapshot_.allocator_settings = nlohmann::json::object();
    for (const auto& stack : history.stacks) stacks_.push_back(stack_of(stack));
  }

  Snapshot take() {
    for (const auto& event : history_.events) add(event);
    for (std::size_t step = 0; step + 1 < history_.boundaries.size(); ++step) annotate(step);
    add_segment();
    return std::move(snapshot_);
  }

 private:
  FrameId frame(std::string_view file, std::string_view function) {
    snapshot_.frames.push_back(
        {snapshot_.strings.intern(file), snapshot_.strings.intern(function), 0});
    return static_cast<FrameId>(snapshot_.frames.size() - 1);
  }

  StackId stack_of(const std::vector<std::string>& operators) {
    std::vector<FrameId> frames;
    for (const auto& name : operators) frames.push_back(frame("??", name));
    if (!history_.file.empty()) frames.push_back(frame(history_.file, history_.name));
    return snapshot_.stacks.intern(frames);
  }

  // Before event n, so that an annotation may stand between two events.
  static std::int64_t time_of(std::size_t event) { return static_cast<std::int64_t>(2 * event); }

  void add(const History::Event& event) {
    auto& trace = snapshot_.traces.front();
    TraceEvent entry;
    entry.time_us = time_of(index_++);
    entry.size = event.bytes;
    entry.stack = stacks_[event.stack];
    if (event.alloc) {
      blocks_.resize(std::max<std::size_t>(blocks_.size(), event.allocation + 1));
      auto& block = blocks_[event.allocation];
      block.address = end_;
      block.size = static_cast<std::int64_t>(rounded(event.bytes));
      block.requested = event.bytes;
      block.stack = entry.stack;
      block.state = BlockState::active_allocated;
      end_ += rounded(event.bytes);
    } else {
      blocks_[event.allocation].state = BlockState::inactive;
    }
    entry.address = blocks_[event.allocation].address;
    entry.kind = event.alloc ? EventKind::alloc : EventKind::free_requested;
    trace.push_back(entry);
    if (event.alloc) return;
    entry.kind = EventKind::free_completed;
    trace.push_back(entry);
  }

  void annotate(std::size_t step) {
    const auto name = snapshot_.strings.intern(fmt::format("## step {} ##", step));
    for (const bool start : {true, false}) {
      Annotation mark;
      mark.stage = snapshot_.strings.intern(start ? "START" : "END");
      mark.name = name;
      mark.time_us = time_of(history_.boundaries[step + (start ? 0 : 1)]) - (start ? 0 : 1);
      snapshot_.annotations.push_back(mark);
    }
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
  std::vector<StackId> stacks_;
  std::vector<Block> blocks_;  // by allocation
  std::uint64_t end_ = first_address;
  std::size_t index_ = 0;
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

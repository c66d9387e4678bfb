#include "complete.h"

#include <algorithm>

#include "visit.h"

namespace leaklab {
namespace {

// Leaves the rows of `range` alone.
template <typename Row>
void keep(std::vector<Row>& rows, std::vector<Extra>& extras, Range range) {
  std::ranges::stable_sort(extras, {}, &Extra::row);
  if (range.count == rows.size()) return;
  const auto first = rows.begin() + range.first;
  rows = std::vector<Row>(first, first + range.count);
  std::erase_if(extras, [&](const Extra& extra) {
    return extra.row < range.first || extra.row - range.first >= range.count;
  });
  for (Extra& extra : extras) extra.row -= range.first;
}

// The blocks of the segments, in their order.
void keep_blocks(Snapshot& snapshot) {
  std::erase_if(snapshot.history,
                [](const HistoryEntry& entry) { return entry.block == HashIndex::none; });
  std::ranges::stable_sort(snapshot.history, {}, &HistoryEntry::block);
  std::ranges::stable_sort(snapshot.block_extras, {}, &Extra::row);
  std::size_t next = 0;
  bool in_order = true;
  for (Segment& segment : snapshot.segments) {
    if (segment.blocks == 0) segment.first_block = static_cast<std::uint32_t>(next);
    in_order = in_order && segment.first_block == next;
    next += segment.blocks;
  }
  if (in_order && next == snapshot.blocks.size()) return;

  std::vector<Block> blocks;
  std::vector<HistoryEntry> history;
  std::vector<Extra> extras;
  for (Segment& segment : snapshot.segments) {
    const std::uint32_t from = segment.first_block;
    segment.first_block = static_cast<std::uint32_t>(blocks.size());
    for (std::uint32_t row = from; row < from + segment.blocks; ++row) {
      const auto to = static_cast<std::uint32_t>(blocks.size());
      blocks.push_back(snapshot.blocks[row]);
      for (HistoryEntry entry : history_of(snapshot, row)) {
        entry.block = to;
        history.push_back(entry);
      }
      for (Extra extra : extras_of(snapshot.block_extras, row)) {
        extra.row = to;
        extras.push_back(extra);
      }
    }
  }
  snapshot.blocks = std::move(blocks);
  snapshot.history = std::move(history);
  snapshot.block_extras = std::move(extras);
}

// What the keys that a block lacks would have said.
void complete_blocks(Snapshot& snapshot) {
  for (const Segment& segment : snapshot.segments) {
    std::uint64_t address = segment.address;
    for (std::uint32_t k = 0; k < segment.blocks; ++k) {
      Block& block = snapshot.blocks[segment.first_block + k];
      if ((block.keys & Block::has_address) == 0) block.address = address;
      address = block.address + static_cast<std::uint64_t>(block.size);
    }
  }
  // From the last to the first, so that a block's first entry wins.
  for (std::size_t k = snapshot.history.size(); k-- > 0;) {
    const HistoryEntry& entry = snapshot.history[k];
    Block& block = snapshot.blocks[entry.block];
    if ((block.keys & Block::has_requested_size) == 0) block.requested = entry.real_size;
    if ((block.keys & Block::has_frames) == 0) block.stack = entry.stack;
  }
}

}  // namespace

void complete(Snapshot& snapshot, Range segments, Range annotations) {
  keep(snapshot.segments, snapshot.segment_extras, segments);
  keep(snapshot.annotations, snapshot.annotation_extras, annotations);
  keep_blocks(snapshot);
  complete_blocks(snapshot);
}

}  // namespace leaklab

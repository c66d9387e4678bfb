// When each allocation of a trace was born and freed.
#pragma once

#include <cstdint>
#include <vector>

#include "leaklab/snapshot.h"

namespace leaklab {

using EventIndex = std::uint32_t;
inline constexpr EventIndex no_event = 0xffffffff;

struct Allocation {
  EventIndex born = 0;
  // The program's request where the trace has it, else the end of it; the number of events where it
  // is gone at the dump and the trace does not say when.
  EventIndex freed = no_event;
};

// A block that is live at the dump and whose allocation is not in the trace.
struct Unborn {
  std::uint64_t address = 0;
  std::int64_t requested = 0;  // bytes
  StackId stack = 0;           // 0 where it was allocated before recording began
};

struct Lifetimes {
  std::vector<Allocation> allocations;              // by birth
  std::vector<Unborn> unborn;                       // by address
  EventKind free_kind = EventKind::free_requested;  // the kind of event that `freed` points at
  std::vector<EventIndex> unknown_frees;  // of addresses whose allocation is not in the trace
  std::int64_t pending_frees = 0;         // requested and not completed when the trace ends
  std::int64_t lost = 0;  // live by the trace, not so by the blocks: freed after recording stopped
  std::int64_t live_at_dump = 0;  // requested bytes: of the blocks, else by the trace
  bool blocks = false;            // the device has any

  // Allocated before the trace begins, so the trace is not the whole story.
  bool begins_late() const { return !unknown_frees.empty() || !unborn.empty(); }
};

// A state that no known version writes counts as in use: calling it free would hide a leak.
inline bool is_live(const Block& block) {
  return block.state == BlockState::active_allocated || block.state == BlockState::other;
}

// Bytes that a live block holds: as requested where the file says so, else as rounded.
inline std::int64_t bytes_of(const Block& block) {
  return block.requested > 0 ? block.requested : block.size;
}

// Of one device; linear in events and blocks.
Lifetimes lifetimes(const Snapshot& snapshot, std::size_t device);

// Of each event, how many events what it allocates or frees lives; 0: not known, no_event: to the
// end of the trace.
std::vector<EventIndex> lives(const Trace& trace, const Lifetimes& lifetimes);

// Requested bytes live before each event, and at the dump: events + 1 values. Without
// blocks, of what the trace tells of.
std::vector<std::int64_t> levels(const Trace& trace, const Lifetimes& lifetimes);
// The same in whole blocks.
std::vector<std::int64_t> levels_in_blocks(const Trace& trace, const Lifetimes& lifetimes);
// The same of the number of allocations.
std::vector<std::int64_t> live_counts(const Trace& trace, const Lifetimes& lifetimes);

}  // namespace leaklab

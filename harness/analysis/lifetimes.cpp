#include "lifetimes.h"

#include <algorithm>
#include <unordered_map>

#include "leaklab/diagnosis.h"
#include "segments.h"

namespace leaklab {
namespace {

// Addresses lie at regular distances, which a table by remainders may take badly.
struct AddressHash {
  std::size_t operator()(std::uint64_t address) const {
    address *= 0x9e3779b97f4a7c15u;
    return address ^ (address >> 32);
  }
};

// Of each live address its row in `allocations`.
using Live = std::unordered_map<std::uint64_t, std::uint32_t, AddressHash>;

// What the blocks say of what is live; rows that they contradict are dropped from `live`.
void reconcile(const Snapshot& snapshot, std::size_t device, Live& live, Lifetimes& found) {
  std::unordered_map<std::uint64_t, std::uint32_t> seen;
  std::int64_t bytes = 0;
  for (const auto& segment : snapshot.segments) {
    if (static_cast<std::size_t>(segment.device) != device) continue;
    found.blocks = true;
    for (std::uint32_t at = 0; at < segment.blocks; ++at) {
      const auto& block = snapshot.blocks[segment.first_block + at];
      if (!is_live(block)) continue;
      const auto requested = bytes_of(block);
      bytes += requested;
      if (live.contains(block.address)) {
        seen.emplace(block.address, 0);
      } else {
        found.unborn.push_back({block.address, requested, block.stack});
      }
    }
  }
  if (!found.blocks) return;
  found.live_at_dump = bytes;
  std::vector<std::uint64_t> gone;
  for (const auto& [address, row] : live) {
    if (!seen.contains(address)) gone.push_back(address);
  }
  found.lost = static_cast<std::int64_t>(gone.size());
  for (const auto address : gone) live.erase(address);
  std::ranges::sort(found.unborn, {}, &Unborn::address);
}

}  // namespace

Lifetimes lifetimes(const Snapshot& snapshot, std::size_t device) {
  Lifetimes found;
  const auto& trace = snapshot.traces[device];
  const bool requests = std::ranges::any_of(
      trace, [](const auto& event) { return event.kind == EventKind::free_requested; });
  found.free_kind = requests ? EventKind::free_requested : EventKind::free_completed;
  Live live;
  std::int64_t requested = 0;
  std::int64_t completed = 0;
  for (EventIndex at = 0; at < trace.size(); ++at) {
    const auto event = trace[at];
    requested += event.kind == EventKind::free_requested ? 1 : 0;
    completed += event.kind == EventKind::free_completed ? 1 : 0;
    if (event.kind == EventKind::alloc) {
      const auto row = static_cast<std::uint32_t>(found.allocations.size());
      found.allocations.push_back({at, no_event});
      const auto [place, fresh] = live.try_emplace(event.address, row);
      if (!fresh) {
        // Its free is missing.
        found.allocations[place->second].freed = at;
        place->second = row;
      }
    } else if (event.kind == found.free_kind) {
      const auto place = live.find(event.address);
      if (place == live.end()) {
        found.unknown_frees.push_back(at);
      } else {
        found.allocations[place->second].freed = at;
        live.erase(place);
      }
    }
  }
  found.pending_frees = requests ? std::max<std::int64_t>(0, requested - completed) : 0;
  reconcile(snapshot, device, live, found);
  if (found.lost > 0) {
    // What is no longer there counts as freed when the trace ends.
    for (auto& allocation : found.allocations) {
      if (allocation.freed == no_event && !live.contains(trace[allocation.born].address)) {
        allocation.freed = static_cast<EventIndex>(trace.size());
      }
    }
  }
  if (!found.blocks) {
    for (const auto& [address, row] : live) {
      found.live_at_dump += trace[found.allocations[row].born].size;
    }
  }
  return found;
}

namespace {

// What is live before each event and at the dump, counted back from what is live at the dump;
// `worth` of an allocation's bytes is what it counts for.
std::vector<std::int64_t> counted_back(const Trace& trace, const Lifetimes& lifetimes,
                                       std::int64_t at_dump, const auto& worth) {
  std::vector<std::int64_t> level(trace.size() + 1);  // first what is gained by the event before
  auto live = at_dump;                                // at the end of the trace
  std::vector<bool> matched(trace.size() + 1);
  for (const auto& allocation : lifetimes.allocations) {
    const auto gained = worth(trace[allocation.born].size);
    level[allocation.born + 1] += gained;
    if (allocation.freed == no_event) continue;
    matched[allocation.freed] = true;
    if (allocation.freed < trace.size()) {
      level[allocation.freed + 1] -= gained;
    } else {
      live += gained;
    }
  }
  for (std::size_t at = 0; at < trace.size(); ++at) {
    if (trace[at].kind == lifetimes.free_kind && !matched[at])
      level[at + 1] -= worth(trace[at].size);
  }
  for (auto at = trace.size() + 1; at-- > 0;) {
    const auto gained = level[at];
    level[at] = live;
    live -= gained;
  }
  level[trace.size()] = at_dump;
  return level;
}

}  // namespace

std::vector<EventIndex> lives(const Trace& trace, const Lifetimes& lifetimes) {
  std::vector<EventIndex> found(trace.size());
  for (const auto& allocation : lifetimes.allocations) {
    const bool freed = allocation.freed < trace.size();
    found[allocation.born] = freed ? allocation.freed - allocation.born : no_event;
    if (freed) found[allocation.freed] = found[allocation.born];
  }
  return found;
}

std::vector<std::int64_t> levels(const Trace& trace, const Lifetimes& lifetimes) {
  return counted_back(trace, lifetimes, lifetimes.live_at_dump,
                      [](std::int64_t bytes) { return bytes; });
}

std::vector<std::int64_t> levels_in_blocks(const Trace& trace, const Lifetimes& lifetimes) {
  const auto in_block = [](std::int64_t bytes) { return rounded_up(bytes, block_bytes); };
  std::int64_t live = 0;
  for (const auto& block : lifetimes.unborn) live += in_block(block.requested);
  for (const auto& each : lifetimes.allocations) {
    if (each.freed == no_event) live += in_block(trace[each.born].size);
  }
  return counted_back(trace, lifetimes, live, in_block);
}

std::vector<std::int64_t> live_counts(const Trace& trace, const Lifetimes& lifetimes) {
  const auto live = std::ranges::count(lifetimes.allocations, no_event, &Allocation::freed);
  return counted_back(trace, lifetimes, live + std::ssize(lifetimes.unborn),
                      [](std::int64_t) { return std::int64_t{1}; });
}

}  // namespace leaklab

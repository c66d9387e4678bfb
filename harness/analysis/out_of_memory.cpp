#include "out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "segments.h"

namespace leaklab {
namespace {

// Free stretches of the segments at one moment: what they hold at the dump, with the trace after
// that moment undone.
struct Room {
  std::int64_t reserved = 0;
  std::int64_t cached = 0;
  std::int64_t largest = 0;
};

Room room_at(const Snapshot& snapshot, std::size_t device, const Trace& trace, EventIndex at) {
  // What is taken, by address, each up to its rounded end.
  std::map<std::uint64_t, std::int64_t> taken;
  for (const auto& segment : snapshot.segments) {
    if (static_cast<std::size_t>(segment.device) != device) continue;
    for (std::uint32_t each = 0; each < segment.blocks; ++each) {
      const auto& block = snapshot.blocks[segment.first_block + each];
      if (block.state != BlockState::inactive) taken[block.address] = block.size;
    }
  }
  Segments segments(snapshot, device);
  for (auto later = trace.size(); later-- > at;) {
    const auto event = trace[later];
    segments.undo(event);
    if (event.kind == EventKind::alloc) taken.erase(event.address);
    if (event.kind == EventKind::free_completed) {
      taken[event.address] = (event.size + 511) / 512 * 512;
    }
  }
  Room room;
  room.reserved = segments.reserved();
  for (const auto& [address, range] : segments.by_address()) {
    auto from = address;
    const auto end = address + static_cast<std::uint64_t>(range.size);
    const auto gap = [&](std::uint64_t to) {
      if (to <= from) return;
      const auto bytes = static_cast<std::int64_t>(to - from);
      room.cached += bytes;
      room.largest = std::max(room.largest, bytes);
    };
    for (auto each = taken.lower_bound(from); each != taken.end() && each->first < end; ++each) {
      gap(each->first);
      from = std::max(from, each->first + static_cast<std::uint64_t>(each->second));
    }
    gap(end);
  }
  return room;
}

}  // namespace

CodeSite site_of(const Snapshot& snapshot, FrameId frame) {
  if (frame == no_frame) return {};
  const auto& each = snapshot.frames[frame];
  return {shown(snapshot.strings[each.file]),
          each.line > 0x7fffffff ? 0 : static_cast<std::int64_t>(each.line),
          shown(snapshot.strings[each.function])};
}

std::vector<std::pair<CodeSite, std::int64_t>> live_sites(const Snapshot& snapshot,
                                                          const Trace& trace, const Sites& sites,
                                                          const Lifetimes& lifetimes,
                                                          EventIndex at) {
  std::map<FrameId, std::int64_t> bytes;
  for (const auto& block : lifetimes.unborn)
    bytes[sites.stack(block.stack).site] += block.requested;
  for (const auto& each : lifetimes.allocations) {
    if (each.born >= at) break;
    if (each.freed >= at) bytes[sites.stack(trace[each.born].stack).site] += trace[each.born].size;
  }
  std::vector<std::pair<FrameId, std::int64_t>> order(bytes.begin(), bytes.end());
  std::ranges::sort(order, [](const auto& left, const auto& right) {
    return std::pair(right.second, left.first) < std::pair(left.second, right.first);
  });
  std::vector<std::pair<CodeSite, std::int64_t>> found;
  for (const auto& [frame, live] : order) {
    if (found.size() == 10) break;
    found.emplace_back(site_of(snapshot, frame), live);
  }
  return found;
}

std::optional<FailedAllocation> out_of_memory(const Snapshot& snapshot, std::size_t device,
                                              const Sites& sites, const Lifetimes& lifetimes,
                                              const std::vector<std::int64_t>& levels,
                                              const Steps& steps) {
  const auto& trace = snapshot.traces[device];
  auto at = static_cast<EventIndex>(trace.size());
  while (at > 0 && trace[at - 1].kind != EventKind::oom) --at;
  if (at == 0) return std::nullopt;
  --at;
  FailedAllocation oom;
  oom.device = static_cast<std::int64_t>(device);
  oom.request = trace[at].size;
  oom.device_free = static_cast<std::int64_t>(trace[at].address);
  oom.live = levels[at];
  oom.count = std::count_if(trace.begin(), trace.end(),
                            [](const TraceEvent& event) { return event.kind == EventKind::oom; });
  const auto room = room_at(snapshot, device, trace, at);
  oom.reserved = room.reserved;
  oom.cached = room.cached;
  oom.largest_free = room.largest;
  const auto step = steps.of(at);
  oom.step = step < 0 || steps.count() == 0 ? -1 : step + steps.before;
  oom.live_sites = live_sites(snapshot, trace, sites, lifetimes, at);
  const auto total = oom.reserved + oom.device_free;
  if (oom.request > total) {
    oom.reason =
        "the request alone is larger than all that this process had and could get: the "
        "batch is too large, not the memory too full";
  } else if (oom.device_free >= oom.request) {
    oom.reason =
        "the device has that much free: a limit of this process stops it, such as "
        "set_per_process_memory_fraction, at which too much was live";
  } else if (oom.cached >= oom.request && oom.largest_free < oom.request) {
    oom.reason =
        "enough is cached in sum, but no free stretch of it is long enough: fragmentation; "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins such stretches";
  } else {
    oom.reason = "too much was live: what was cached and free together does not hold the request";
  }
  return oom;
}

}  // namespace leaklab

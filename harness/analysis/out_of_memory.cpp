#include "out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "../core/size_text.h"
#include "segments.h"

namespace leaklab {
namespace {

// A setting of the allocator, as far as the file tells.
const nlohmann::json* setting(const Snapshot& snapshot, const char* name) {
  const auto& settings = snapshot.allocator_settings;
  if (!settings.is_object()) return nullptr;
  const auto at = settings.find(name);
  return at == settings.end() ? nullptr : &*at;
}

bool is_set(const Snapshot& snapshot, const char* name) {
  const auto* const value = setting(snapshot, name);
  if (value == nullptr) return false;
  return value->is_boolean() ? value->get<bool>() : value->is_number() && value->get<double>() > 0;
}

bool is_expandable(const Snapshot& snapshot) {
  return is_set(snapshot, "expandable_segments") ||
         std::ranges::any_of(snapshot.segments, &Segment::expandable);
}

// How the allocator makes blocks of requests, as round_size() and should_split() of
// c10/cuda/CUDACachingAllocator.cpp.
class Rounding {
 public:
  explicit Rounding(const Snapshot& snapshot) {
    const auto* const divisions = setting(snapshot, "roundup_power2_divisions");
    if (divisions != nullptr && divisions->is_object()) {
      for (const auto& [from, value] : divisions->items()) {
        std::int64_t mebibytes = 0;
        const auto parsed = std::from_chars(from.data(), from.data() + from.size(), mebibytes);
        if (parsed.ec == std::errc() && value.is_number_integer()) {
          divisions_[mebibytes] = value.get<std::int64_t>();
        }
      }
    }
    if (is_set(snapshot, "max_split_size")) {
      unsplit_from_ = setting(snapshot, "max_split_size")->get<double>();
    }
  }

  std::int64_t block_of(std::int64_t request) const {
    auto from = divisions_.upper_bound(std::max<std::int64_t>(1, request >> 20));
    const auto divisions = from == divisions_.begin() ? 0 : std::prev(from)->second;
    if (divisions <= 1 || divisions > most_divisions || request <= least_block * divisions) {
      return rounded_up(request, least_block);
    }
    const auto floor =
        static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(request)));
    return rounded_up(request, floor / static_cast<std::int64_t>(
                                           std::bit_floor(static_cast<std::uint64_t>(divisions))));
  }
  // Whether what is free behind a block is a part of it, as the allocator does not split so little
  // off, or nothing off a block of that size.
  bool holds(std::int64_t block, std::int64_t behind, const Segments::Range& segment) const {
    if (segment.expandable || segment.owner.small) return false;
    return behind <= small_request || static_cast<double>(block) >= unsplit_from_;
  }

 private:
  static constexpr std::int64_t most_divisions = 1 << 20;
  std::map<std::int64_t, std::int64_t> divisions_;  // by MiB of the request, from there on
  double unsplit_from_ = std::numeric_limits<double>::infinity();
};

// Free stretches of the segments at one moment: what they hold at the dump, with the trace after
// that moment undone.
struct Room {
  struct Part {
    std::int64_t cached = 0;
    std::int64_t stretches = 0;
    std::int64_t largest = 0;
  };
  std::int64_t reserved = 0;
  std::int64_t cached = 0;
  std::int64_t largest = 0;
  std::map<Segments::Owner, Part> parts;  // by whose requests can use it
};

Room room_at(const Snapshot& snapshot, std::size_t device, const Trace& trace, EventIndex at) {
  const Rounding rounding(snapshot);
  struct Taken {
    std::int64_t size = 0;
    bool is_known = true;  // from the dump; else of what was requested
  };
  std::map<std::uint64_t, Taken> taken;  // by address
  for (const auto& segment : snapshot.segments) {
    if (static_cast<std::size_t>(segment.device) != device) continue;
    for (std::uint32_t each = 0; each < segment.blocks; ++each) {
      const auto& block = snapshot.blocks[segment.first_block + each];
      if (block.state != BlockState::inactive) taken[block.address] = {block.size};
    }
  }
  Segments segments(snapshot, device);
  for (auto later = trace.size(); later-- > at;) {
    const auto event = trace[later];
    segments.undo(event);
    if (event.kind == EventKind::alloc) taken.erase(event.address);
    if (event.kind == EventKind::free_completed) {
      taken[event.address] = {rounding.block_of(event.size), false};
    }
  }
  Room room;
  room.reserved = segments.reserved();
  for (const auto& [address, range] : segments.by_address()) {
    auto from = address;
    const auto end = address + static_cast<std::uint64_t>(range.size);
    Taken before;
    const auto gap = [&, &range = range](std::uint64_t to) {
      if (to <= from) return;
      const auto bytes = static_cast<std::int64_t>(to - from);
      if (!before.is_known && rounding.holds(before.size, bytes, range)) return;
      auto& part = room.parts[range.owner];
      room.cached += bytes;
      part.cached += bytes;
      ++part.stretches;
      part.largest = std::max(part.largest, bytes);
      room.largest = std::max(room.largest, bytes);
    };
    for (auto each = taken.lower_bound(from); each != taken.end() && each->first < end; ++each) {
      gap(each->first);
      from = std::max(from, each->first + static_cast<std::uint64_t>(each->second.size));
      before = each->second;
    }
    gap(end);
  }
  return room;
}

// Why the device gave nothing.
std::string reason_of_device(const FailedAllocation& oom, bool expandable) {
  const auto segment = segment_for(oom.request, expandable);
  if (oom.device_free >= segment) {
    return fmt::format(
        "a limit of this process, such as set_per_process_memory_fraction, keeps it from the {} "
        "that the device has free",
        size_text(oom.device_free));
  }
  if (oom.device_free >= oom.request) {
    return fmt::format("the device has {} free, but the allocator needs {} of it in one {}",
                       size_text(oom.device_free), size_text(segment),
                       expandable ? "go" : "segment");
  }
  return fmt::format("the device has {} free", size_text(oom.device_free));
}

// Where a stretch lies that is long enough and not for the request, and what to change.
std::string elsewhere(const Segments::Owner& stretch, const Segments::Owner& request) {
  if (stretch.pool != request.pool) {
    return stretch.pool != 0
               ? "in a private pool, such as that of a CUDA graph: drop graphs that are no longer "
                 "used, or capture them into one pool"
               : "outside of the private pool that the request is for: call "
                 "torch.cuda.empty_cache() before a CUDA graph is captured";
  }
  if (stretch.stream != request.stream) {
    return "for another stream: allocate on one stream, and tell the others of it by "
           "record_stream()";
  }
  return request.small ? "for requests of more than 1.0 MiB: too much was live"
                       : "for requests of 1.0 MiB or less: too much was live";
}

// Why what was cached did not serve the request.
std::string reason_of_cache(const FailedAllocation& oom, const Room& room,
                            const Segments::Owner& request, const Snapshot& snapshot) {
  const auto found = room.parts.find(request);
  const auto own = found == room.parts.end() ? Room::Part() : found->second;
  if (own.largest >= oom.request) {
    return fmt::format("{} is cached in one stretch, but not for it: {}", size_text(own.largest),
                       is_set(snapshot, "max_split_size")
                           ? "max_split_size_mb keeps long stretches whole"
                           : "it was likely asked for while a CUDA graph was captured, into a pool "
                             "of its own: call torch.cuda.empty_cache() before that");
  }
  if (room.largest >= oom.request) {
    const auto& [owner, part] = *std::ranges::max_element(
        room.parts, {}, [](const auto& each) { return each.second.largest; });
    return fmt::format("{} is cached in one stretch, but {}", size_text(part.largest),
                       elsewhere(owner, request));
  }
  if (own.cached >= oom.request) {
    return fmt::format("{} is cached, but in {} stretches of {} at most: fragmentation{}",
                       size_text(own.cached), own.stretches, size_text(own.largest),
                       is_expandable(snapshot)
                           ? ""
                           : ", which PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lessens");
  }
  if (room.cached >= oom.request) {
    const auto& [owner, part] = *std::ranges::max_element(room.parts, {}, [&](const auto& each) {
      return each.first == request ? -1 : each.second.cached;
    });
    return fmt::format(
        "{} is cached{}, but {}", size_text(part.cached),
        own.cached == 0 ? "" : fmt::format(" beside {} that it could use", size_text(own.cached)),
        elsewhere(owner, request));
  }
  return fmt::format("{} is cached: too much was live",
                     room.cached == 0 ? "nothing" : "only " + size_text(room.cached));
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
  const Segments::Owner request{trace[at].stream, trace[at].pool, oom.request <= small_request};
  const auto room = room_at(snapshot, device, trace, at);
  oom.reserved = room.reserved;
  oom.cached = room.cached;
  oom.largest_free = room.largest;
  const auto step = steps.of(at);
  oom.step = step < 0 || steps.count() == 0 ? -1 : step + steps.before;
  // Of whole steps the last begin is an end.
  if (steps.count() > 0)
    oom.steps_after =
        steps.begin.end() - 1 - std::upper_bound(steps.begin.begin(), steps.begin.end() - 1, at);
  oom.live_sites = live_sites(snapshot, trace, sites, lifetimes, at);
  if (oom.request > oom.reserved && oom.request - oom.reserved > oom.device_free) {
    oom.reason =
        "the request alone is larger than all that this process had and could get: the "
        "batch is too large, not the memory too full";
  } else {
    oom.reason = fmt::format("{}, and {}", reason_of_device(oom, is_expandable(snapshot)),
                             reason_of_cache(oom, room, request, snapshot));
  }
  return oom;
}

}  // namespace leaklab

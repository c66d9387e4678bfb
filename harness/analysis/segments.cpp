#include "segments.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>

namespace leaklab {
namespace {

bool is_small(std::string_view type, std::int64_t size, bool expandable) {
  if (!type.empty()) return type == "small";
  return expandable ? size % large_segment != 0 : size <= small_segment;
}

}  // namespace

std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit) {
  if (bytes <= 0 || bytes > std::numeric_limits<std::int64_t>::max() - unit) return bytes;
  return (bytes + unit - 1) / unit * unit;
}

// As get_allocation_size() and ExpandableSegment of c10/cuda/CUDACachingAllocator.cpp.
std::int64_t segment_for(std::int64_t request, bool expandable) {
  constexpr std::int64_t own_segment = 10 << 20;  // from here on a request has one to itself
  if (request <= small_request) return small_segment;
  if (expandable) return rounded_up(request, large_segment);
  return request < own_segment ? large_segment : rounded_up(request, small_segment);
}

bool is_small(const Snapshot& snapshot, const Segment& segment) {
  return is_small(snapshot.strings[segment.type], segment.total_size, segment.expandable);
}

// As ExpandableSegment::unmap(): what the dump shows of one begins with a page.
std::int64_t whole_pages(std::int64_t from, std::int64_t to, bool small) {
  const auto page = small ? small_segment : large_segment;
  const auto first = rounded_up(from, page);
  return std::max<std::int64_t>(0, to / page * page - first);
}

Segments::Segments(const Snapshot& snapshot, std::size_t device) {
  for (const auto& segment : snapshot.segments) {
    if (segment.device != static_cast<std::int32_t>(device)) continue;
    give(segment.address, {segment.total_size,
                           segment.expandable,
                           {segment.stream, segment.pool, is_small(snapshot, segment)}});
  }
}

void Segments::undo(const TraceEvent& event) {
  switch (event.kind) {
    case EventKind::segment_alloc:
    case EventKind::segment_map:
      take(event.address, event.size);
      break;
    case EventKind::segment_free:
      give(event.address,
           {event.size, false, {event.stream, event.pool, is_small({}, event.size, false)}});
      break;
    case EventKind::segment_unmap:
      give(event.address,
           {event.size, true, {event.stream, event.pool, is_small({}, event.size, true)}});
      break;
    default:
      break;
  }
}

// What of the stretch there is goes; a damaged file may name another one.
void Segments::take(std::uint64_t address, std::int64_t size) {
  if (size <= 0) return;
  const auto end = address + static_cast<std::uint64_t>(size);
  auto at = by_address_.upper_bound(address);
  if (at != by_address_.begin()) --at;
  while (at != by_address_.end() && at->first < end) {
    const auto [from, range] = *at;
    const auto to = from + static_cast<std::uint64_t>(range.size);
    if (to <= address) {
      ++at;
      continue;
    }
    at = by_address_.erase(at);
    if (from < address) {
      by_address_[from] = {static_cast<std::int64_t>(address - from), range.expandable,
                           range.owner};
    }
    if (to > end) {
      by_address_[end] = {static_cast<std::int64_t>(to - end), range.expandable, range.owner};
    }
    reserved_ -= static_cast<std::int64_t>(std::min(to, end) - std::max(from, address));
  }
}

void Segments::give(std::uint64_t address, Range range) {
  if (range.size <= 0) return;
  take(address, range.size);
  reserved_ += range.size;
  const auto end = [](const auto& each) {
    return each.first + static_cast<std::uint64_t>(each.second.size);
  };
  auto at = by_address_.insert_or_assign(address, range).first;
  const auto next = std::next(at);
  if (next != by_address_.end() && range.expandable && next->second.expandable &&
      end(*at) == next->first) {
    at->second.size += next->second.size;
    // It was there before, and may be known from the dump.
    at->second.owner = next->second.owner;
    by_address_.erase(next);
  }
  if (at == by_address_.begin()) return;
  const auto previous = std::prev(at);
  if (range.expandable && previous->second.expandable && end(*previous) == address) {
    previous->second.size += at->second.size;
    by_address_.erase(at);
  }
}

}  // namespace leaklab

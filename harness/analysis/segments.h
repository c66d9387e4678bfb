// The segments of a device at moments before the dump.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>

#include "leaklab/snapshot.h"

namespace leaklab {

// Requests are rounded up to multiples of it.
inline constexpr std::int64_t least_block = 512;
// What PyTorch's caching allocator asks the device for.
inline constexpr std::int64_t small_request = 1 << 20;  // the largest that small segments serve
inline constexpr std::int64_t small_segment = 2 << 20;
inline constexpr std::int64_t large_segment = 20 << 20;  // of requests that are not much smaller

// Up to the next multiple of `unit`; a damaged file may name any number of bytes.
std::int64_t rounded_up(std::int64_t bytes, std::int64_t unit);

// What the allocator asks the device for where nothing that it has serves a request of so many
// bytes. Expandable segments grow by pages of the same sizes.
std::int64_t segment_for(std::int64_t request, bool expandable);

// Whether it serves requests of a MiB or less.
bool is_small(const Snapshot& snapshot, const Segment& segment);

// Bytes of the whole pages of an expandable segment within a free stretch of it: all that can be
// given back of it. The stretch is told by where in the segment it begins and ends.
std::int64_t whole_pages(std::int64_t from, std::int64_t to, bool small);

// What the allocator has from the device: at first as the blocks of the file say, then as it was
// before each event that is undone, from the last one on.
class Segments {
 public:
  // What a request has in common with the segments that can serve it.
  struct Owner {
    std::uint32_t stream = 0;  // index into Snapshot::streams
    std::uint32_t pool = 0;    // index into Snapshot::pools
    bool small = false;        // for requests of a MiB or less
    friend auto operator<=>(const Owner&, const Owner&) = default;
  };
  struct Range {
    std::int64_t size = 0;  // bytes
    // Of an expandable segment: what is mapped next to it belongs to it.
    bool expandable = false;
    Owner owner;
  };

  Segments(const Snapshot& snapshot, std::size_t device);

  // Of a segment that is gone at the dump the event tells no class, and seldom a pool: the class is
  // told by its size, and the pool is the default one.
  void undo(const TraceEvent& event);
  std::int64_t reserved() const { return reserved_; }                               // bytes
  const std::map<std::uint64_t, Range>& by_address() const { return by_address_; }  // disjoint

 private:
  void take(std::uint64_t address, std::int64_t size);
  void give(std::uint64_t address, Range range);

  std::map<std::uint64_t, Range> by_address_;
  std::int64_t reserved_ = 0;
};

}  // namespace leaklab

// The segments of a device at moments before the dump.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "leaklab/snapshot.h"

namespace leaklab {

// What the allocator has from the device: at first as the blocks of the file say, then as it was
// before each event that is undone, from the last one on.
class Segments {
 public:
  struct Range {
    std::int64_t size = 0;  // bytes
    // Of an expandable segment: what is mapped next to it belongs to it.
    bool expandable = false;
  };

  Segments(const Snapshot& snapshot, std::size_t device);

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

#include "possible.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "leaklab/error.h"

namespace leaklab {
namespace {

// Adds up sizes. That none is negative and that all together are far from 2^63 lets an analysis add
// them up as it likes, and repeat a few times what a trace does.
class Sum {
 public:
  explicit Sum(const std::string& origin) : origin_(origin) {}

  void add(std::int64_t bytes, const auto& where) {
    constexpr auto most = std::int64_t{1} << 56;
    if (bytes < 0 || bytes > most - sum_) {
      throw UsageError(fmt::format(
          "{}: {} has a size of {} bytes, which no allocator gives out; record the snapshot again",
          origin_, where(), bytes));
    }
    sum_ += bytes;
  }

 private:
  const std::string& origin_;
  std::int64_t sum_ = 0;
};

}  // namespace

void refuse_impossible(const Snapshot& snapshot, const std::string& origin) {
  Sum events(origin);
  for (std::size_t device = 0; device < snapshot.traces.size(); ++device) {
    const auto& trace = snapshot.traces[device];
    for (std::size_t at = 0; at < trace.size(); ++at) {
      // What was asked for and not given may be any size.
      if (trace[at].kind == EventKind::oom && trace[at].size >= 0) continue;
      events.add(trace[at].size, [&] { return fmt::format("device_traces[{}][{}]", device, at); });
    }
  }
  Sum blocks(origin);
  Sum segments(origin);
  for (std::size_t row = 0; row < snapshot.segments.size(); ++row) {
    const auto& segment = snapshot.segments[row];
    const auto where = [&] { return fmt::format("segments[{}]", row); };
    for (const auto bytes : {segment.total_size, segment.allocated_size, segment.active_size,
                             segment.requested_size}) {
      segments.add(bytes, where);
    }
    for (std::uint32_t at = 0; at < segment.blocks; ++at) {
      const auto& block = snapshot.blocks[segment.first_block + at];
      const auto which = [&] { return fmt::format("segments[{}]['blocks'][{}]", row, at); };
      blocks.add(block.size, which);
      blocks.add(block.requested, which);
    }
  }
}

}  // namespace leaklab

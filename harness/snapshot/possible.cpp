#include "possible.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "fields.h"
#include "leaklab/error.h"

namespace leaklab {
namespace {

// Adds up sizes. That none is negative and that all together are far from 2^63 lets an analysis add
// them up as it likes, and repeat a few times what a trace does.
class Sum {
 public:
  explicit Sum(const std::string& origin) : origin_(origin) {}

  void add(std::int64_t bytes, Field field, const auto& where) {
    constexpr auto most = std::int64_t{1} << 56;
    if (bytes < 0) refuse(bytes, field, where(), "which no allocator gives out");
    if (bytes > most - sum_) {
      refuse(bytes, field, where(), "with those before it more than any memory has");
    }
    sum_ += bytes;
  }

 private:
  [[noreturn, gnu::cold]] void refuse(std::int64_t bytes, Field field, const std::string& where,
                                      const char* why) const {
    throw UsageError(fmt::format("{}: `{}` of {} is {} bytes, {}; record the snapshot again",
                                 origin_, text_of(field), where, bytes, why));
  }

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
      events.add(trace[at].size, Field::size,
                 [&] { return fmt::format("device_traces[{}][{}]", device, at); });
    }
  }
  Sum blocks(origin);
  Sum segments(origin);
  for (std::size_t row = 0; row < snapshot.segments.size(); ++row) {
    const auto& segment = snapshot.segments[row];
    const auto where = [&] { return fmt::format("segments[{}]", row); };
    segments.add(segment.total_size, Field::total_size, where);
    segments.add(segment.allocated_size, Field::allocated_size, where);
    segments.add(segment.active_size, Field::active_size, where);
    segments.add(segment.requested_size, Field::requested_size, where);
    for (std::uint32_t at = 0; at < segment.blocks; ++at) {
      const auto& block = snapshot.blocks[segment.first_block + at];
      const auto which = [&] { return fmt::format("segments[{}]['blocks'][{}]", row, at); };
      blocks.add(block.size, Field::size, which);
      blocks.add(block.requested, Field::requested_size, which);
    }
  }
}

}  // namespace leaklab

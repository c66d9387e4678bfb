#include "hash.h"
#include "leaklab/snapshot.h"
#include "parts.h"

namespace leaklab {

void Trace::reserve(std::size_t events) {
  rows_.reserve(events);
  if (!times_.empty()) times_.reserve(events);
}

void Trace::set(std::size_t at, const TraceEvent& event) {
  rows_[at] = row_of(event);
  if (times_.empty() && event.time_us != 0) begin_times();
  if (!times_.empty()) times_[at] = event.time_us;
}

std::uint32_t Trace::intern(const Detail& detail) {
  static_assert(sizeof(Row) == 24);
  std::uint64_t hash = mix(hash_seed(), std::uint64_t{detail.stream} << 32 | detail.pool);
  hash = mix(hash, std::uint64_t{detail.compile_context} << 32 | detail.user_metadata);
  hash = mix(hash, static_cast<std::uint64_t>(detail.kind) << 8 | detail.keys);
  const auto found = index_.find(hash, [&](std::uint32_t row) { return details_[row] == detail; });
  if (found != HashIndex::none) return found;
  const std::uint32_t row = row_number(details_.size());
  details_.push_back(detail);
  index_.insert(hash, row);
  return row;
}

void Trace::begin_times() {
  times_.reserve(rows_.capacity());
  times_.resize(rows_.size());
}

}  // namespace leaklab

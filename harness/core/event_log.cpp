#include "leaklab/event_log.h"

namespace leaklab {
namespace {

std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t word) {
  for (int byte = 0; byte < 8; ++byte) {
    hash = (hash ^ (word & 0xff)) * 0x100000001b3ULL;
    word >>= 8;
  }
  return hash;
}

}  // namespace

// Neither constructed nor destroyed at run time: allocators feed it before main and after it.
constinit EventLog detail::the_log;

void EventLog::begin_step() noexcept { peak_.store(live_bytes(), std::memory_order_relaxed); }

void EventLog::end_step() noexcept {
  const std::uint64_t mixed = total(&Counters::mixed);
  const std::int64_t count = events();
  hash_ = fnv1a(hash_, mixed - folded_mixed_);
  hash_ = fnv1a(hash_, static_cast<std::uint64_t>(count - folded_events_));
  folded_mixed_ = mixed;
  folded_events_ = count;
}

}  // namespace leaklab

// What the allocator probes have in common: live bytes, their peak, and the event hash.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace leaklab {

enum class Action : std::uint8_t { alloc = 1, free = 2 };

// Counts allocator events of any thread. Adding an event takes no lock and allocates nothing.
class EventLog {
 public:
  void add(Action action, std::int64_t bytes) noexcept;

  // Live bytes as requested: what was allocated minus what was freed since the log began.
  std::int64_t live_bytes() const noexcept { return total(&Counters::live_bytes); }
  std::int64_t live_count() const noexcept {
    return total(&Counters::allocs) - total(&Counters::frees);
  }
  // The most live bytes since begin_step(); exact where one thread allocates at a time.
  std::int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  std::int64_t events() const noexcept {
    return total(&Counters::allocs) + total(&Counters::frees);
  }

  // Folds the events since the last call into the hash: order-free among them, ordered across
  // calls. (LibTorch frees in the order of pointer-keyed maps, which address randomisation moves.)
  void end_step() noexcept;
  void begin_step() noexcept;
  std::uint64_t hash() const noexcept { return hash_; }

 private:
  struct alignas(64) Counters {
    std::atomic<std::int64_t> live_bytes{0};
    std::atomic<std::int64_t> allocs{0};
    std::atomic<std::int64_t> frees{0};
    std::atomic<std::uint64_t> mixed{0};  // sum over the events, so that their order is lost
  };

  bool is_owner() noexcept;
  template <typename T>
  static void increase(std::atomic<T>& counter, std::type_identity_t<T> by, bool alone) noexcept;
  static std::uint64_t mix(Action action, std::int64_t bytes) noexcept;
  template <typename T>
  T total(std::atomic<T> Counters::*counter) const noexcept {
    return (own_.*counter).load(std::memory_order_relaxed) +
           (shared_.*counter).load(std::memory_order_relaxed);
  }

  // An atomic read-modify-write is the dear part of an event. The first thread that adds, which
  // makes nearly all events of a run, owns a set of counters and does without.
  Counters own_;
  Counters shared_;
  std::atomic<const void*> owner_{nullptr};  // a thread's own address; nullptr: none yet
  std::atomic<std::int64_t> peak_{0};
  std::uint64_t folded_mixed_ = 0;
  std::int64_t folded_events_ = 0;
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;  // FNV-1a's offset basis
};

namespace detail {
extern constinit EventLog the_log;
// Its address is the thread's. Read without a call, which would cost as much as the event.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local char this_thread = 0;
}  // namespace detail

// The log that the allocator of the run's device feeds. One run a process, so one log.
inline EventLog& event_log() { return detail::the_log; }

// A call costs as much as the event.
[[gnu::always_inline]] inline void EventLog::add(Action action, std::int64_t bytes) noexcept {
  const bool alone = is_owner();
  const bool alloc = action == Action::alloc;
  Counters& counters = alone ? own_ : shared_;
  increase(counters.live_bytes, alloc ? bytes : -bytes, alone);
  increase(alloc ? counters.allocs : counters.frees, 1, alone);
  increase(counters.mixed, mix(action, bytes), alone);
  if (!alloc) return;
  const std::int64_t live = live_bytes();
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (live > peak && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

inline bool EventLog::is_owner() noexcept {
  const void* self = &detail::this_thread;
  const void* owner = owner_.load(std::memory_order_relaxed);
  if (owner == self) return true;
  return owner == nullptr && owner_.compare_exchange_strong(owner, self, std::memory_order_relaxed);
}

template <typename T>
void EventLog::increase(std::atomic<T>& counter, std::type_identity_t<T> by, bool alone) noexcept {
  if (alone) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  } else {
    counter.fetch_add(by, std::memory_order_relaxed);
  }
}

// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
inline std::uint64_t EventLog::mix(Action action, std::int64_t bytes) noexcept {
  std::uint64_t z = static_cast<std::uint64_t>(bytes) * 4 + static_cast<std::uint64_t>(action);
  z += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace leaklab

// What the allocator probes have in common: live bytes, their peak, and the event hash.
#pragma once

#include <atomic>
#include <cstdint>

namespace leaklab {

enum class Action : std::uint8_t { alloc = 1, free = 2 };

// Counts allocator events of any thread. Adding an event takes no lock and allocates nothing.
class EventLog {
 public:
  void add(Action action, std::int64_t bytes) noexcept;

  // Live bytes as requested: what was allocated minus what was freed since the log began.
  std::int64_t live_bytes() const noexcept { return live_bytes_.load(std::memory_order_relaxed); }
  std::int64_t live_count() const noexcept { return live_count_.load(std::memory_order_relaxed); }
  // The most live bytes since begin_step(); exact where one thread allocates at a time.
  std::int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  std::int64_t events() const noexcept { return events_.load(std::memory_order_relaxed); }

  // Folds the events since the last call into the hash: order-free among them, ordered across
  // calls. (LibTorch frees in the order of pointer-keyed maps, which address randomisation moves.)
  void end_step() noexcept;
  void begin_step() noexcept;
  std::uint64_t hash() const noexcept { return hash_; }

 private:
  std::atomic<std::int64_t> live_bytes_{0};
  std::atomic<std::int64_t> live_count_{0};
  std::atomic<std::int64_t> peak_{0};
  std::atomic<std::int64_t> events_{0};
  std::atomic<std::uint64_t> step_sum_{0};
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;  // FNV-1a's offset basis
};

// The log that the allocator of the run's device feeds. One run a process, so one log.
EventLog& event_log();

}  // namespace leaklab

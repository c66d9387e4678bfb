// What the engine and the probes share within the process of one run.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "leaklab/event_log.h"
#include "leaklab/history.h"
#include "leaklab/probe.h"

namespace leaklab {

// Adds the channels that follow from the event log: requested, live_allocations, peak.
void sample_events(Sample& into);

// Every allocation and free with the operators that were running. Only where sites or a snapshot
// were asked for.
class SiteTable {
 public:
  void on_alloc(const void* address, std::int64_t bytes);
  void on_free(const void* address);
  // A boundary between steps, at which nothing else allocates.
  void mark_boundary();
  // Allocations made from now on count as survivors; what lived before does not.
  void begin_judging();
  // Survivors, most bytes first, then by name.
  std::vector<Site> survivors() const;
  const History& history() const { return history_; }

 private:
  struct Block {
    std::uint32_t allocation;
    std::uint32_t stack;
    std::int64_t bytes;
  };
  mutable std::mutex mutex_;
  std::unordered_map<const void*, Block> live_;
  std::map<std::vector<std::string>, std::uint32_t> stacks_;  // operators, outermost first
  std::uint32_t allocations_ = 0;
  std::uint32_t first_judged_ = 0;
  History history_;
};

namespace detail {
extern constinit std::atomic<SiteTable*> table;
}  // namespace detail

// The table of this run, or nullptr where no sites were asked for. Asked at every event.
inline SiteTable* site_table() { return detail::table.load(std::memory_order_acquire); }
// Names operators from now on and creates the table.
void record_sites();

}  // namespace leaklab

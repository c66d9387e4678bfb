// What the engine and the probes share within the process of one run.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "leaklab/event_log.h"
#include "leaklab/probe.h"

namespace leaklab {

// Adds the channels that follow from the event log: requested, live_allocations, peak.
void sample_events(Sample& into);

// Live allocations with the operators that made them. Only where sites were asked for.
class SiteTable {
 public:
  void on_alloc(const void* address, std::int64_t bytes);
  void on_free(const void* address);
  // Allocations made from now on count; what lived before does not.
  void begin_judging();
  // Survivors, most bytes first, then by name.
  std::vector<Site> survivors() const;

 private:
  struct Block {
    std::string where;
    std::int64_t bytes;
  };
  mutable std::mutex mutex_;
  std::unordered_map<const void*, Block> live_;
};

namespace detail {
extern constinit std::atomic<SiteTable*> table;
}  // namespace detail

// The table of this run, or nullptr where no sites were asked for. Asked at every event.
inline SiteTable* site_table() { return detail::table.load(std::memory_order_acquire); }
// Names operators from now on and creates the table.
void record_sites();

}  // namespace leaklab

#include "context.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <map>

namespace leaklab {
namespace {

// Operators on the way on this thread, outermost first.
thread_local std::vector<std::string> operators;

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  operators.emplace_back(function.name());
  return nullptr;
}

void leave(const at::RecordFunction&, at::ObserverContext*) {
  if (!operators.empty()) operators.pop_back();
}

std::string where() {
  if (operators.empty()) return "outside any operator";
  // The outermost operator is what the user wrote, the innermost what allocated.
  if (operators.size() == 1) return operators.front();
  return operators.front() + " > " + operators.back();
}

}  // namespace

void sample_events(Sample& into) {
  const auto& log = event_log();
  into["requested"] = log.live_bytes();
  into["live_allocations"] = log.live_count();
  into["peak"] = log.peak();
}

void SiteTable::on_alloc(const void* address, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  live_.insert_or_assign(address, Block{where(), bytes});
}

void SiteTable::on_free(const void* address) {
  const std::lock_guard lock(mutex_);
  live_.erase(address);
}

void SiteTable::begin_judging() {
  const std::lock_guard lock(mutex_);
  live_.clear();
}

std::vector<Site> SiteTable::survivors() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Site> by_place;
  for (const auto& [address, block] : live_) {
    auto& site = by_place[block.where];
    site.where = block.where;
    site.bytes += block.bytes;
    ++site.count;
  }
  std::vector<Site> sites;
  for (auto& [place, site] : by_place) sites.push_back(std::move(site));
  std::ranges::stable_sort(sites, std::greater<>(), &Site::bytes);
  return sites;
}

constinit std::atomic<SiteTable*> detail::table{nullptr};

void record_sites() {
  at::addGlobalCallback(
      at::RecordFunctionCallback(&enter, &leave)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  // Allocators may still free when static objects are gone.
  detail::table.store(new SiteTable, std::memory_order_release);
}

}  // namespace leaklab

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

std::string where(const std::vector<History::Frame>& stack) {
  if (stack.empty()) return "outside any operator";
  // The outermost operator is what the user wrote, the innermost what allocated.
  if (stack.size() == 1) return stack.front().function;
  return stack.back().function + " > " + stack.front().function;
}

// As native frames of a snapshot, innermost first.
std::vector<History::Frame> frames_of(const std::vector<std::string>& outermost_first) {
  std::vector<History::Frame> frames;
  for (const auto& name : outermost_first) frames.insert(frames.begin(), {"??", name, 0});
  return frames;
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
  const auto next = static_cast<std::uint32_t>(history_.stacks.size());
  const auto [stack, fresh] = stacks_.try_emplace(operators, next);
  if (fresh) history_.stacks.push_back(frames_of(operators));
  live_.insert_or_assign(address, Block{allocations_, stack->second, bytes});
  history_.events.push_back({true, allocations_++, stack->second, bytes});
}

void SiteTable::on_free(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return;  // allocated before we looked
  history_.events.push_back({false, found->second.allocation, 0, found->second.bytes});
  live_.erase(found);
}

void SiteTable::mark_boundary() {
  const std::lock_guard lock(mutex_);
  history_.boundaries.push_back(history_.events.size());
}

void SiteTable::begin_judging() {
  const std::lock_guard lock(mutex_);
  first_judged_ = allocations_;
}

std::vector<Site> SiteTable::survivors() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Site> by_place;
  for (const auto& [address, block] : live_) {
    if (block.allocation < first_judged_) continue;
    const auto place = where(history_.stacks[block.stack]);
    auto& site = by_place[place];
    site.where = place;
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

#include "leaklab/growth.h"

namespace leaklab {
namespace {

// kMinBlockSize of c10/core/AllocatorConfig.h.
constexpr std::int64_t block = 512;

}  // namespace

Growth& Growth::tensor(std::int64_t bytes, std::int64_t count) {
  on("requested", bytes * count);
  on("peak", bytes * count);
  on("allocated", (bytes + block - 1) / block * block * count);
  return on("live_allocations", count);
}

Growth& Growth::nodes(std::int64_t count) { return on("graph_nodes", count); }

Growth& Growth::on(std::string_view channel, std::int64_t amount) {
  amounts_[std::string(channel)] += amount;
  return *this;
}

Growth& Growth::unpredicted(std::string_view channel) {
  unpredicted_.emplace(channel);
  return *this;
}

Growth& Growth::every(std::int64_t steps) {
  period_ = steps;
  return *this;
}

Growth& Growth::from(std::int64_t first) {
  first_ = first;
  return *this;
}

Growth& Growth::until(std::int64_t last) {
  last_ = last;
  return *this;
}

Growth& Growth::outlives_scope() {
  outlives_ = true;
  return *this;
}

std::int64_t Growth::per_period(std::string_view channel) const {
  const auto found = amounts_.find(channel);
  return found == amounts_.end() ? 0 : found->second;
}

Growth Growth::none() const { return Growth().every(period_); }

}  // namespace leaklab

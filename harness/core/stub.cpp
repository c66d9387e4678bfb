#include <nlohmann/json.hpp>
#include "leaklab/event_log.h"
#include "leaklab/file.h"
#include "leaklab/signature.h"
namespace leaklab {
EventLog& event_log() {
  static auto* l = new EventLog;
  return *l;
}
void EventLog::add(Action a, std::int64_t b) noexcept {
  if (a == Action::alloc) {
    live_bytes_ += b;
    live_count_++;
    if (live_bytes_ > peak_) peak_ = live_bytes_.load();
  } else {
    live_bytes_ -= b;
    live_count_--;
  }
  events_++;
  step_sum_ +=
      static_cast<std::uint64_t>(b) * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(a);
}
void EventLog::begin_step() noexcept { peak_ = live_bytes_.load(); }
void EventLog::end_step() noexcept {
  hash_ = (hash_ ^ step_sum_) * 1099511628211ULL;
  step_sum_ = 0;
}
Signature classify(std::span<const std::int64_t>, std::span<const std::int64_t>,
                   const SignatureOptions&) {
  return {};
}
nlohmann::json to_json(const Signature&) { return {}; }
std::string to_text(const nlohmann::json& d) { return d.dump(); }
}  // namespace leaklab

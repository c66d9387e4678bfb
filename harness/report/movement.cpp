#include "movement.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "leaklab/judging.h"
#include "style.h"

namespace leaklab {
namespace {

// Floating-point gauges are kept in thousandths.
std::string number(std::int64_t value, const std::string& unit) {
  return unit == "1/1000" ? fmt::format("{:.3f}", static_cast<double>(value) / 1000)
                          : grouped(value);
}

std::string amount(std::int64_t value, const std::string& unit) {
  const bool is_plain = unit.empty() || unit == "count" || unit == "1/1000";
  return fmt::format("{}{}{}", value > 0 ? "+" : "", number(value, unit),
                     is_plain ? "" : " " + unit);
}

}  // namespace

std::optional<Movement> movement_of(const Recording& recording, const Growth& growth) {
  std::vector<std::string> candidates{"requested"};
  for (const auto& [name, amount] : growth.amounts()) {
    if (amount != 0) candidates.push_back(name);
  }
  for (const auto& [name, series] : recording.channels) {
    if (!growth.predicts(name)) candidates.push_back(name);
  }
  for (const auto& [name, series] : recording.channels) {
    if (series.exact) candidates.push_back(name);
  }
  for (const auto& name : candidates) {
    const auto found = recording.channels.find(name);
    if (found == recording.channels.end()) continue;
    const auto& series = found->second;
    if (!series.absent.empty() || !series.trusted || series.values.empty()) continue;
    const auto signature = signature_of(recording, name);
    if (signature.shape != Shape::flat) return Movement{name, series.unit, signature};
  }
  return std::nullopt;
}

std::string to_text(const Movement& movement) {
  const auto& signature = movement.signature;
  const auto gained = amount(signature.growth, movement.unit);
  switch (signature.shape) {
    case Shape::flat:
      return "0";
    case Shape::linear:
      return gained;
    case Shape::stairs:
      return fmt::format("{} per {}", gained, signature.period);
    case Shape::sawtooth:
      return "sawtooth";
    default:
      return fmt::format("{} {}", to_string(signature.shape), gained);
  }
}

std::string predicted_text(const Growth& growth, const Recording& recording,
                           const std::optional<Movement>& movement) {
  const auto channel = movement ? movement->channel : "requested";
  if (!growth.predicts(channel)) return "stored";
  const auto amount = growth.per_period(channel);
  const auto unit = movement ? movement->unit : "";
  const auto shape = movement ? movement->signature.shape : Shape::linear;
  if (amount == 0) return "0";
  if (shape == Shape::linear || shape == Shape::stairs) {
    const auto period = movement ? movement->signature.period : 1;
    return number(amount, unit) +
           (growth.period() == period ? "" : fmt::format(" per {}", growth.period()));
  }
  const auto first = std::max(recording.warmup, growth.first());
  const auto last = std::min(recording.steps, growth.last());
  return number(amount * (std::max(first, last) - first) / growth.period(), unit);
}

}  // namespace leaklab

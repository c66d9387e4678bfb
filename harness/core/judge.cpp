// The outcome of one run: a pure function of what was expected and what was measured.
#include <fmt/format.h>

#include <algorithm>

#include "leaklab/judging.h"
#include "leaklab/suite.h"

namespace leaklab {
namespace {

using Direction = Difference::Direction;

// Of the channels that the leaky twin should move, whether any moved at all.
bool leaked(const Growth& growth, const Recording& recording) {
  bool expected_any = false;
  for (const auto& [name, amount] : growth.amounts()) {
    const auto found = recording.channels.find(name);
    if (amount == 0 || found == recording.channels.end() || !found->second.absent.empty()) continue;
    expected_any = true;
    if (growth_of(recording, found->second) != 0) return true;
  }
  return !expected_any;
}

// Where a baseline was measured, if that was not here, or "".
std::string elsewhere(const Scenario& scenario, const Baseline& baseline,
                      const Recording& recording) {
  const auto& here = recording.environment;
  const auto& there = baseline.environment;
  if (auto text = here.difference(there); !text.empty()) return text;
  const bool ranks = std::ranges::find(scenario.needs, "nccl") != scenario.needs.end();
  if (!ranks || here.devices == there.devices) return {};
  return fmt::format("there is one rank a GPU, and GPUs are {} here, {} there", here.devices,
                     there.devices);
}

// Why a baseline that exists can't be compared with this run, or "".
std::string incomparable(const std::string& away, const Baseline& baseline, const RunConfig& config,
                         const Recording& recording) {
  if (!away.empty()) return fmt::format("the baseline was measured elsewhere: {}", away);
  if (baseline.params != recording.params || baseline.steps != config.steps ||
      baseline.warmup != config.warmup) {
    return "the baseline was measured with other parameters or steps";
  }
  if (!baseline.twins.contains(recording.twin)) {
    return fmt::format("the baseline lacks the {} twin", to_string(recording.twin));
  }
  return {};
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
      return "PASS";
    case Outcome::regression:
      return "REGRESSION";
    case Outcome::win:
      return "WIN";
    case Outcome::missing:
      return "MISSING";
    case Outcome::ambiguous:
      return "AMBIGUOUS";
    case Outcome::invalid:
      return "INVALID";
    case Outcome::skipped:
      return "SKIPPED";
    case Outcome::crashed:
      return "CRASHED";
    case Outcome::timeout:
      return "TIMEOUT";
    case Outcome::oom:
      return "OOM";
  }
  return "";
}

bool is_failure(Outcome outcome) {
  switch (outcome) {
    case Outcome::pass:
    case Outcome::missing:
    case Outcome::ambiguous:
    case Outcome::skipped:
      return false;
    case Outcome::regression:
    case Outcome::win:
    case Outcome::invalid:
    case Outcome::crashed:
    case Outcome::timeout:
    case Outcome::oom:
      return true;
  }
  return true;
}

CheckResult judge(const Scenario& scenario, const RunConfig& config, const Recording& recording,
                  const std::optional<Baseline>& baseline) {
  CheckResult result;
  result.id = scenario.id;
  result.twin = config.twin;
  result.recording = recording;
  if (!recording.skipped.empty()) {
    result.outcome = Outcome::skipped;
    result.reason = recording.skipped;
    return result;
  }
  const auto growth = scenario.growth(config.setting, config.twin);
  result.differences = compare(growth, recording);
  const auto away = baseline ? elsewhere(scenario, *baseline, recording) : std::string();
  std::string unjudged;
  if (!baseline) {
    unjudged = fmt::format("there is no baseline for {} yet; `leaklab record {}` makes one",
                           recording.environment.folder(), scenario.id);
  } else {
    unjudged = incomparable(away, *baseline, config, recording);
  }
  if (unjudged.empty()) {
    const auto stored = compare(baseline->twins.at(recording.twin), recording);
    result.differences.insert(result.differences.end(), stored.begin(), stored.end());
  }
  if (config.twin == Twin::leaky && !leaked(growth, recording)) {
    result.outcome = Outcome::invalid;
    result.reason = "the leaky twin did not leak: " + (result.differences.empty()
                                                           ? std::string("no channel moved")
                                                           : to_string(result.differences.front()));
  } else if (!result.differences.empty()) {
    const bool only_less = std::ranges::all_of(result.differences, [](const auto& difference) {
      return difference.direction == Direction::less;
    });
    result.outcome = only_less ? Outcome::win : Outcome::regression;
    result.reason = to_string(result.differences.front());
  } else if (!unjudged.empty()) {
    result.outcome = away.empty() ? Outcome::missing : Outcome::ambiguous;
    result.reason = unjudged + "; the scenario's own expectation was met";
  }
  return result;
}

}  // namespace leaklab

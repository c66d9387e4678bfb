#include "leaklab/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "leaklab/error.h"
#include "leaklab/taxonomy.h"
#include "nearest.h"

namespace leaklab {
namespace {

std::vector<Scenario>& registered() {
  static std::vector<Scenario> all;
  return all;
}

bool is_need(std::string_view word) {
  constexpr std::string_view gpus = "gpus:";
  if (!word.starts_with(gpus)) return word == "cuda" || word == "pinned" || word == "nccl";
  word.remove_prefix(gpus.size());
  return !word.empty() && word.size() <= 3 &&
         word.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::leak:
      return "leak";
    case Kind::lookalike:
      return "lookalike";
    case Kind::control:
      return "control";
  }
  return "";
}

std::string_view to_string(Twin twin) { return twin == Twin::leaky ? "leaky" : "fixed"; }

Kind Scenario::kind() const {
  if (kind_override) return *kind_override;
  if (taxonomy.starts_with('N')) return Kind::lookalike;
  if (taxonomy.starts_with('C')) return Kind::control;
  return Kind::leak;
}

std::vector<Twin> Scenario::twins() const {
  const bool planted = kind() == Kind::control && expect;
  if (kind() == Kind::leak || planted) return {Twin::fixed, Twin::leaky};
  return {Twin::fixed};
}

bool Scenario::needs_cuda() const {
  return std::ranges::any_of(needs,
                             [](const auto& need) { return need == "cuda" || need == "pinned"; });
}

Growth Scenario::growth(const Setting& setting, Twin twin) const {
  if (!expect) return {};
  const Growth growth = expect(setting);
  // A lookalike's expectation describes its only twin: it may fill a cache up to its bound.
  return twin == Twin::leaky || kind() == Kind::lookalike ? growth : growth.none();
}

Registration::Registration(Scenario scenario) {
  auto& all = registered();
  const auto place = std::ranges::upper_bound(all, scenario.id, {}, &Scenario::id);
  all.insert(place, std::move(scenario));
}

const std::vector<Scenario>& scenarios() { return registered(); }

const Scenario& find_scenario(std::string_view id) {
  const auto& all = scenarios();
  const auto found = std::ranges::find(all, id, &Scenario::id);
  if (found != all.end()) return *found;
  std::vector<std::string_view> names;
  for (const auto& scenario : all) names.push_back(scenario.id);
  throw UsageError(fmt::format("there is no scenario '{}'{}; `leaklab list` shows all", id,
                               nearest_names(id, names)));
}

std::vector<std::string> registry_faults() {
  std::vector<std::string> faults;
  std::map<std::string_view, std::string_view> seen;
  for (const auto& scenario : scenarios()) {
    const auto fault = [&](std::string_view what) {
      faults.push_back(fmt::format("{}: scenario '{}' {}", scenario.file, scenario.id, what));
    };
    const auto [first, is_new] = seen.emplace(scenario.id, scenario.file);
    if (!is_new) fault(fmt::format("has an id that {} has already", first->second));
    if (const auto stem = std::filesystem::path(scenario.file).stem().string();
        stem != scenario.id) {
      fault(fmt::format("must be in a file named {}.cpp", scenario.id));
    }
    for (const auto& need : scenario.needs) {
      if (!is_need(need)) {
        fault(fmt::format("needs '{}'; what can be needed is cuda, pinned, nccl or gpus:N", need));
      }
    }
    if (scenario.summary.empty()) fault("has no summary: one sentence of cause");
    if (!find_class(scenario.taxonomy)) {
      fault(fmt::format("has the unknown class '{}'", scenario.taxonomy));
    }
    if (scenario.kind() == Kind::leak && scenario.fix.empty()) {
      fault("is a leak with no fix: one sentence on what the user changes");
    }
    if (scenario.kind() == Kind::leak && !scenario.expect) {
      fault("is a leak with no expectation: what its leaky twin gains per step");
    }
    if (scenario.warmup < 1 || scenario.steps < scenario.warmup + 3) {
      fault("needs at least one step of warm-up and three steps after it");
    }
    for (const auto& param : scenario.params) {
      if (param.value < param.min || param.value > param.max) {
        fault(fmt::format("has a default outside the range of its parameter '{}'", param.name));
      }
    }
  }
  return faults;
}

}  // namespace leaklab

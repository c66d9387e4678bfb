#include "leaklab/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "leaklab/error.h"
#include "leaklab/judging.h"

namespace leaklab {
namespace {

constexpr std::array outcomes{
    Outcome::pass,    Outcome::regression, Outcome::win,     Outcome::missing, Outcome::ambiguous,
    Outcome::invalid, Outcome::skipped,    Outcome::crashed, Outcome::timeout, Outcome::oom};

nlohmann::json to_json(const CheckResult& result) {
  nlohmann::json json{{"id", result.id},
                      {"twin", to_string(result.twin)},
                      {"outcome", to_string(result.outcome)},
                      {"reason", result.reason},
                      {"repeat", result.repeat},
                      {"differences", nlohmann::json::array()},
                      {"sites", nlohmann::json::array()}};
  for (const auto& difference : result.differences) {
    json["differences"].push_back(leaklab::to_json(difference));
  }
  for (const auto& site : result.sites) {
    json["sites"].push_back({{"where", site.where}, {"bytes", site.bytes}, {"count", site.count}});
  }
  if (!result.log.empty()) json["log"] = result.log;
  const auto& recording = result.recording;
  if (recording.steps == 0 || !recording.skipped.empty()) return json;
  json["event_hash"] = hash_text(recording.event_hash);
  json["grew"] = nlohmann::json::object();
  for (const auto& [name, series] : recording.channels) {
    if (!series.exact || !series.absent.empty()) continue;
    const auto signature = signature_of(recording, name);
    if (signature.shape != Shape::flat) json["grew"][name] = leaklab::to_json(signature);
  }
  return json;
}

std::string unusable(const std::string& backend, const ChildResult& child) {
  if (child.ending == Ending::failed) return child.detail;
  return fmt::format("the environment {} can't be used: {}{}", backend, child.detail,
                     child.log.empty() ? "" : "; it said: " + child.log);
}

}  // namespace

Environment resolve_environment(const std::string& env) {
  if (env != "auto" && env != "cpu" && env != "cuda") {
    throw UsageError(fmt::format("there is no environment '{}'; use auto, cpu or cuda", env));
  }
  if (engine() == nullptr) {
    throw UnavailableError(
        "this build has no LibTorch, so it can't run scenarios; ci/check installs a LibTorch and "
        "builds with it");
  }
  std::string reason;
  for (const std::string backend : {"cuda", "cpu"}) {
    if (env != "auto" && env != backend) continue;
    const Job job{[&backend] { return leaklab::to_json(engine()->describe(backend)).dump(); }};
    const auto child = run_isolated({job}, {}).front();
    if (child.ending == Ending::finished) {
      return environment_from_json(nlohmann::json::parse(child.payload), backend);
    }
    reason = unusable(backend, child);
  }
  throw UnavailableError(reason);
}

std::string why_skipped(const Scenario& scenario, const Environment& environment) {
  const bool on_cuda = environment.backend == "cuda";
  for (const auto& need : scenario.needs) {
    if (need == "cuda") {
      if (!on_cuda) return "needs CUDA";
    } else if (need == "pinned") {
      if (!on_cuda) return "needs page-locked host memory, so CUDA";
    } else if (need.starts_with("gpus:")) {
      std::int64_t gpus = 0;
      std::from_chars(need.data() + 5, need.data() + need.size(), gpus);
      if (!on_cuda || environment.devices < gpus) {
        return fmt::format("needs {} GPUs, there are {}", gpus, on_cuda ? environment.devices : 0);
      }
    }
  }
  return {};
}

Setting setting_of(const Scenario& scenario, const Environment& environment,
                   const std::map<std::string, std::int64_t>& params) {
  Setting setting(scenario.id, scenario.params, params);
  const bool on_cuda = environment.backend == "cuda";
  setting.place(on_cuda, on_cuda ? std::max<std::int64_t>(1, environment.devices) : 2);
  return setting;
}

RunConfig make_config(const Scenario& scenario, const Environment& environment, Twin twin,
                      const SuiteOptions& options) {
  RunConfig config;
  config.twin = twin;
  config.setting = setting_of(scenario, environment, options.params);
  config.steps = options.steps == 0 ? scenario.steps : options.steps;
  config.warmup = scenario.warmup;
  config.backend = environment.backend;
  if (config.steps < config.warmup + 3) {
    throw UsageError(
        fmt::format("{} too few for scenario '{}', which warms up for {}: ask for {} or more",
                    config.steps == 1 ? "1 step is" : fmt::format("{} steps are", config.steps),
                    scenario.id, config.warmup, config.warmup + 3));
  }
  return config;
}

std::map<Outcome, std::int64_t> CheckReport::counts() const {
  std::map<Outcome, std::int64_t> counts;
  for (const auto& result : results) ++counts[result.outcome];
  return counts;
}

Exit CheckReport::exit_code(bool strict) const {
  const auto fails = [strict](const CheckResult& result) {
    const bool unjudged =
        result.outcome == Outcome::missing || result.outcome == Outcome::ambiguous;
    return is_failure(result.outcome) || (strict && unjudged);
  };
  if (std::ranges::any_of(results, fails)) return Exit::finding;
  const bool nothing_ran = std::ranges::all_of(
      results, [](const auto& result) { return result.outcome == Outcome::skipped; });
  return nothing_ran ? Exit::nothing_ran : Exit::ok;
}

nlohmann::json to_json(const CheckReport& report) {
  nlohmann::json counts = nlohmann::json::object();
  const auto present = report.counts();
  for (const auto outcome : outcomes) {
    const auto found = present.find(outcome);
    counts[std::string(to_string(outcome))] = found == present.end() ? 0 : found->second;
  }
  nlohmann::json results = nlohmann::json::array();
  for (const auto& result : report.results) results.push_back(to_json(result));
  return {{"environment", to_json(report.environment)},
          {"controls", report.controls},
          {"counts", counts},
          {"results", results}};
}

}  // namespace leaklab

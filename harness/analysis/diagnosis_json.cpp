#include <cmath>
#include <nlohmann/json.hpp>

#include "leaklab/diagnosis.h"

namespace leaklab {
namespace {

nlohmann::json site_json(const CodeSite& site) {
  return {{"file", site.file}, {"line", site.line}, {"function", site.function}};
}

nlohmann::json sites_json(const std::vector<std::pair<CodeSite, std::int64_t>>& sites) {
  auto list = nlohmann::json::array();
  for (const auto& [site, bytes] : sites) {
    list.push_back({{"site", site_json(site)}, {"bytes", bytes}});
  }
  return list;
}

// Whole bytes as an integer, else to a thousandth.
nlohmann::json rate_json(double bytes) {
  const auto thousandths = std::llround(bytes * 1000);
  if (thousandths % 1000 == 0) return thousandths / 1000;
  return static_cast<double>(thousandths) / 1000;
}

// To a hundredth: no one is surer of it.
double share_json(double share) { return std::round(share * 100) / 100; }

nlohmann::json step_json(std::int64_t step) {
  if (step < 0) return nullptr;
  return step;
}

nlohmann::json ages_json(const Ages& ages) {
  return {{"oldest", step_json(ages.oldest)},
          {"median", step_json(ages.median)},
          {"before_trace", ages.before_trace}};
}

nlohmann::json lookalike_json(const Lookalike& each) {
  return {{"class", each.taxonomy},       {"channel", each.channel}, {"device", each.device},
          {"site", site_json(each.site)}, {"bytes", each.bytes},     {"reason", each.reason}};
}

}  // namespace

nlohmann::json to_json(const Diagnosis& diagnosis) {
  auto findings = nlohmann::json::array();
  for (const auto& each : diagnosis.findings) {
    findings.push_back(
        {{"class", each.taxonomy},
         {"channel", each.channel},
         {"site", site_json(each.site)},
         {"device", each.device},
         {"bytes_per_step",
          each.bytes_per_step ? rate_json(*each.bytes_per_step) : nlohmann::json()},
         {"block_bytes_per_step",
          each.bytes_per_step ? rate_json(each.block_bytes_per_step) : nlohmann::json()},
         {"live_bytes", each.live_bytes},
         {"live_allocations", each.live_allocations},
         {"age_steps", ages_json(each.ages)},
         {"confidence", share_json(each.confidence)},
         {"reason", each.reason},
         {"fix", each.fix},
         {"onset_step", step_json(each.onset_step)},
         {"period_steps", each.period},
         {"frames", each.frames}});
  }
  auto lookalikes = nlohmann::json::array();
  for (const auto* list : {&diagnosis.lookalikes, &diagnosis.device_lookalikes}) {
    for (const auto& each : *list) lookalikes.push_back(lookalike_json(each));
  }
  auto rates = nlohmann::json::array();
  for (const auto& each : diagnosis.rates) {
    rates.push_back({{"device", each.device},
                     {"bytes_per_step", rate_json(each.bytes_per_step)},
                     {"block_bytes_per_step", rate_json(each.block_bytes_per_step)},
                     {"needed_bytes", each.needed},
                     {"onset_step", step_json(each.onset_step)}});
  }
  auto survivors = nlohmann::json::array();
  for (const auto& each : diagnosis.survivors) {
    survivors.push_back({{"site", site_json(each.site)},
                         {"bytes", each.bytes},
                         {"allocations", each.allocations},
                         {"age_steps", ages_json(each.ages)}});
  }
  nlohmann::json oom;
  if (diagnosis.oom) {
    const auto& each = *diagnosis.oom;
    oom = {{"device", each.device},
           {"request", each.request},
           {"device_free", each.device_free},
           {"live", each.live},
           {"reserved", each.reserved},
           {"cached", each.cached},
           {"largest_free", each.largest_free},
           {"step", step_json(each.step)},
           {"count", each.count},
           {"steps_after", each.steps_after},
           {"reason", each.reason},
           {"sites", sites_json(each.live_sites)}};
  }
  const auto& steps = diagnosis.steps;
  return {{"verdict", to_string(diagnosis.verdict)},
          {"device", diagnosis.device},
          {"judged_devices", diagnosis.judged},
          {"unjudged_devices", diagnosis.unjudged},
          {"bytes_per_step", diagnosis.verdict == Verdict::undecided
                                 ? nlohmann::json()
                                 : rate_json(diagnosis.bytes_per_step)},
          {"onset_step", step_json(diagnosis.onset_step)},
          {"period_steps", diagnosis.period},
          {"steps",
           {{"count", steps.count},
            {"seen", steps.seen},
            {"source", steps.source},
            {"confidence", share_json(steps.confidence)},
            {"asked", steps.asked > 0 ? nlohmann::json(steps.asked) : nlohmann::json()},
            {"kinds", steps.kinds},
            {"live_after", steps.live_after},
            {"live_counts", steps.live_counts},
            {"leaked_after", steps.leaked_after}}},
          {"rates", std::move(rates)},
          {"findings", std::move(findings)},
          {"lookalikes", std::move(lookalikes)},
          {"oom", std::move(oom)},
          {"live_bytes", diagnosis.live_bytes},
          {"peak_bytes", diagnosis.peak_bytes},
          {"reserved_bytes", diagnosis.cache.reserved},
          {"cached_bytes", diagnosis.cache.bytes},
          {"releasable_bytes", diagnosis.cache.releasable},
          {"free_stretches", diagnosis.cache.stretches},
          {"largest_free_bytes", diagnosis.cache.largest},
          {"survivors", std::move(survivors)},
          {"peak_sites", sites_json(diagnosis.peak_sites)},
          {"limits", diagnosis.limits},
          {"summary", diagnosis.summary}};
}

}  // namespace leaklab

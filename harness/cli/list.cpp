#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "leaklab/channel.h"
#include "leaklab/engine.h"
#include "options.h"

namespace leaklab {
namespace {

struct Options {
  std::string kind;
  std::string taxonomy;
  std::string json;
};

nlohmann::json to_json(const Scenario& scenario) {
  nlohmann::json params = nlohmann::json::array();
  for (const auto& param : scenario.params) {
    params.push_back({{"name", param.name},
                      {"default", param.value},
                      {"min", param.min},
                      {"max", param.max},
                      {"help", param.help}});
  }
  return {{"id", scenario.id},          {"summary", scenario.summary},
          {"class", scenario.taxonomy}, {"kind", to_string(scenario.kind())},
          {"needs", scenario.needs},    {"reports", scenario.reports},
          {"fix", scenario.fix},        {"file", relative_file(scenario)},
          {"params", std::move(params)}};
}

std::string text_of_need(const std::string& need) {
  if (need == "nccl") return "nccl on cuda";  // the CPU has an in-process backend
  if (need == "pinned") return "page-locked memory, so cuda";
  return need.starts_with("gpus:") ? need.substr(5) + " GPUs" : need;
}

std::string to_text(const Scenario& scenario, const Style& style) {
  auto text = fmt::format("{}  {} {}", tinted(scenario.id, Tint::bold, style), scenario.taxonomy,
                          to_string(scenario.kind()));
  for (const auto& need : scenario.needs) text += ", needs " + text_of_need(need);
  return text + '\n' + wrapped(scenario.summary, 4, style) + '\n';
}

Exit list(const Options& options) {
  if (!options.taxonomy.empty()) known_class(options.taxonomy);
  const auto style = style_of(stdout);
  nlohmann::json listed = nlohmann::json::array();
  std::string text;
  for (const auto& scenario : scenarios()) {
    if (!options.kind.empty() && options.kind != to_string(scenario.kind())) continue;
    if (!options.taxonomy.empty() && options.taxonomy != scenario.taxonomy) continue;
    listed.push_back(to_json(scenario));
    text += to_text(scenario, style);
  }
  text +=
      fmt::format("{}{}{}\n", listed.empty() ? "" : "\n", counted(std::ssize(listed), "scenario"),
                  engine() == nullptr ? ": this build has no LibTorch" : "");
  nlohmann::json known_channels = nlohmann::json::array();
  for (const auto& channel : channels()) {
    known_channels.push_back({{"name", channel.name},
                              {"unit", channel.unit},
                              {"exact", channel.exact},
                              {"meaning", channel.meaning}});
  }
  print(options.json, {{"scenarios", std::move(listed)}, {"channels", std::move(known_channels)}},
        text);
  return Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("--kind", options->kind, "only leak, lookalike or control")
      ->type_name("KIND")
      ->check(CLI::IsMember({"leak", "lookalike", "control"}));
  app.add_option("--class", options->taxonomy, "only that class, such as L20")->type_name("CLASS");
  add_json(app, options->json);
  return [options] { return list(*options); };
}

const CommandRegistration registration{{"list",
                                        "Names the scenarios of this program.",
                                        "  leaklab list --kind lookalike\n"
                                        "  leaklab list --class L20\n"
                                        "  leaklab list --json -",
                                        {{Exit::ok, "told"}},
                                        add}};

}  // namespace
}  // namespace leaklab

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "core/nearest.h"
#include "leaklab/channel.h"
#include "leaklab/file.h"
#include "options.h"
#include "report/progress.h"
#include "report/run_text.h"

namespace leaklab {
namespace {

struct Options {
  std::string id;
  std::string twin;
  std::string env = "auto";
  std::int64_t steps = 0;
  std::int64_t time_limit = default_time_limit;
  std::vector<std::string> params;
  std::vector<std::string> channels;
  bool sites = false;
  std::string snapshot;
  std::string json;
};

std::map<std::string, std::int64_t> parse_params(const std::vector<std::string>& words) {
  std::map<std::string, std::int64_t> params;
  for (const auto& word : words) {
    const auto equals = word.find('=');
    const auto* end = word.data() + word.size();
    std::int64_t value = 0;
    if (equals != std::string::npos && equals != 0) {
      const auto [stop, error] = std::from_chars(word.data() + equals + 1, end, value);
      if (error == std::errc() && stop == end) {
        params[word.substr(0, equals)] = value;
        continue;
      }
    }
    throw UsageError(
        fmt::format("--param '{}' is not NAME=INTEGER, such as --param batch=32", word));
  }
  return params;
}

Twin chosen_twin(const Scenario& scenario, const std::string& word) {
  const auto twins = scenario.twins();
  const bool has_leaky = std::ranges::find(twins, Twin::leaky) != twins.end();
  if (word == "leaky" && !has_leaky) {
    throw UsageError(fmt::format("scenario '{}' is a {} and has no leaky twin; leave --twin out",
                                 scenario.id, to_string(scenario.kind())));
  }
  return has_leaky && word != "fixed" ? Twin::leaky : Twin::fixed;
}

[[noreturn]] void unknown_channel(const std::string& name,
                                  const std::vector<std::string_view>& known) {
  throw UsageError(fmt::format("there is no channel '{}'; there are: {}{}", name,
                               fmt::join(known, ", "), nearest_names(name, known)));
}

// Gauges are known once the scenario has run.
void expect_known_channels(const std::vector<std::string>& names) {
  std::vector<std::string_view> known;
  for (const auto& channel : channels()) known.push_back(channel.name);
  for (const auto& name : names) {
    if (!name.starts_with(gauge_prefix) && find_channel(name) == nullptr) {
      unknown_channel(name, known);
    }
  }
}

void expect_recorded_channels(const std::vector<std::string>& names, const Recording& recording) {
  std::vector<std::string_view> known;
  for (const auto& [name, series] : recording.channels) known.push_back(name);
  for (const auto& name : names) {
    if (!recording.channels.contains(name)) unknown_channel(name, known);
  }
}

std::string_view advice(Ending ending) {
  if (ending == Ending::oom) return "; free memory there or lower its parameters";
  return ending == Ending::timeout ? "; --time-limit raises it" : "";
}

Exit run(const Options& options) {
  SuiteOptions suite;
  suite.params = parse_params(options.params);
  suite.steps = options.steps;
  expect_known_channels(options.channels);
  if (engine() == nullptr) resolve_environment(options.env);  // throws, and says what to do
  const auto& scenario = find_scenario(options.id);
  const auto twin = chosen_twin(scenario, options.twin);
  make_config(scenario, {}, twin, suite);  // tells a wrong call before it touches the device
  const auto environment = resolve_environment(options.env);
  if (const auto reason = why_skipped(scenario, environment); !reason.empty()) {
    throw UnavailableError(fmt::format("scenario '{}' {}", scenario.id, reason));
  }
  auto config = make_config(scenario, environment, twin, suite);
  config.sites = options.sites;
  if (!options.snapshot.empty()) {
    keep({options.snapshot}, "--json", options.json);
    config.snapshot = std::filesystem::absolute(options.snapshot);
    // Says at once that it can't be written; nothing is left of it.
    const FileWriter writable(config.snapshot);
  }
  const auto child = [&] {
    Progress progress;
    progress.show(0, 1, scenario.id);
    return run_once(scenario, config, std::chrono::seconds(options.time_limit));
  }();
  if (child.ending != Ending::finished) {
    std::fputs(child.log.c_str(), stderr);
    if (child.error) throw Error(*child.error, child.detail);  // such as a snapshot on a full disk
    throw Error(Exit::finding, fmt::format("scenario '{}' ({}) did not finish: {}{}", scenario.id,
                                           to_string(twin), child.detail, advice(child.ending)));
  }
  const auto document = nlohmann::json::parse(child.payload);
  const auto recording = recording_from_json(document, "the run of " + scenario.id);
  if (!recording.skipped.empty()) {
    throw UnavailableError(
        fmt::format("scenario '{}' can't run here: {}", scenario.id, recording.skipped));
  }
  expect_recorded_channels(options.channels, recording);
  print(options.json, document, run_text(recording, options.channels, style_of(stdout)));
  return Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("ID", options->id, "the scenario")->required();
  app.add_option("--twin", options->twin, "leaky or fixed; default: leaky where there is one")
      ->type_name("TWIN")
      ->check(CLI::IsMember({"leaky", "fixed"}));
  add_number(app, "--steps", options->steps, 1, 1'000'000, "steps, the warm-up included");
  add_env(app, options->env);
  app.add_option("--param", options->params, "another value of a parameter; may be repeated")
      ->type_name("NAME=INTEGER")
      ->expected(1)
      ->take_all();
  app.add_option("--channel", options->channels, "show only this channel; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  app.add_option(
         "--snapshot", options->snapshot,
         "write the allocator's events as a PyTorch memory snapshot, with a mark at each step")
      ->type_name("FILE");
  app.add_flag("--sites", options->sites, "tell which operators made what was never freed");
  add_time_limit(app, options->time_limit);
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"run",
     "Runs one twin of one scenario and shows how each channel moved.",
     "  leaklab run retained_graph_loss_list\n"
     "  leaklab run retained_graph_loss_list --twin fixed --env cpu\n"
     "  leaklab run retained_graph_loss_list --param batch=32 --steps 50 --sites\n"
     "  leaklab run retained_graph_loss_list --json - | jq .channels.requested.series",
     {{Exit::ok, "it ran, whatever it shows"},
      {Exit::finding, "it did not finish"},
      {Exit::nothing_ran, "it can't run here"}},
     add}};

}  // namespace
}  // namespace leaklab

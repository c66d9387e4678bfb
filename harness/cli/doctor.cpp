#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/sites.h"
#include "command.h"
#include "leaklab/engine.h"
#include "options.h"

namespace leaklab {
namespace {

struct Options {
  std::string baselines;
  std::string json;
};

#if defined(__clang__)
constexpr auto compiler = "clang " __clang_version__;
#else
constexpr auto compiler = "g++ " __VERSION__;
#endif

nlohmann::json probes_of(const std::string& backend) {
  nlohmann::json probes = nlohmann::json::array();
  for (const auto& status : engine()->probe_statuses(backend)) {
    probes.push_back({{"probe", status.probe},
                      {"channels", status.channels},
                      {"unavailable", status.unavailable}});
  }
  return probes;
}

// {"usable", "reason", "environment", "probes", "folder"} of one backend, seen from a child.
nlohmann::json examine(const std::string& backend) {
  nlohmann::json found{{"usable", false},
                       {"reason", ""},
                       {"environment", nullptr},
                       {"probes", nlohmann::json::array()}};
  try {
    const auto environment = resolve_environment(backend);
    found["usable"] = true;
    found["environment"] = to_json(environment);
    found["folder"] = environment.folder();
  } catch (const UnavailableError& error) {
    found["reason"] = error.what();
    return found;
  }
  const auto child = run_isolated({{[&] { return probes_of(backend).dump(); }}}, {}).front();
  if (child.ending == Ending::finished) {
    found["probes"] = nlohmann::json::parse(child.payload);
  } else {
    found["usable"] = false;
    found["reason"] = child.detail;
  }
  return found;
}

// Folders of baselines with the number of scenarios in each.
nlohmann::json count_baselines(const std::filesystem::path& root) {
  nlohmann::json counts = nlohmann::json::object();
  std::error_code ignored;
  for (const auto& folder : std::filesystem::directory_iterator(root, ignored)) {
    if (!folder.is_directory()) continue;
    const auto is_baseline = [](const auto& file) { return file.path().extension() == ".json"; };
    counts[folder.path().filename().string()] =
        std::ranges::count_if(std::filesystem::directory_iterator(folder, ignored), is_baseline);
  }
  return counts;
}

std::string text_of(const std::string& backend, const nlohmann::json& found,
                    const nlohmann::json& counts, const Style& style) {
  auto text = fmt::format("\n{}: ", tinted(backend, Tint::bold, style));
  if (!found["usable"].get<bool>()) {
    return text + tinted("can't be used", Tint::warning, style) + '\n' +
           wrapped(found["reason"].get<std::string>(), 2, style) + '\n';
  }
  text += tinted("can be used", Tint::good, style) + '\n';
  for (const auto& [key, value] : found["environment"].items()) {
    const auto word = value.is_string() ? value.get<std::string>() : value.dump();
    if (!word.empty() && word != "0" && key != "backend")
      text += fmt::format("  {:<12} {}\n", key, word);
  }
  const auto folder = found["folder"].get<std::string>();
  const auto count = counts.value(folder, std::int64_t{0});
  text += fmt::format("  {:<12} {}\n", "baselines",
                      count > 0 ? fmt::format("{} in {}/", counted(count, "scenario"), folder)
                                : fmt::format("none in {}/; `leaklab record --env {}` makes them",
                                              folder, backend));
  for (const auto& probe : found["probes"]) {
    const auto reason = probe["unavailable"].get<std::string>();
    const auto channels = probe["channels"].get<std::vector<std::string>>();
    text += wrapped(fmt::format("probe {}: {}", probe["probe"].get<std::string>(),
                                reason.empty() ? fmt::format("{}", fmt::join(channels, ", "))
                                               : "absent: " + reason),
                    2, style) +
            '\n';
  }
  return text;
}

Exit run(const Options& options) {
  const auto root =
      options.baselines.empty() ? default_baselines() : std::filesystem::path(options.baselines);
  const auto style = style_of(stdout);
  nlohmann::json document{
      {"leaklab", LEAKLAB_VERSION},
      {"compiler", compiler},
      {"scenarios", scenarios().size()},
      {"baselines", {{"root", root.string()}, {"folders", count_baselines(root)}}},
      {"environments", nlohmann::json::object()}};
  auto text =
      fmt::format("leaklab {}, built with {}, {}\nbaselines in {}\n", LEAKLAB_VERSION, compiler,
                  counted(std::ssize(scenarios()), "scenario"), shown(root.string()));
  for (const std::string backend : {"cpu", "cuda"}) {
    auto found = examine(backend);
    text += text_of(backend, found, document["baselines"]["folders"], style);
    document["environments"][backend] = std::move(found);
  }
  print(options.json, document, text);
  return Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("--baselines", options->baselines, "folder of the baselines")
      ->type_name("DIR")
      ->envname("LEAKLAB_BASELINES");
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"doctor",
     "Says what each environment and probe can do on this machine, and why not.",
     "  leaklab doctor\n"
     "  leaklab doctor --json -",
     {{Exit::ok, "told"}},
     add}};

}  // namespace
}  // namespace leaklab

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "leaklab/file.h"
#include "options.h"

namespace leaklab {
namespace {

struct Options {
  std::string file;
  std::string program;
  std::vector<std::string> envs;
};

// CTest's notation of the resources of a test: one GPU, or as many as the scenario says.
std::string gpus_of(const Scenario& scenario) {
  for (const auto& need : scenario.needs) {
    if (need.starts_with("gpus:")) return fmt::format("{},gpus:1", need.substr(5));
  }
  return "gpus:1";
}

std::string test_of(const Scenario& scenario, const std::string& env, const std::string& program) {
  const bool control = scenario.kind() == Kind::control;
  std::vector<std::string> labels{scenario.taxonomy, env, std::string(to_string(scenario.kind()))};
  if (std::ranges::find(scenario.needs, "nccl") != scenario.needs.end())
    labels.emplace_back("nccl");
  const auto name = fmt::format("{}.{}", env, scenario.id);
  auto text = fmt::format("add_test([[{}]] [[{}]] check {} --env {} --no-controls)\n", name,
                          program, scenario.id, env);
  text += fmt::format("set_tests_properties([[{}]] PROPERTIES LABELS [[{}]] SKIP_RETURN_CODE {}\n",
                      name, fmt::join(labels, ";"), static_cast<int>(Exit::nothing_ran));
  // Above the time limit of a run, so that leaklab's own diagnosis of a hang is seen.
  text += fmt::format("  TIMEOUT 600 {} controls_{}",
                      control ? "FIXTURES_SETUP" : "FIXTURES_REQUIRED", env);
  if (env == "cuda") text += fmt::format(" RESOURCE_GROUPS [[{}]]", gpus_of(scenario));
  return text + ")\n";
}

Exit run(const Options& options) {
  std::string text = "# One test for each scenario and environment; written by the build.\n";
  for (const auto& env : options.envs) {
    for (const auto& scenario : scenarios()) text += test_of(scenario, env, options.program);
  }
  std::error_code ignored;
  const bool same =
      std::filesystem::exists(options.file, ignored) && read_file(options.file) == text;
  if (!same) write_file(options.file, text);
  return Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("FILE", options->file, "CMake file to write for CTest")->required();
  app.add_option("--program", options->program, "how a test calls leaklab")->required();
  app.add_option("--env", options->envs, "environments to test in");
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"ctest-file",
     "Writes one CTest test for each scenario.",
     "  leaklab ctest-file tests.cmake --program leaklab --env cpu",
     {{Exit::ok, "written"}},
     add,
     /*notes=*/"",
     /*hidden=*/true}};

}  // namespace
}  // namespace leaklab

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "options.h"
#include "report/check_text.h"
#include "report/progress.h"

namespace leaklab {
namespace {

struct Options {
  SelectOptions select;
  std::int64_t steps = 0;
  bool strict = false;
  bool no_controls = false;
  std::string json;
};

Exit run(const Options& options) {
  auto suite = options.select.suite();
  suite.controls = !options.no_controls;
  suite.steps = options.steps;
  const auto& folder = options.select.baselines;
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    throw UsageError(
        fmt::format("there is no folder of baselines at {}; `leaklab record "
                    "--baselines {}` makes one",
                    folder, shell_word(folder)));
  }
  if (engine() == nullptr) resolve_environment(suite.env);  // throws, and says what to do
  const auto selected = options.select.scenarios();
  Progress progress;
  suite.progress = [&](std::size_t done, std::size_t all, const std::string& running) {
    progress.show(done, all, running);
  };
  auto report = check(selected, suite);
  progress.clear();
  for (auto& result : report.results) {
    if (!folder.empty()) result.repeat += " --baselines " + shell_word(folder);
    if (options.select.time_limit != SelectOptions().time_limit) {
      result.repeat += fmt::format(" --time-limit {}", options.select.time_limit);
    }
  }
  print(options.json, to_json(report), check_text(report, style_of(stdout)));
  return report.exit_code(options.strict);
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->select.add_to(app);
  add_number(app, "--steps", options->steps, 1, 1'000'000,
             "steps of each run; default: the scenario's own");
  app.add_flag("--strict", options->strict, "fail where a baseline is missing or from elsewhere");
  app.add_flag("--no-controls", options->no_controls, "trust that the controls ran before");
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"check",
     "Runs scenarios and holds them to what they predict and to the stored baselines.",
     "  leaklab check\n"
     "  leaklab check --env cpu 'retained_graph_*'\n"
     "  leaklab check --strict --json result.json",
     {{Exit::ok, "all as predicted and as stored"},
      {Exit::finding, "a regression, or a run that failed"},
      {Exit::nothing_ran, "nothing could run here"}},
     add}};

}  // namespace
}  // namespace leaklab

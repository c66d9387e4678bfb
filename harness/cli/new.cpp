#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/sites.h"
#include "command.h"
#include "leaklab/file.h"
#include "leaklab/taxonomy.h"
#include "options.h"

namespace leaklab {
namespace {

struct Options {
  std::string id;
  std::string taxonomy;
  std::string dir;
  std::string json;
};

constexpr auto head = "#include \"leaklab/scenario.h\"\n\nusing namespace leaklab;";

constexpr auto leak = R"(// The tensor of every step stays in a vector that nothing empties.
{head}

{class_lines}
LEAKLAB_SCENARIO(
    {id}, .taxonomy = "{class}",
    .summary = "the tensor of every step is kept in a vector that nothing empties",
    // Public reports behind it, as "owner/repository#number" or an address.
    .reports = {{}}, .fix = "keep no tensor longer than the step that needs it",
    .params = {{{{"batch", 32, 1, 512, "rows of a tensor"}}, {{"width", 256, 1, 512, "columns"}}}},
    // What one step of the leaky twin adds, from the shapes alone: it must hold to the byte.
    .expect = [](const Setting& at) {{ return Growth().tensor(4 * at["batch"] * at["width"]); }}) {{
  const auto batch = run.param("batch");
  const auto width = run.param("width");
  // Locals are the scenario's state: leaving the body releases them.
  std::vector<torch::Tensor> kept;
  run.step([&](Step) {{
    const auto output = torch::ones({{batch, width}}, run.device());
    // All in which the twins may differ.
    if (run.fault()) kept.push_back(output);
  }});
}}
)";

constexpr auto lookalike =
    R"(// Each step replaces the tensor of the step before: one is alive, whatever the number of steps.
{head}

{class_lines}
LEAKLAB_SCENARIO(
    {id}, .taxonomy = "{class}",
    .summary = "each step replaces the tensor of the step before, so that one is alive",
    // Public reports in which it was taken for a leak, as "owner/repository#number" or an address.
    .reports = {{}},
    .params = {{{{"batch", 32, 1, 512, "rows of a tensor"}}, {{"width", 256, 1, 512, "columns"}}}}) {{
  const auto batch = run.param("batch");
  const auto width = run.param("width");
  // Nothing may grow after the warm-up: fill what is bounded before it ends.
  torch::Tensor latest;
  run.step([&](Step) {{ latest = torch::ones({{batch, width}}, run.device()); }});
}}
)";

// The class and what it is known by, as comment lines of at most 100 columns.
std::string comment(const TaxonomyClass& known) {
  auto lines = wrapped(fmt::format("{}, {}: {}.", known.id, known.name, known.signature), 0, 97);
  for (std::size_t at = 0; (at = lines.find('\n', at)) != std::string::npos;) {
    lines.insert(++at, "// ");
  }
  return "// " + lines;
}

Exit run(const Options& options) {
  const auto file = new_scenario_file(options.id, options.dir);
  const auto& known = known_class(options.taxonomy);
  const bool leaks = known.id.starts_with('L') || known.id == "C01";
  write_file(file, fmt::format(fmt::runtime(leaks ? leak : lookalike), fmt::arg("id", options.id),
                               fmt::arg("class", known.id), fmt::arg("head", head),
                               fmt::arg("class_lines", comment(known))));
  print(options.json, {{"file", file.string()}},
        fmt::format("wrote {}\nbuild it:  in the source folder, {}\nrun it:    leaklab run {}\n"
                    "The tests ask for the public reports behind it: fill in .reports.\n",
                    shown(file.string()), build_command, options.id));
  return Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("ID", options->id, "its name, which the file gets too")->required();
  app.add_option("--class", options->taxonomy, "its class: L01 to L45, or N01 to N19 of lookalikes")
      ->required()
      ->type_name("CLASS");
  app.add_option("--dir", options->dir,
                 "where to write it; default: scenarios/ of the source folder")
      ->type_name("DIR");
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"new",
     "Writes a scenario file that builds, runs and meets its own prediction.",
     "  leaklab new tensor_cache_by_shape --class L20\n"
     "  leaklab new allocator_cache_is_no_leak --class N01 --dir scenarios",
     {{Exit::ok, "written"}},
     add}};

}  // namespace
}  // namespace leaklab

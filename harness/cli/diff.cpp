#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "leaklab/diagnosis.h"
#include "options.h"
#include "report/diagnose_text.h"

namespace leaklab {
namespace {

struct Options {
  std::string before;
  std::string after;
  std::string json;
};

// Devices beside the first one. Without any, device 0 goes without saying.
bool uses_others(const Snapshot& snapshot) {
  return std::ranges::any_of(snapshot.segments,
                             [](const Segment& segment) { return segment.device != 0; });
}

Exit run(const Options& options) {
  keep({options.before, options.after}, "--json", options.json);
  const auto before = read_input(options.before);
  const auto after = read_input(options.after);
  const auto before_name = input_name(options.before);
  const auto after_name = input_name(options.after);
  const auto changes = diff(before, after);
  const auto warnings = incomparable(before, before_name, after, after_name);
  for (const auto& warning : warnings) complain(warning);
  auto list = nlohmann::json::array();
  for (const auto& each : changes) {
    list.push_back(
        {{"site",
          {{"file", each.site.file}, {"line", each.site.line}, {"function", each.site.function}}},
         {"device", each.device},
         {"bytes", each.bytes},
         {"allocations", each.allocations},
         {"live_bytes", each.live_bytes}});
  }
  print(options.json,
        {{"before", options.before},
         {"after", options.after},
         {"more", list},
         {"warnings", warnings}},
        diff_text(before_name, after_name, changes, uses_others(before) || uses_others(after),
                  style_of(stdout)));
  return Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("before", options->before, "a snapshot; '-': standard input")
      ->type_name("BEFORE")
      ->required();
  app.add_option("after", options->after, "a later snapshot of the same program")
      ->type_name("AFTER")
      ->required();
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"diff",
     "Shows by line what lives in the second of two snapshots only.",
     "  leaklab diff step10.pickle step20.pickle",
     {{Exit::ok, "compared, whatever lives in the second file"}},
     add,
     "Needs no history: frames of live blocks are enough. Warns of two files that are not of one "
     "program, not of the same devices, not both with frames, or not in the order of time."}};

}  // namespace
}  // namespace leaklab

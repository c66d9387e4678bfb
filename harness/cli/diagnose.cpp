#include <fmt/format.h>

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
  std::vector<std::string> files;
  StepOptions steps;
  bool frames = false;
  std::string json;
};

// A leak in one of several files counts before one that can't be decided.
Exit exit_of(const std::vector<Diagnosis>& all) {
  const auto any = [&](Verdict verdict) {
    return std::ranges::any_of(all, [&](const auto& each) { return each.verdict == verdict; });
  };
  if (any(Verdict::leak)) return Exit::finding;
  return any(Verdict::undecided) ? Exit::undecided : Exit::ok;
}

Exit run(const Options& options) {
  const auto asked = options.steps.asked();
  const auto style = style_of(stdout);
  std::vector<Diagnosis> all;
  nlohmann::json documents = nlohmann::json::array();
  std::string text;
  for (const auto& file : options.files) {
    all.push_back(diagnose(read_snapshot(file), asked));
    documents.push_back(to_json(all.back()));
    documents.back()["file"] = file;
    if (!text.empty()) text += '\n';
    text += diagnose_text(file, all.back(), options.frames, style);
  }
  print(options.json, documents.size() == 1 ? documents.front() : documents, text);
  return exit_of(all);
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("file", options->files,
                 "snapshots as torch.cuda.memory._dump_snapshot writes them")
      ->type_name("FILE")
      ->required();
  options->steps.add_to(app);
  app.add_flag("--frames", options->frames, "show the frames around each line");
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"diagnose", "Says whether a PyTorch memory snapshot shows a leak, where and how fast.",
     "  leaklab diagnose snapshot.pickle\n"
     "  leaklab diagnose --json - before.pickle after.pickle\n"
     "  leaklab diagnose --step-site train.py:120 snapshot.pickle\n"
     "Exit codes: 1 a leak, 0 clean, 5 undecided: the file can't tell.",
     add}};

}  // namespace
}  // namespace leaklab

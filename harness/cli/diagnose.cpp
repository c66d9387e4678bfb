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

Exit exit_of(Verdict verdict) {
  if (verdict == Verdict::leak) return Exit::finding;
  return verdict == Verdict::undecided ? Exit::undecided : Exit::ok;
}

// Of several files the most urgent one counts. One that can't be read comes before a leak: code 1
// says that all files were looked at.
Exit exit_of(const std::vector<Exit>& files) {
  for (const auto code : {Exit::usage, Exit::finding, Exit::undecided}) {
    if (std::ranges::find(files, code) != files.end()) return code;
  }
  return Exit::ok;
}

Exit run(const Options& options) {
  const auto asked = options.steps.asked();
  keep(options.files, "--json", options.json);
  const auto style = style_of(stdout);
  std::vector<Exit> codes;
  nlohmann::json documents = nlohmann::json::array();
  std::string text;
  for (const auto& file : options.files) {
    try {
      const auto diagnosis = diagnose(read_snapshot(file), asked);
      codes.push_back(exit_of(diagnosis.verdict));
      documents.push_back(to_json(diagnosis));
      if (!text.empty()) text += '\n';
      text += diagnose_text(file, diagnosis, options.frames, style);
    } catch (const UsageError& error) {
      complain(error.what());
      codes.push_back(error.code());
      documents.push_back({{"error", error.what()}});
    }
    documents.back()["file"] = file;
  }
  print(options.json, documents.size() == 1 ? documents.front() : documents, text);
  return exit_of(codes);
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
     "Exit codes: 0 clean, 1 a leak, 2 a file that can't be read, 5 undecided: the file can't "
     "tell.\n"
     "Of several files all are diagnosed, and the code is the first that holds of 2, 1, 5 and 0;\n"
     "the document of a file that can't be read has an \"error\".",
     add}};

}  // namespace
}  // namespace leaklab

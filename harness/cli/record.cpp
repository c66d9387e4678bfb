#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "options.h"
#include "report/progress.h"

namespace leaklab {
namespace {

struct Options {
  SelectOptions select;
  std::string json;
};

std::string_view word_of(const RecordResult& result) {
  if (result.written) return "written";
  if (result.failed) return "failed";
  return result.skipped ? "skipped" : "refused";
}

std::string text_of(const std::vector<RecordResult>& results, const Style& style) {
  std::string text;
  for (const auto& result : results) {
    const auto tint = result.written ? Tint::good : result.skipped ? Tint::warning : Tint::bad;
    text += fmt::format("{}  {}\n", tinted(word_of(result), tint, style), result.id);
    text += wrapped(result.written ? result.file.string() : result.reason, 4, style) + '\n';
  }
  std::vector<std::string> counts;
  for (const std::string_view word : {"written", "skipped", "refused", "failed"}) {
    const auto count = std::ranges::count(results, word, word_of);
    if (count > 0 || word != "failed") counts.push_back(fmt::format("{} {}", count, word));
  }
  return text + fmt::format("{}\n", fmt::join(counts, ", "));
}

Exit run(const Options& options) {
  auto suite = options.select.suite();
  if (engine() == nullptr) resolve_environment(suite.env);  // throws, and says what to do
  const auto selected = options.select.scenarios();
  Progress progress;
  suite.progress = [&](std::size_t done, std::size_t all, const std::string& running) {
    progress.show(done, all, running);
  };
  const auto results = record(selected, suite, "leaklab record");
  progress.clear();
  nlohmann::json listed = nlohmann::json::array();
  for (const auto& result : results) {
    listed.push_back({{"id", result.id},
                      {"outcome", word_of(result)},
                      {"reason", result.reason},
                      {"file", result.file.string()}});
  }
  print(options.json, {{"results", std::move(listed)}}, text_of(results, style_of(stdout)));
  const auto failed = std::ranges::find_if(results, &RecordResult::failed);
  if (failed != results.end()) return failed->code;
  if (std::ranges::count(results, "refused", word_of) > 0) return Exit::finding;
  return std::ranges::all_of(results, &RecordResult::skipped) ? Exit::nothing_ran : Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  options->select.add_to(app);
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"record",
     "Runs each twin twice and stores the growth that was the same as a baseline.",
     "  leaklab record --env cpu\n"
     "  leaklab record 'retained_graph_*' --baselines my_baselines",
     {{Exit::ok, "written, or skipped beside others"},
      {Exit::finding, "one was refused, with the reason"},
      {Exit::nothing_ran, "nothing could run here"}},
     add}};

}  // namespace
}  // namespace leaklab

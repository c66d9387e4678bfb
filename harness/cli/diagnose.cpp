#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "analysis/sites.h"
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
  std::optional<std::string> device_memory;
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

// CLI11 takes whole numbers only.
std::int64_t device_bytes(const std::string& size) {
  static const std::regex form(R"(([0-9]{1,16}(\.[0-9]{1,16})?) ?(([kmgtp]?)b?|([kmgtp])ib?))",
                               std::regex::icase);
  constexpr double least = 1 << 20;  // less is a number whose unit was left out
  constexpr double most = 1LL << 50;
  std::smatch parts;
  if (size.size() < 40 && std::regex_match(size, parts, form)) {
    const auto number = parts.str(1);
    double bytes = 0;
    std::from_chars(number.data(), number.data() + number.size(), bytes);
    const bool binary = parts.length(5) > 0;
    const auto unit = lower(parts.str(binary ? 5 : 4));
    const auto power = unit.empty() ? 0 : std::string_view("kmgtp").find(unit) + 1;
    bytes *= std::pow(binary ? 1024 : 1000, power);
    if (bytes >= least && bytes <= most) return std::llround(bytes);
  }
  throw UsageError(
      fmt::format("--device-memory takes the size of the device, such as 80GiB, 79.25GiB, 80GB or "
                  "85899345920 for bytes, 1 MiB or more, not '{:.80}'",
                  size));
}

// Linear: what steps need grows as what leaks, in blocks that the allocator rounds up. What is
// cached beyond that is theirs too, as the allocator gives back what does not fit before it fails.
std::optional<TimeLeft> time_left(const Snapshot& snapshot, const Diagnosis& diagnosis,
                                  std::int64_t memory) {
  std::optional<TimeLeft> first;
  if (memory == 0 || diagnosis.verdict != Verdict::leak) return first;
  for (const auto& each : diagnosis.rates) {
    const auto rate = each.block_bytes_per_step;
    if (rate <= 0) continue;
    TimeLeft left{each.device, memory, 0, each.needed, rate, 0};
    for (const auto& segment : snapshot.segments) {
      if (segment.device == each.device) left.reserved += segment.total_size;
    }
    if (left.needed < memory) {
      left.steps = static_cast<std::int64_t>(static_cast<double>(memory - left.needed) / rate);
    }
    if (!first || left.steps < first->steps) first = left;
  }
  return first;
}

nlohmann::json steps_until_full(const Diagnosis& diagnosis, const std::optional<TimeLeft>& left) {
  if (diagnosis.verdict == Verdict::leak && was_full(diagnosis)) return 0;
  return left ? nlohmann::json(left->steps) : nlohmann::json();
}

Exit run(const Options& options) {
  const auto asked = options.steps.asked();
  const auto memory = options.device_memory ? device_bytes(*options.device_memory) : 0;
  keep(options.files, "--json", options.json);
  const auto style = style_of(stdout);
  std::vector<Exit> codes;
  nlohmann::json documents = nlohmann::json::array();
  std::string text;
  for (const auto& file : options.files) {
    try {
      const auto snapshot = read_input(file);
      const auto diagnosis = diagnose(snapshot, asked);
      const DiagnoseView view{options.frames, memory, time_left(snapshot, diagnosis, memory)};
      codes.push_back(exit_of(diagnosis.verdict));
      auto& document = documents.emplace_back(to_json(diagnosis));
      document["steps_until_full"] = steps_until_full(diagnosis, view.time_left);
      if (!text.empty()) text += '\n';
      text += diagnose_text(input_name(file), diagnosis, view, style);
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
                 "snapshots as torch.cuda.memory._dump_snapshot writes them; '-': standard input")
      ->type_name("FILE")
      ->required();
  options->steps.add_to(app);
  app.add_flag("--frames", options->frames, "show the frames around each line");
  app.add_option("--device-memory", options->device_memory,
                 "how much the device has, such as 80GiB: tells after how many steps it is full")
      ->type_name("SIZE");
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"diagnose",
     "Says whether a PyTorch memory snapshot shows a leak, where and how fast.",
     "  leaklab diagnose snapshot.pickle\n"
     "  leaklab diagnose --json - before.pickle after.pickle\n"
     "  zstd -dc snapshot.pickle.zst | leaklab diagnose -\n"
     "  leaklab diagnose --device-memory 80GiB snapshot.pickle\n"
     "  leaklab diagnose --step-site train.py:120 snapshot.pickle",
     {{Exit::ok, "clean, as far as it can be judged"},
      {Exit::finding, "a leak"},
      {Exit::undecided, "undecided: the file can't tell"}},
     add,
     "Of several files all are diagnosed, and the code is the first that holds of 2, 1, 5 and 0. "
     "--json writes an object for one file, a list of such objects for several, in their order; "
     "that of a file that can't be read has an \"error\". Of several devices those are judged "
     "whose history is in the file; the others are named."}};

}  // namespace
}  // namespace leaklab

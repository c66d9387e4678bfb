#include "options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "analysis/sites.h"
#include "leaklab/error.h"
#include "leaklab/file.h"

namespace leaklab {
namespace {

constexpr std::string_view standard_input = "/dev/stdin";

bool is_lower_snake(std::string_view id) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_allowed = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_';
  };
  return !id.empty() && id.size() <= longest_id && is_letter(id.front()) && id.back() != '_' &&
         std::ranges::all_of(id, is_allowed) && id.find("__") == std::string_view::npos;
}

// Lets `read` read the file; where it can't, the message names the file as the caller did.
void with_input(const std::string& file, const std::function<void(const std::string&)>& read) {
  static bool is_read = false;
  if (file == "-") {
    if (::fcntl(STDIN_FILENO, F_GETFD) < 0) {
      throw UsageError("standard input is closed; name a file or pipe one in");
    }
    if (std::exchange(is_read, true)) {
      throw UsageError("standard input is named twice and can be read once; name a file");
    }
  }
  const auto path = input_path(file);
  try {
    read(path);
  } catch (const UsageError& error) {
    std::string told = error.what();
    if (const auto at = told.find(path); at != std::string::npos) {
      told.replace(at, path.size(), input_name(file));
    }
    throw UsageError(told);
  }
}

// By the first bytes. Those of a pipe are for the reader alone.
void refuse_packed(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  std::string start(6, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  const auto word = path == standard_input ? "FILE" : shell_word(path);
  for (const auto& [magic, program] :
       {std::pair("\x1f\x8b", "gzip"), std::pair("BZh", "bzip2"), std::pair("\xfd\x37zXZ", "xz"),
        std::pair("\x28\xb5\x2f\xfd", "zstd"), std::pair("\x04\x22\x4d\x18", "lz4")}) {
    if (!start.starts_with(magic)) continue;
    throw UsageError(fmt::format("{} is packed by {}; unpack it with `{} -dc {} >snapshot.pickle`",
                                 path, program, program, word));
  }
  if (start.starts_with("PK\x03\x04")) {
    throw UsageError(
        fmt::format("{} is a zip archive, as torch.save writes; give the file that "
                    "torch.cuda.memory._dump_snapshot wrote, and if that is in it, unpack it with "
                    "`unzip {}`",
                    path, word));
  }
}

// Without it no free can be told from another.
void expect_addresses(const Snapshot& snapshot, const std::string& path) {
  for (std::size_t device = 0; device < snapshot.traces.size(); ++device) {
    const auto& trace = snapshot.traces[device];
    const auto lacking = std::ranges::find_if(trace, [](const TraceEvent& event) {
      return event.kind <= EventKind::free_completed && (event.keys & TraceEvent::has_address) == 0;
    });
    if (lacking == trace.end()) continue;
    throw UsageError(
        fmt::format("{}: `addr` of device_traces[{}][{}] is missing; record the "
                    "snapshot again",
                    path, device, lacking - trace.begin()));
  }
}

// Where a new scenario goes by itself. A copy of the program that lies elsewhere must not write to
// the folder that it was once built from, which may belong to someone else by now.
std::filesystem::path scenarios_of_the_source() {
  const std::filesystem::path source = LEAKLAB_SOURCE_DIR;
  const auto folder = source / "scenarios";
  std::error_code ignored;
  const auto program = std::filesystem::canonical("/proc/self/exe", ignored);
  const auto inside = program.lexically_relative(std::filesystem::canonical(source, ignored));
  if (!inside.empty() && *inside.begin() != ".." &&
      std::filesystem::is_directory(folder, ignored)) {
    return folder;
  }
  throw UsageError(
      "this leaklab lies outside of its source folder, so there is no folder of scenarios; say "
      "with --dir where to write");
}

}  // namespace

void SelectOptions::add_to(CLI::App& app) {
  app.add_option("ID", ids, "scenarios, by id or by pattern such as 'zero_grad_*'; default: all");
  add_env(app, env);
  app.add_option("--baselines", baselines, "folder of the baselines")
      ->type_name("DIR")
      ->envname("LEAKLAB_BASELINES");
  add_number(app, "--jobs", jobs, 1, 1024, "runs at once; default: one a core");
  add_time_limit(app, time_limit);
}

std::vector<const Scenario*> SelectOptions::scenarios() const {
  std::vector<const Scenario*> selected;
  for (const auto& id : ids) {
    if (id.find_first_of("*?[") == std::string::npos) {
      selected.push_back(&find_scenario(id));
      continue;
    }
    const auto before = selected.size();
    for (const auto& scenario : leaklab::scenarios()) {
      if (::fnmatch(id.c_str(), scenario.id.c_str(), 0) == 0) selected.push_back(&scenario);
    }
    if (selected.size() == before) {
      throw UsageError(fmt::format("zero scenarios matched '{}'; `leaklab list` shows all", id));
    }
  }
  if (!ids.empty()) return selected;
  for (const auto& scenario : leaklab::scenarios()) selected.push_back(&scenario);
  if (selected.empty()) throw UsageError("zero scenarios matched: this program has none");
  return selected;
}

SuiteOptions SelectOptions::suite() const {
  SuiteOptions options;
  options.env = env;
  options.baselines = baselines.empty() ? default_baselines() : std::filesystem::path(baselines);
  options.jobs = static_cast<std::size_t>(jobs);
  options.time_limit = std::chrono::seconds(time_limit);
  return options;
}

CLI::Option* add_number(CLI::App& app, const std::string& name, std::int64_t& value,
                        std::int64_t least, std::int64_t most, const std::string& help) {
  // In place of CLI11's own sentences: "Value 0 not in range [1 - 1024]", "Could not convert".
  const auto check = [=](const std::string& word) -> std::string {
    std::int64_t number = 0;
    const auto* last = word.data() + word.size();
    const auto [end, error] = std::from_chars(word.data(), last, number);
    if (error == std::errc() && end == last && number >= least && number <= most) return "";
    throw UsageError(fmt::format("{} takes a whole number from {} to {}, not '{:.80}'", name,
                                 grouped(least), grouped(most), word));
  };
  return app.add_option(name, value, help)->type_name("N")->check(check);
}

void add_env(CLI::App& app, std::string& env) {
  app.add_option("--env", env, "where to run: auto (a usable GPU, else the CPU), cpu or cuda")
      ->type_name("ENV")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
}

void add_time_limit(CLI::App& app, std::int64_t& seconds) {
  add_number(app, "--time-limit", seconds, 1, 86'400, "seconds that a run may take")
      ->type_name("S")
      ->capture_default_str();
}

void add_json(CLI::App& app, std::string& json) {
  app.add_option("--json", json, "write the result as JSON too; '-': to standard output, alone")
      ->type_name("FILE");
}

const TaxonomyClass& known_class(const std::string& id) {
  if (const auto* found = find_class(id)) return *found;
  std::string known;
  for (const auto& each : taxonomy()) known += fmt::format("\n  {} {}", each.id, each.name);
  throw UsageError(fmt::format("there is no class '{}'; there are:{}", id, known));
}

std::filesystem::path default_baselines() {
  const std::filesystem::path source = LEAKLAB_SOURCE_DIR;
  std::error_code ignored;
  return std::filesystem::is_directory(source, ignored) ? source / "baselines"
                                                        : std::filesystem::path("baselines");
}

std::string input_path(const std::string& file) {
  return file == "-" ? std::string(standard_input) : file;
}

std::string input_name(const std::string& file) {
  return file == "-" ? "standard input" : shown(file);
}

Snapshot read_input(const std::string& file) {
  Snapshot snapshot;
  with_input(file, [&](const std::string& path) {
    refuse_packed(path);
    snapshot = read_snapshot(path);
    expect_addresses(snapshot, path);
  });
  return snapshot;
}

std::string read_text_input(const std::string& file) {
  std::string text;
  with_input(file, [&](const std::string& path) { text = read_file(path); });
  return text;
}

void keep(const std::vector<std::string>& others, std::string_view option,
          const std::string& output) {
  if (output.empty() || output == "-") return;
  for (const auto& each : others) {
    const auto other = input_path(each);
    std::error_code ignored;
    if (std::filesystem::equivalent(output, other, ignored) ||
        std::filesystem::absolute(output).lexically_normal() ==
            std::filesystem::absolute(other).lexically_normal()) {
      throw UsageError(
          fmt::format("{} {} would replace {}, which this call needs; name another file", option,
                      output, input_name(each)));
    }
  }
}

void print(const std::string& json, const nlohmann::json& document, const std::string& text) {
  if (!json.empty() && json != "-") write_file(json, to_text(document));
  const auto& shown = json == "-" ? to_text(document) : text;
  const bool written = std::fwrite(shown.data(), 1, shown.size(), stdout) == shown.size();
  if (!written || std::fflush(stdout) != 0) {
    throw InternalError(fmt::format("can't write to standard output: {}", std::strerror(errno)));
  }
}

void complain(std::string_view sentence) {
  const auto style = style_of(stderr);
  std::istringstream lines(fmt::format("leaklab: {}", sentence));
  for (std::string line; std::getline(lines, line);) {
    // Names of files may hold what a terminal takes for orders.
    line = shown(line);
    // A log keeps a line whole, to be searched.
    if (style.width != 0) line = wrapped(line, line.find_first_not_of(' '), style);
    // Not fmt::print, which throws where standard error can't be written.
    std::fputs((line + '\n').c_str(), stderr);
  }
}

std::string relative_file(const Scenario& scenario) {
  const std::filesystem::path file = scenario.file;
  const auto relative = file.lexically_relative(LEAKLAB_SOURCE_DIR);
  return relative.empty() || *relative.begin() == ".." ? file.string() : relative.string();
}

std::string shell_word(const std::string& text) {
  constexpr auto plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./=,:+@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void StepOptions::add_to(CLI::App& app) {
  add_number(app, "--steps", steps, 1, 1'000'000'000,
             "how many steps the trace holds, if you know");
  app.add_option("--step-site", step_site,
                 "a line that each step runs once, if you know; not with --steps")
      ->type_name("FILE:LINE");
}

DiagnoseOptions StepOptions::asked() const {
  DiagnoseOptions asked;
  asked.steps = steps;
  if (!step_site) return asked;
  if (steps > 0) {
    throw UsageError("--steps and --step-site both tell the steps; give one of them");
  }
  const auto colon = step_site->rfind(':');
  if (colon != std::string::npos && colon > 0) {
    const auto* last = step_site->data() + step_site->size();
    const auto [end, error] = std::from_chars(step_site->data() + colon + 1, last, asked.step_line);
    if (error == std::errc{} && end == last && asked.step_line > 0) {
      asked.step_file =
          std::filesystem::path(step_site->substr(0, colon)).lexically_normal().string();
      return asked;
    }
  }
  throw UsageError(
      fmt::format("--step-site takes FILE:LINE, such as train.py:120, not '{}'", *step_site));
}

std::filesystem::path new_scenario_file(const std::string& id, const std::string& dir) {
  if (!is_lower_snake(id)) {
    throw UsageError(
        fmt::format("'{}' is no id of a scenario: lower-case words with underscores between them, "
                    "{} characters at most, such as tensor_cache_by_shape",
                    id, longest_id));
  }
  const auto folder = !dir.empty() ? std::filesystem::path(dir) : scenarios_of_the_source();
  const auto file = folder / (id + ".cpp");
  const auto same = std::ranges::find(leaklab::scenarios(), id, &Scenario::id);
  auto data = file;
  data.replace_extension("pattern");
  const auto is_there = [](const std::filesystem::path& path) {
    std::error_code error;
    const auto status = std::filesystem::symlink_status(path, error);
    if (error == std::errc::permission_denied) {
      throw UsageError(fmt::format("can't write {}: {}; choose a folder that you may write to",
                                   path.string(), error.message()));
    }
    return std::filesystem::exists(status);  // what else is wrong, the writer will tell
  };
  if (is_there(file) || is_there(data) || same != leaklab::scenarios().end()) {
    throw UsageError(
        fmt::format("there is a scenario '{}' in {}; choose another id", id,
                    same == leaklab::scenarios().end() ? file.string() : relative_file(*same)));
  }
  return file;
}

}  // namespace leaklab

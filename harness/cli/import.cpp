#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <utility>

#include "analysis/sites.h"
#include "command.h"
#include "leaklab/error.h"
#include "leaklab/file.h"
#include "leaklab/import.h"
#include "leaklab/taxonomy.h"
#include "options.h"
#include "report/progress.h"

namespace leaklab {
namespace {

struct Options {
  std::string file;
  std::string id;
  std::string taxonomy;
  std::optional<std::string> report;
  std::string dir;
  StepOptions steps;
  bool from_series = false;
  std::string json;
};

// What the scenario says of itself.
struct Told {
  std::string taxonomy;
  std::string summary;
  std::string fix;
  bool leak = false;
  bool irregular = false;  // it leaks without a period
};

constexpr std::int64_t largest_pattern = 64 * 1024;
constexpr std::size_t longest_report = 500;
constexpr std::string_view separators = ",\t ";  // of the cells of a CSV

// The comments keep the clauses on lines of their own, whatever their length.
constexpr auto file_text = R"(// {summary}.
#include "leaklab/performer.h"
#include "leaklab/scenario.h"

using namespace leaklab;

// The allocations of the loop; leaklab/pattern.h says how to read them.
static Pattern pattern() {{
  return parse_pattern(
#include "{id}.pattern"
  );
}}

LEAKLAB_SCENARIO(
    {id}, .taxonomy = "{taxonomy}",
    // As the file was diagnosed.
{summary_clause}
    // Where it comes from.
{reports_clause}
{fix_clause}    // After the warm-up all repeats with period {period}.
    .steps = {steps}, .warmup = {warmup}, .expect = [](const Setting&) {{ return pattern().growth(); }}) {{
  Performer performer(pattern(), run.device());
  run.step([&](Step step) {{ performer.step(step.index, {fault}); }});
}}
)";

constexpr std::size_t columns = 100;

// A file's name may hold anything; it becomes part of a source file.
std::string harmless(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '\\') c = '?';
  }
  return text;
}

std::string literal(std::string_view text) {
  std::string written = "\"";
  for (const char c : text) {
    // Of two question marks the second too: with a third character they may be a trigraph.
    const bool second = c == '?' && written.ends_with('?');
    if (c == '"' || c == '\\' || second) written += '\\';
    written += c;
  }
  return written + "\"";
}

// A clause of the scenario; its text is broken between words where it is longer than a line.
std::string clause(std::string_view name, std::string_view text) {
  auto line = fmt::format("    .{} = {},", name, literal(text));
  if (line.size() <= columns) return line;
  line = fmt::format("    .{} =", name);
  while (!text.empty()) {
    // The indent and the comma, and the escapes at worst.
    auto end = std::min(text.size(), columns - 12);
    while (literal(text.substr(0, end)).size() + 9 > columns) --end;
    if (end < text.size()) {
      const auto space = text.rfind(' ', end - 1);
      if (space != std::string_view::npos) end = space + 1;
    }
    line += "\n        " + literal(text.substr(0, end));
    text.remove_prefix(end);
  }
  return line + ",";
}

// Nothing else becomes part of the scenario. The limit is for the regular expression, whose
// recursion is as deep as the text is long.
bool is_report(const std::string& text) {
  static const std::regex report(R"([\w.-]+/[\w.-]+#[0-9]+|https?://[!#-;=?-\[\]_a-z~]+)");
  return text.size() <= longest_report && std::regex_match(text, report);
}

std::string id_of(const std::string& file) {
  std::string id = "imported_";
  for (const char c : std::filesystem::path(input_name(file)).stem().string()) {
    const auto byte = static_cast<unsigned char>(c);
    const char letter = std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
    if (letter != '_' || !id.ends_with('_')) id += letter;
  }
  id.resize(std::min(id.size(), longest_id));
  while (id.ends_with('_')) id.pop_back();
  return id;
}

std::string growth_text(const Pattern& pattern) {
  const auto growth = pattern.growth().per_period("requested");
  return pattern.period == 1
             ? fmt::format("{} a step", counted(growth, "byte"))
             : fmt::format("{} in {}", counted(growth, "byte"), counted(pattern.period, "step"));
}

// What of the file the scenario has.
std::string kept_text(const Imported& imported) {
  const auto& pattern = imported.pattern;
  if (!imported.merely_grows) {
    return fmt::format("kept {} of {}, {} of {}", grouped(imported.kept),
                       counted(imported.allocations, "allocation"),
                       grouped(std::ssize(pattern.steps)),
                       counted(imported.diagnosis.steps.seen, "step"));
  }
  const auto growth = grouped(pattern.growth().per_period("requested"));
  return "nothing smaller leaks the same, so the scenario allocates the " +
         (imported.diagnosis.period == 0
              ? fmt::format("mean growth of a step, {} B, at once in each step", growth)
          : pattern.period == 1 ? fmt::format("growth of a step, {} B, at once", growth)
                                : fmt::format("growth of a period of {} steps, {} B, at once",
                                              pattern.period, growth));
}

// "train.py line 7"; empty where the file does not tell.
std::string place_text(const CodeSite& site) {
  if (site.file.empty()) return "";
  if (site.is_function_alone()) return site.function;
  return fmt::format("{} line {}", std::filesystem::path(site.file).filename().string(), site.line);
}

// ", allocated in train.py line 7, model.py line 3, data.py line 1 and 2 more places".
std::string places_text(const std::vector<Finding>& findings) {
  constexpr std::size_t most = 3;
  std::vector<std::string> places;
  for (const auto& finding : findings) {
    const auto place = place_text(finding.site);
    if (!place.empty() && std::ranges::find(places, place) == places.end()) places.push_back(place);
  }
  if (places.empty()) return "";
  auto last = places.back();
  if (places.size() > most) {
    const auto others = places.size() - most;
    last = fmt::format("{} more place{}", others, others == 1 ? "" : "s");
  }
  places.resize(std::min(most, places.size() - 1));
  if (places.empty()) return ", allocated in " + last;
  return fmt::format(", allocated in {} and {}", fmt::join(places, ", "), last);
}

Told told_of(const Diagnosis& diagnosis, const Pattern& pattern, const std::string& wish) {
  Told told;
  told.leak = diagnosis.verdict == Verdict::leak;
  const char kind = told.leak ? 'L' : 'N';
  if (!wish.empty() && wish.front() != kind) {
    throw UsageError(
        fmt::format("the file shows {}, so --class takes one that begins with {}, not {}",
                    told.leak ? "a leak" : "no leak", kind, wish));
  }
  told.irregular = told.leak && diagnosis.period == 0;
  told.taxonomy = wish;
  if (!told.leak) {
    told.summary = "a loop that leaves nothing behind";
    if (!diagnosis.lookalikes.empty()) {
      const auto& first = diagnosis.lookalikes.front();
      if (wish.empty()) told.taxonomy = first.taxonomy;
      told.summary = harmless(fmt::format("{}, {}", counted(first.bytes, "byte"), first.reason));
    }
    if (told.taxonomy.empty()) told.taxonomy = "N01";
    return told;
  }
  const auto& first = diagnosis.findings.front();
  if (told.taxonomy.empty()) told.taxonomy = first.taxonomy.empty() ? "L02" : first.taxonomy;
  told.summary = harmless(growth_text(pattern) + " stay" + places_text(diagnosis.findings));
  told.fix = harmless(first.fix.empty() ? "free in each step what the step allocates" : first.fix);
  while (told.fix.ends_with('.')) told.fix.pop_back();
  return told;
}

std::errc read_number(std::string_view cell, double& value) {
  const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return stop == cell.data() + cell.size() ? error : std::errc::invalid_argument;
}

// Whether a line that can't be read is no heading: it begins with a number, or its last cell does.
bool is_data(std::string_view line, std::string_view cell) {
  double ignored = 0;
  return read_number(line.substr(0, line.find_first_of(separators)), ignored) == std::errc() ||
         (!cell.empty() && std::isdigit(static_cast<unsigned char>(cell.front())) != 0);
}

// "MiB" of a heading such as "step,memory (MiB)"; empty where its last column names no unit.
std::string unit_of(std::string_view heading) {
  static const std::regex unit(
      R"((?:^|[^A-Za-z])([KMGT]i?B|[KMGT]i?bytes|(?:kilo|mega|giga|kibi|mebi|gibi)bytes)(?![A-Za-z]))",
      std::regex::icase);
  static const std::regex at_the_end(R"([a-z]([KMGT]i?B)(?![A-Za-z]))");  // as in memoryMB
  const std::string column(heading.substr(heading.find_last_of(",\t") + 1));
  std::smatch found;
  return std::regex_search(column, found, unit) || std::regex_search(column, found, at_the_end)
             ? found[1].str()
             : "";
}

// The last cell of each line; lines before the first number, such as a heading, are passed over.
std::vector<std::int64_t> read_series(const std::string& file) {
  constexpr double largest = 9007199254740992;  // to which a double holds every whole number
  std::vector<std::int64_t> levels;
  const auto text = read_text_input(file);
  if (text.starts_with('\x80') || text.starts_with('{') || text.starts_with('[')) {
    throw UsageError(
        fmt::format("{} looks like a snapshot: leave --from-series out", input_name(file)));
  }
  std::string unread;
  std::string heading;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = text.substr(begin, end - begin);
    begin = end + 1;
    if (++number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) {
      line.pop_back();
    }
    if (line.empty()) continue;
    if (line.find(';') != std::string::npos) {
      throw UsageError(
          fmt::format("{}, line {}: '{:.80}' has a semicolon, as where commas are of decimals; "
                      "give whole bytes, with commas between the cells",
                      input_name(file), number, harmless(line)));
    }
    const auto cell = line.substr(line.find_last_of(separators) + 1);
    double value = 0;
    const auto error = read_number(cell, value);
    const bool is_number = error == std::errc();
    if (levels.empty() && (is_number || is_data(line, cell))) {
      if (const auto unit = unit_of(heading.substr(0, longest_report)); !unit.empty()) {
        throw UsageError(
            fmt::format("{}: its heading '{:.80}' names {}, and values must be bytes, as "
                        "torch.cuda.memory_allocated() says; give bytes, to the byte",
                        input_name(file), harmless(heading), unit));
      }
    }
    const bool too_large = error == std::errc::result_out_of_range || value > largest;
    if (is_number && value >= 0 && !too_large && value == std::floor(value)) {
      levels.push_back(static_cast<std::int64_t>(value));
      continue;
    }
    const auto told =
        fmt::format("{}, line {}: '{:.80}' is {}", input_name(file), number, harmless(cell),
                    too_large ? fmt::format("too large; give at most {} bytes",
                                            grouped(static_cast<std::int64_t>(largest)))
                              : "no whole number of bytes");
    if (is_number || too_large || !levels.empty() || is_data(line, cell)) throw UsageError(told);
    heading = line;
    unread = told;  // the last line is the least likely to be a heading
  }
  if (levels.empty()) {
    throw UsageError(unread.empty()
                         ? fmt::format("{} is empty; give a CSV of bytes by step", input_name(file))
                         : unread);
  }
  return levels;
}

// The two files of a scenario.
struct Written {
  std::string pattern;
  std::string scenario;
};

// What makes a pattern small enough that takes `size` bytes.
std::string way_out(const Pattern& pattern, std::int64_t size, const Told& told,
                    const Options& options) {
  if (options.from_series) return "give a series that repeats after fewer steps";
  // One that repeats holds a period and no more, however many steps were recorded.
  if (!told.irregular) return "give memory by step with --from-series, which holds sums alone";
  // Else it holds the steps that were recorded, or many of them. Sizes vary, hence the margin.
  constexpr std::int64_t least = 8;  // with which a leak is sure to be found
  const auto fit = std::ssize(pattern.steps) * largest_pattern / size * 9 / 10;
  return fit >= least ? fmt::format("record {} steps of the loop or fewer", fit)
                      : "record a smaller model, whose steps have fewer allocations";
}

Written written(const Pattern& pattern, const Told& told, const Options& options,
                const std::string& id) {
  auto text = fmt::format("R\"({})\"\n", to_text(pattern));
  if (std::ssize(text) > largest_pattern) {
    throw UsageError(
        fmt::format("{}: the smallest pattern that shows the same takes {} bytes, which "
                    "is more than a scenario's {}; {}",
                    input_name(options.file), grouped(std::ssize(text)), grouped(largest_pattern),
                    way_out(pattern, std::ssize(text), told, options)));
  }
  const auto warmup = pattern.settled();
  const auto report = options.report.value_or(
      harmless(std::filesystem::path(input_name(options.file)).filename().string()));
  auto scenario = fmt::format(
      file_text, fmt::arg("id", id), fmt::arg("taxonomy", told.taxonomy),
      fmt::arg("summary", told.summary),
      fmt::arg("summary_clause", clause("summary", told.summary)),
      fmt::arg("reports_clause", fmt::format("    .reports = {{{}}},", literal(report))),
      fmt::arg("fix_clause",
               told.leak ? "    // What ends it.\n" + clause("fix", told.fix) + "\n" : ""),
      fmt::arg("period", pattern.period),
      fmt::arg("steps", warmup + std::max<std::int64_t>(16, 4 * pattern.period)),
      fmt::arg("warmup", warmup), fmt::arg("fault", told.leak ? "run.fault()" : "false"));
  return {std::move(text), std::move(scenario)};
}

// All of it or nothing. The result goes first, as it may go where nothing can be written, and a
// file that it replaces is replaced last.
void write(const Written& files, const std::filesystem::path& scenario,
           const std::filesystem::path& pattern, const std::string& json,
           const nlohmann::json& document, const std::string& text) {
  std::optional<FileWriter> result;
  const bool alone = json == "-";
  if (!alone && !json.empty()) result.emplace(json).write(to_text(document));
  FileWriter data(pattern);
  data.write(files.pattern);
  FileWriter source(scenario);
  source.write(files.scenario);
  try {
    data.commit();
    source.commit();
    print(alone ? json : "", document, text);
    if (result) result->commit();
  } catch (const Error&) {
    // Neither was there before.
    std::filesystem::remove(scenario);
    std::filesystem::remove(pattern);
    throw;
  }
}

Exit run(const Options& options) {
  const auto id = options.id.empty() ? id_of(options.file) : options.id;
  const auto file = new_scenario_file(id, options.dir);
  auto data = file;
  data.replace_extension("pattern");
  keep({options.file, file.string(), data.string()}, "--json", options.json);
  if (!options.taxonomy.empty()) known_class(options.taxonomy);
  if (options.report && !is_report(*options.report)) {
    throw UsageError(fmt::format(
        "--report '{:.80}' is no public report: give owner/repository#number, such as "
        "pytorch/pytorch#33101, or an address that begins with https://, of {} characters at most; "
        "without --report the scenario names the file",
        harmless(*options.report), longest_report));
  }
  Told told;
  Pattern pattern;
  nlohmann::json document;
  std::string text;
  if (options.from_series) {
    const auto levels = read_series(options.file);
    pattern = import_series(levels);
    Diagnosis diagnosis;
    const bool grows = pattern.growth().per_period("requested") > 0;
    diagnosis.verdict = grows ? Verdict::leak : Verdict::clean;
    diagnosis.findings.resize(grows ? 1 : 0);
    told = told_of(diagnosis, pattern, options.taxonomy);
    text = fmt::format("{}: {}\n", counted(std::ssize(levels), "level"), growth_text(pattern));
    document["levels"] = levels.size();
  } else {
    Progress progress;
    const auto imported =
        import_snapshot(read_input(options.file), options.steps.asked(), [&](const auto& now) {
          progress.show(fmt::format("[{} tried] {} steps and {} call stacks left", now.tried,
                                    now.steps, now.stacks));
        });
    progress.clear();
    pattern = imported.pattern;
    told = told_of(imported.diagnosis, pattern, options.taxonomy);
    text = fmt::format("{}\n{}\n", imported.diagnosis.summary, kept_text(imported));
    document["diagnosis"] = to_json(imported.diagnosis);
  }
  const auto files = written(pattern, told, options, id);
  document["id"] = id;
  document["class"] = told.taxonomy;
  document["bytes_per_period"] = pattern.growth().per_period("requested");
  document["period"] = pattern.period;
  document["file"] = file.string();
  text += fmt::format(
      "wrote {} and its pattern\n{}build it:  in the source folder, {}\n"
      "run it:    leaklab check {}\nstore it:  leaklab record {}\n",
      shown(file.string()),
      options.dir.empty() ? "" : "move both:  to scenarios/ of the source folder\n", build_command,
      id, id);
  write(files, file, data, options.json, document, text);
  return Exit::ok;
}

Action add(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("FILE", options->file,
                 "a memory snapshot, or a CSV with --from-series; '-': standard input")
      ->required();
  app.add_option("--id", options->id, "of the scenario; default: from the file's name");
  app.add_option("--class", options->taxonomy, "default: as diagnosed; L02 or N01 for a series")
      ->type_name("CLASS");
  app.add_option("--report", options->report,
                 "public report, as owner/repository#number or https://...; default: the file's "
                 "name");
  app.add_option("--dir", options->dir,
                 "where to write it; default: scenarios/ of the source folder")
      ->type_name("DIR");
  options->steps.add_to(app);
  app.add_flag("--from-series", options->from_series,
               "the file is a CSV of bytes by step: the last cell of each line")
      ->excludes("--steps")
      ->excludes("--step-site");
  add_json(app, options->json);
  return [options] { return run(*options); };
}

const CommandRegistration registration{
    {"import",
     "Makes a small scenario that leaks as a user's memory snapshot does.",
     "  leaklab import snapshot.pickle --id reported_cache --report owner/repository#123\n"
     "  leaklab import --from-series memory.csv --class L20",
     {{Exit::ok, "a scenario was written"}, {Exit::undecided, "undecided: the file can't tell"}},
     add}};

}  // namespace
}  // namespace leaklab

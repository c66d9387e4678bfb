// Arguments and output that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaklab/diagnosis.h"
#include "leaklab/registry.h"
#include "leaklab/suite.h"
#include "leaklab/taxonomy.h"
#include "report/style.h"

namespace leaklab {

// Of one run of a scenario, in seconds.
constexpr std::int64_t default_time_limit = 120;

// What `check` and `record` take.
struct SelectOptions {
  std::vector<std::string> ids;
  std::string env = "auto";
  std::string baselines;
  std::int64_t jobs = 0;
  std::int64_t time_limit = default_time_limit;

  void add_to(CLI::App& app);
  // The scenarios of those ids, of which each may be a pattern such as 'zero_grad_*'; all where
  // none is given. Throws UsageError for an id or a pattern that matches none.
  std::vector<const Scenario*> scenarios() const;
  SuiteOptions suite() const;
};

// What the caller knows of the steps in a snapshot.
struct StepOptions {
  std::int64_t steps = 0;
  std::optional<std::string> step_site;

  void add_to(CLI::App& app);
  DiagnoseOptions asked() const;
};

// An option that takes a whole number from `least` to `most`. Throws UsageError that says so for
// anything else.
CLI::Option* add_number(CLI::App& app, const std::string& name, std::int64_t& value,
                        std::int64_t least, std::int64_t most, const std::string& help);
void add_env(CLI::App& app, std::string& env);
// In seconds; what `seconds` holds is the default.
void add_time_limit(CLI::App& app, std::int64_t& seconds);
void add_json(CLI::App& app, std::string& json);

// The class of that id; throws UsageError that names all.
const TaxonomyClass& known_class(const std::string& id);

// Where baselines are unless somebody says otherwise: of the source folder, where that is there.
std::filesystem::path default_baselines();

// What builds a new scenario: the program alone, as all tests take many times as long.
constexpr std::string_view build_command = "cmake --build --preset release --target leaklab";

// Characters of a scenario's id: lines of its file have at most 100 columns.
constexpr std::size_t longest_id = 60;

// Where the file of a new scenario goes: into `dir`, or beside the others where that is empty.
// Throws UsageError for an id that is none or that a scenario has already, and without `dir` where
// this program does not lie in its source folder.
std::filesystem::path new_scenario_file(const std::string& id, const std::string& dir);

// "-" as a file to read is standard input: where that is found. How a text names a file, without
// what a terminal would take for orders.
std::string input_path(const std::string& file);
std::string input_name(const std::string& file);
// read_snapshot() and read_file() of such a file; what is packed is refused with the command that
// unpacks it. Standard input can be read once only.
Snapshot read_input(const std::string& file);
std::string read_text_input(const std::string& file);

// Throws UsageError where `output`, of an option of that name, is the same file as one of `others`.
void keep(const std::vector<std::string>& others, std::string_view option,
          const std::string& output);

// One rule for all subcommands: the text goes to standard output and, where `json` names a file,
// the document into that file; for "-" the document alone goes to standard output.
void print(const std::string& json, const nlohmann::json& document, const std::string& text);

// One sentence on standard error, for what went wrong.
void complain(std::string_view sentence);

// The file of a scenario relative to the source folder: "scenarios/ID.cpp".
std::string relative_file(const Scenario& scenario);

// `text` as one word of a shell command.
std::string shell_word(const std::string& text);

}  // namespace leaklab

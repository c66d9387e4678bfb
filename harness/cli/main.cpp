#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.h"
#include "core/allotted_gpus.h"
#include "core/nearest.h"
#include "leaklab/registry.h"
#include "options.h"

namespace leaklab {
namespace {

int fail(std::string_view sentence, Exit code) {
  complain(sentence);
  return static_cast<int>(code);
}

// CLI11's own sentence for a word that is no subcommand offers nothing.
void expect_known_command(int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string_view word = argv[1];
  std::vector<std::string_view> names;
  for (const auto& command : commands()) {
    if (command.name == word) return;
    if (!command.hidden) names.push_back(command.name);
  }
  throw UsageError(fmt::format("there is no command '{}'; `leaklab --help` shows all{}", word,
                               nearest_names(word, names)));
}

// CLI11 takes an empty value for none, or the next word for the value.
void refuse_empty_words(int argc, char** argv) {
  bool options = true;  // until "--"
  std::string before;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    options = options && word != "--";
    const bool is_option = options && word.starts_with("--");
    if (is_option && word.find('=') + 1 == word.size()) {
      word.pop_back();
      throw UsageError(fmt::format("the value of {} is empty; give one or leave it out", word));
    }
    if (word.empty()) {
      throw UsageError(
          before.empty()
              ? fmt::format("argument {} is empty; give a value or leave it out", i)
              : fmt::format("the value of {} is empty; give one or leave it out", before));
    }
    before = is_option ? word : "";
  }
}

// What CLI11 says, but of an option without its value: "--steps: 1 required N missing".
std::string sentence(const CLI::ParseError& error) {
  const std::string told = error.what();
  const auto end = told.find(": 1 required ");
  return end == std::string::npos ? told : told.substr(0, end) + " needs a value";
}

// What the first option that a command does not have may stand for.
std::string nearest_option(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const auto& word : command.remaining()) {
    if (!word.starts_with("--")) continue;
    return nearest_names(word.substr(0, word.find('=')), {names.begin(), names.end()});
  }
  return "";
}

// One form for all.
std::string exit_codes(std::map<Exit, std::string> meanings) {
  meanings.try_emplace(Exit::usage,
                       "a wrong call, or a file that can't be read or may not be written");
  meanings.try_emplace(Exit::internal, "a fault of leaklab or of the machine, such as a full disk");
  std::string text;
  for (const auto& [code, meaning] : meanings) {
    text += fmt::format("{}{} {}", text.empty() ? "Exit codes: " : ", ", static_cast<int>(code),
                        meaning);
  }
  return text + ".";
}

// The help in the width of the terminal; the formatter of CLI11 breaks no lines. Examples stay
// whole, to be copied.
std::string fitted(const std::string& help, const Style& style) {
  constexpr std::size_t narrow = 6;
  const auto fits = [&](std::size_t column) {
    return column <= narrow || column + 24 <= text_width(style);
  };
  std::istringstream lines(help);
  std::string text;
  bool example = false;
  for (std::string line; std::getline(lines, line);) {
    example = line == "Examples:" || (example && !line.empty());
    const auto indent = std::min(line.find_first_not_of(' '), line.size());
    const auto gap = line.find("  ", indent);
    if (example || line.empty()) {
      text += line;
    } else if (gap == std::string::npos) {
      text += wrapped(line, fits(indent) ? indent : narrow, style);
    } else {
      const auto column = line.find_first_not_of(' ', gap);
      text += labelled(line.substr(0, fits(column) ? column : gap), line.substr(column),
                       fits(column) ? column : narrow, style);
    }
    text += '\n';
  }
  return text;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("The reference suite for GPU memory leaks in LibTorch programs.", "leaklab");
  app.set_version_flag("--version", "leaklab " LEAKLAB_VERSION);
  app.footer("All commands above take --help and --json FILE.\n" +
             exit_codes({{Exit::ok, "all good"},
                         {Exit::finding, "a leak or a regression"},
                         {Exit::nothing_ran, "nothing could run here"},
                         {Exit::undecided, "undecided: the file can't tell"}}));
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const auto& command : commands()) {
    auto* sub = app.add_subcommand(command.name, command.summary);
    sub->footer(fmt::format("Examples:\n{}\n\n{}{}{}", command.examples, command.notes,
                            command.notes.empty() ? "" : "\n", exit_codes(command.exits)));
    if (command.hidden) sub->group("");
    actions.emplace_back(sub, command.add(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      print("", {},
            error.get_name() == "CallForVersion" ? fmt::format("{}\n", error.what())
                                                 : fitted(app.help(), style_of(stdout)));
      return static_cast<int>(Exit::ok);
    }
    const auto used = app.get_subcommands();
    return fail(fmt::format("{}; see `leaklab {}--help`{}", sentence(error),
                            used.empty() ? "" : used.front()->get_name() + " ",
                            used.empty() ? "" : nearest_option(*used.front())),
                Exit::usage);
  }
  for (const auto& [sub, action] : actions) {
    if (sub->parsed()) return static_cast<int>(action());
  }
  return static_cast<int>(Exit::usage);
}

int run(int argc, char** argv) {
  // A file that grows beyond its limit is an error of a write and no death.
  std::signal(SIGXFSZ, SIG_IGN);
  if (const auto gpus = allotted_gpus([](const auto& name) { return std::getenv(name.c_str()); })) {
    ::setenv("CUDA_VISIBLE_DEVICES", gpus->c_str(), /*replace=*/1);
  }
  try {
    if (const auto faults = registry_faults(); !faults.empty()) {
      for (const auto& fault : faults) fail(fault, Exit::internal);
      return static_cast<int>(Exit::internal);
    }
    refuse_empty_words(argc, argv);
    expect_known_command(argc, argv);
    return parse_and_run(argc, argv);
  } catch (const Error& error) {
    return fail(error.what(), error.code());
  } catch (const std::exception& error) {
    return fail(error.what(), Exit::internal);
  }
}

}  // namespace
}  // namespace leaklab

int main(int argc, char** argv) { return leaklab::run(argc, argv); }

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

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

int parse_and_run(int argc, char** argv) {
  CLI::App app("The reference suite for GPU memory leaks in LibTorch programs.", "leaklab");
  app.set_version_flag("--version", "leaklab " LEAKLAB_VERSION);
  app.footer(
      "Exit codes: 0 all good, 1 a leak or a regression, 2 a wrong call or a file that can't be "
      "read,\n"
      "3 nothing could run here, 4 a fault of leaklab or of the machine, 5 undecided: the file "
      "can't\n"
      "tell. All commands above take --help and --json FILE.");
  app.require_subcommand(1);
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const auto& command : commands()) {
    auto* sub = app.add_subcommand(command.name, command.summary);
    sub->footer("Examples:\n" + command.examples);
    if (command.hidden) sub->group("");
    actions.emplace_back(sub, command.add(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    const auto used = app.get_subcommands();
    return fail(fmt::format("{}; see `leaklab {}--help`", error.what(),
                            used.empty() ? "" : used.front()->get_name() + " "),
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

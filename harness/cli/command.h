// Subcommands of `leaklab`. One file a subcommand; nothing else to edit to add one.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "leaklab/error.h"

namespace leaklab {

// What a subcommand does once its arguments are read.
using Action = std::function<Exit()>;

struct Command {
  std::string name;
  std::string summary;   // one sentence
  std::string examples;  // shown at the end of its help
  // What its exit codes mean, but for the two that mean the same for all: usage and internal.
  std::map<Exit, std::string> exits;
  // Declares its arguments; the action finds their values.
  std::function<Action(CLI::App&)> add;
  std::string notes = {};  // what else its help says
  bool hidden = false;
};

// Sorted by name.
const std::vector<Command>& commands();

struct CommandRegistration {
  explicit CommandRegistration(Command command);
};

}  // namespace leaklab

#include "command.h"

#include <algorithm>

namespace leaklab {
namespace {

std::vector<Command>& registered() {
  static std::vector<Command> all;
  return all;
}

}  // namespace

const std::vector<Command>& commands() { return registered(); }

CommandRegistration::CommandRegistration(Command command) {
  auto& all = registered();
  const auto place = std::ranges::upper_bound(all, command.name, {}, &Command::name);
  all.insert(place, std::move(command));
}

}  // namespace leaklab

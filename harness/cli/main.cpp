#include <iostream>
#include <nlohmann/json.hpp>
#include "leaklab/engine.h"
#include "leaklab/file.h"
using namespace leaklab;
int main(int argc, char** argv) {
  const auto& s = find_scenario(argv[1]);
  for (auto& f : registry_faults()) std::cerr << f << "\n";
  RunConfig c;
  c.twin = std::string(argv[2]) == "leaky" ? Twin::leaky : Twin::fixed;
  c.setting = Setting(s.id, s.params, {});
  c.steps = s.steps;
  c.warmup = s.warmup;
  c.backend = "cpu";
  c.sites = argc > 3;
  std::cout << to_text(to_json(engine()->execute(s, c))) << std::endl;
  _exit(0);
}

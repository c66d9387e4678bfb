#include "leaklab/probe.h"

#include <algorithm>

namespace leaklab {
namespace {

std::vector<NamedProbe>& registered() {
  static std::vector<NamedProbe> all;
  return all;
}

}  // namespace

const std::vector<NamedProbe>& probes() { return registered(); }

ProbeRegistration::ProbeRegistration(std::string name, ProbeFactory make) {
  auto& all = registered();
  const auto place = std::ranges::upper_bound(all, name, {}, &NamedProbe::name);
  all.insert(place, NamedProbe{std::move(name), std::move(make)});
}

}  // namespace leaklab

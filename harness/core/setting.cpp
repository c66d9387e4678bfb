#include "leaklab/setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "leaklab/error.h"
#include "nearest.h"

namespace leaklab {

Setting::Setting(std::string_view scenario, const std::vector<Param>& declared,
                 const std::map<std::string, std::int64_t>& overrides) {
  std::vector<std::string_view> names;
  for (const auto& param : declared) {
    values_[param.name] = param.value;
    names.push_back(param.name);
  }
  for (const auto& [name, value] : overrides) {
    const auto param = std::ranges::find(declared, name, &Param::name);
    if (param == declared.end()) {
      throw UsageError(
          fmt::format("scenario '{}' has no parameter '{}'{}; it has: {}", scenario, name,
                      nearest_names(name, names),
                      names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
    }
    if (value < param->min || value > param->max) {
      throw UsageError(fmt::format("parameter '{}' of scenario '{}' is {}, outside {} to {}", name,
                                   scenario, value, param->min, param->max));
    }
    values_[name] = value;
  }
}

std::int64_t Setting::operator[](std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) {
    throw InternalError(fmt::format("parameter '{}' is used but not declared", name));
  }
  return found->second;
}

}  // namespace leaklab

#include "allotted_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

namespace leaklab {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

}  // namespace

std::optional<std::string> allotted_gpus(
    const std::function<const char*(const std::string&)>& variable) {
  const char* visible = variable("CUDA_VISIBLE_DEVICES");
  const auto names = split(visible == nullptr ? "" : visible, ',');
  std::vector<std::string> allotted;
  for (int group = 0;; ++group) {
    const char* given = variable(fmt::format("CTEST_RESOURCE_GROUP_{}_GPUS", group));
    if (given == nullptr) break;
    for (const auto& part : split(given, ';')) {
      const auto word = split(part, ',').front();
      auto id = word.substr(std::min(word.size(), word.find(':') + 1));
      // Ids count the GPUs that are visible.
      std::size_t index = 0;
      const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), index);
      if (error == std::errc() && end == id.data() + id.size() && index < names.size()) {
        id = names[index];
      }
      if (std::ranges::find(allotted, id) == allotted.end()) allotted.push_back(id);
    }
  }
  if (allotted.empty()) return std::nullopt;
  return fmt::format("{}", fmt::join(allotted, ","));
}

}  // namespace leaklab

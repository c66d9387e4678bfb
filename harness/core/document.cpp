#include "document.h"

#include <fmt/format.h>

#include <charconv>

#include "leaklab/error.h"
#include "leaklab/judging.h"

namespace leaklab {

Document::Document(const nlohmann::json& value, std::string_view origin)
    : value_(value), origin_(origin) {
  if (!value.is_object()) fail("is not a JSON object");
}

void Document::fail(std::string_view what) const {
  throw UsageError(fmt::format("{} {}; record it anew with `leaklab record`", origin_, what));
}

const nlohmann::json& Document::at(const char* key) const {
  const auto found = value_.find(key);
  if (found == value_.end()) fail(fmt::format("has no key '{}'", key));
  return *found;
}

std::string Document::text(const char* key) const {
  const auto& value = at(key);
  if (!value.is_string()) fail(fmt::format("has no text under '{}'", key));
  return value.get<std::string>();
}

Shape Document::shape(const char* key) const {
  try {
    return shape_from_string(text(key));
  } catch (const UsageError& error) {
    fail(fmt::format("has a wrong word under '{}': {}", key, error.what()));
  }
}

std::int64_t Document::integer(const char* key) const {
  const auto& value = at(key);
  if (!value.is_number_integer()) fail(fmt::format("has no integer under '{}'", key));
  return value.get<std::int64_t>();
}

bool Document::boolean(const char* key) const {
  const auto& value = at(key);
  if (!value.is_boolean()) fail(fmt::format("has neither true nor false under '{}'", key));
  return value.get<bool>();
}

Twin Document::twin(const char* key) const {
  const auto word = text(key);
  if (word != "fixed" && word != "leaky") {
    fail(fmt::format("has '{}' under '{}', not fixed or leaky", word, key));
  }
  return word == "leaky" ? Twin::leaky : Twin::fixed;
}

std::uint64_t Document::hash(const char* key) const {
  const auto word = text(key);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
  if (error != std::errc() || end != word.data() + word.size() || word.size() != 16) {
    fail(fmt::format("has no hash of 16 hexadecimal digits under '{}'", key));
  }
  return value;
}

std::vector<std::int64_t> Document::series(const char* key) const {
  std::vector<std::int64_t> values;
  for (const auto& value : array(key)) {
    if (!value.is_number_integer())
      fail(fmt::format("has something else than integers in '{}'", key));
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

std::map<std::string, std::int64_t, std::less<>> Document::integers(const char* key) const {
  std::map<std::string, std::int64_t, std::less<>> values;
  for (const auto& [name, value] : object(key).items()) {
    if (!value.is_number_integer()) fail(fmt::format("has no integer under '{}.{}'", key, name));
    values.emplace(name, value.get<std::int64_t>());
  }
  return values;
}

const nlohmann::json& Document::object(const char* key) const {
  const auto& value = at(key);
  if (!value.is_object()) fail(fmt::format("has no object under '{}'", key));
  return value;
}

const nlohmann::json& Document::array(const char* key) const {
  const auto& value = at(key);
  if (!value.is_array()) fail(fmt::format("has no list under '{}'", key));
  return value;
}

void Document::require_schema(std::int64_t version) const {
  if (const auto found = integer("schema"); found != version) {
    fail(fmt::format("has schema version {}, this leaklab reads {}", found, version));
  }
}

std::string hash_text(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace leaklab

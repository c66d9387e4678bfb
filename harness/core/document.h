// Typed access to a JSON document, with errors that name the file and the key.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "leaklab/registry.h"
#include "leaklab/signature.h"

namespace leaklab {

class Document {
 public:
  // Throws UsageError where `value` is not an object.
  Document(const nlohmann::json& value, std::string_view origin);

  // Each throws UsageError that names origin and key for a value that is missing or of another
  // type.
  std::string text(const char* key) const;
  std::int64_t integer(const char* key) const;
  bool boolean(const char* key) const;
  Twin twin(const char* key) const;
  std::uint64_t hash(const char* key) const;
  Shape shape(const char* key) const;
  std::vector<std::int64_t> series(const char* key) const;
  std::map<std::string, std::int64_t, std::less<>> integers(const char* key) const;
  const nlohmann::json& object(const char* key) const;
  const nlohmann::json& array(const char* key) const;
  // Throws where the document's "schema" is another.
  void require_schema(std::int64_t version) const;
  [[noreturn]] void fail(std::string_view what) const;

 private:
  const nlohmann::json& at(const char* key) const;

  const nlohmann::json& value_;
  std::string origin_;
};

}  // namespace leaklab

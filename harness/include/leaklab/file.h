// Files, whole or not at all.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace leaklab {

// Writes to a temporary file beside `path`, which commit() syncs and renames, so that a reader sees
// the old text or the new one. Creates the folder. Throws an error that names the path and the
// cause: UsageError where no file can be there (a folder, a folder in a file) or this user may not
// write one, else InternalError (a full disk). What was there before stays as it was, and so it
// does where the writer is destroyed without a commit().
class FileWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::string_view text);
  void commit();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

// The same of a text that is there already.
void write_file(const std::filesystem::path& path, const std::string& text);

// Throws UsageError that names the path and the cause.
std::string read_file(const std::filesystem::path& path);

// The text of our JSON files: two spaces, sorted keys, arrays of numbers and small inner objects on
// one line, a newline at the end.
std::string to_text(const nlohmann::json& document);

}  // namespace leaklab

// Files, whole or not at all.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace leaklab {

// Writes to a temporary file beside `path`, syncs it and renames it, so that a reader sees the old
// text or the new one. Creates the folder. Throws InternalError that names the path and the cause
// (an unwritable folder, a full disk); what was there before stays as it was.
void write_file(const std::filesystem::path& path, const std::string& text);

// Throws UsageError that names the path and the cause.
std::string read_file(const std::filesystem::path& path);

// The text of our JSON files: two spaces, sorted keys, arrays of numbers and small inner objects on
// one line, a newline at the end.
std::string to_text(const nlohmann::json& document);

}  // namespace leaklab

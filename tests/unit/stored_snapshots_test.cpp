// The diagnosis of recorded snapshots against what is known of them: truth.json beside each folder.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "leaklab/diagnosis.h"

namespace leaklab {
namespace {

namespace fs = std::filesystem;

std::string last_part(const std::string& path) { return path.substr(path.find_last_of("/\\") + 1); }

// Whether what it found has no frame in the file: it then names the line that ran before it.
bool is_without_frame(const Finding& finding) { return finding.frames.empty(); }

// Whether a finding stands on one of the lines that allocate or keep what leaks.
bool is_at(const Finding& finding, const nlohmann::json& leak) {
  if (leak["alloc_sites"].empty() && is_without_frame(finding)) return true;
  for (const auto* key : {"alloc_sites", "keep_sites"}) {
    for (const auto& site : leak[key]) {
      if (last_part(finding.site.file) == site["file"].get<std::string>() &&
          finding.site.line == site["line"]) {
        return true;
      }
    }
  }
  return false;
}

// What differs from the truth; empty: nothing.
std::string wrong(const Diagnosis& found, const nlohmann::json& truth) {
  std::vector<std::string> verdicts = {truth["verdict"]};
  if (truth.contains("also_acceptable") && truth["also_acceptable"].is_array()) {
    for (const auto& each : truth["also_acceptable"]) verdicts.push_back(each);
  }
  // Without a history the file can't tell.
  if (truth["trace_entries"].is_number() && truth["trace_entries"] <= 1) verdicts = {"undecided"};
  const std::string verdict(to_string(found.verdict));
  if (std::ranges::find(verdicts, verdict) == verdicts.end()) return "verdict";
  std::string differs;
  const auto differ = [&](std::string_view what) {
    differs += differs.empty() ? "" : ", ";
    differs += what;
  };
  const bool framed = !truth["frames_on"].is_array() || !truth["frames_on"].empty();
  const auto known = framed && truth["leaks"].is_array() ? truth["leaks"] : nlohmann::json::array();
  for (const auto& leak : known) {
    const auto is_its = [&](const Finding& finding) { return is_at(finding, leak); };
    if (found.verdict != Verdict::clean && std::ranges::none_of(found.findings, is_its)) {
      differ("site");
    }
  }
  // What is live is named without a verdict on it.
  if (found.verdict == Verdict::undecided) return differs;
  for (const auto& finding : found.findings) {
    const auto is_of = [&](const nlohmann::json& leak) { return is_at(finding, leak); };
    const bool kept_without_frame = is_without_frame(finding) && truth.contains("kept_by_line") &&
                                    truth["kept_by_line"].contains("no frame");
    if (known.empty() || kept_without_frame || std::ranges::any_of(known, is_of)) continue;
    differ("another site");
  }
  if (truth["steps"].is_number() && truth["steps"] != found.steps.count) differ("steps");
  if (found.verdict == Verdict::clean) return differs;
  if (truth["onset_step"].is_number() && truth["onset_step"] != found.onset_step) differ("onset");
  if (truth["requested_bytes_per_step"].is_number() &&
      std::abs(truth["requested_bytes_per_step"].get<double>() - found.bytes_per_step) > 0.001) {
    differ("rate");
  }
  return differs;
}

// Rows of a table, and how many of them are wrong.
int compare(const fs::path& folder, std::string& table) {
  std::ifstream in(folder / "truth.json");
  const auto truth = nlohmann::json::parse(in);
  int failures = 0;
  for (const auto& [file, entry] : truth["files"].items()) {
    EXPECT_TRUE(fs::exists(folder / file)) << "truth.json tells of " << folder / file;
    const auto found = diagnose(read_snapshot(folder / file));
    const auto what = wrong(found, entry);
    failures += what.empty() ? 0 : 1;
    table += fmt::format("{:40} {:9} steps {:3} ({}) onset {:3} {:>12.3f} B/step  {}\n", file,
                         to_string(found.verdict), found.steps.count, found.steps.source,
                         found.onset_step, found.bytes_per_step, what.empty() ? "right" : what);
  }
  return failures;
}

TEST(StoredSnapshots, those_in_the_test_data_are_diagnosed_right) {
  std::string table;
  EXPECT_EQ(compare(fs::path(LEAKLAB_SOURCE_DIR) / "tests/data/snapshots", table), 0) << table;
  EXPECT_GE(std::ranges::count(table, '\n'), 17);
}

// LEAKLAB_SNAPSHOTS names a folder of pickles with a truth.json.
TEST(StoredSnapshots, those_of_a_folder_are_diagnosed_right) {
  const char* folder = std::getenv("LEAKLAB_SNAPSHOTS");
  if (folder == nullptr) GTEST_SKIP() << "LEAKLAB_SNAPSHOTS names no folder";
  std::string table;
  EXPECT_EQ(compare(folder, table), 0);
  std::fputs(table.c_str(), stdout);
}

}  // namespace
}  // namespace leaklab

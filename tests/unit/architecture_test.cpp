// The direction of dependencies, read off the sources.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

namespace {

namespace fs = std::filesystem;
const fs::path source_dir = LEAKLAB_SOURCE_DIR;

// The includes of a file, each as it stands between quotes or brackets.
std::vector<std::string> includes(const fs::path& file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::vector<std::string> found;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    // What follows may be the text of a file that is written.
    if (line.starts_with("namespace")) break;
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back(match[1]);
  }
  return found;
}

bool is_torch_or_cuda(const std::string& include) {
  static const std::regex pattern(
      R"(^(torch/|ATen/|c10/|caffe2/|cuda|cupti|nccl|nvml|leaklab/(torch|scenario|nets|amp|ddp|pinned_loader|performer)\.h))");
  return std::regex_search(include, pattern);
}

std::vector<fs::path> sources(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir / folder)) {
    const auto extension = entry.path().extension();
    if (extension == ".cpp" || extension == ".h") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Architecture, core_analysis_reports_and_command_line_include_nothing_of_torch_or_cuda) {
  for (const auto* folder : {"harness/analysis", "harness/core", "harness/report", "harness/cli"}) {
    ASSERT_FALSE(sources(folder).empty()) << folder;
    for (const auto& file : sources(folder)) {
      for (const auto& include : includes(file)) {
        EXPECT_FALSE(is_torch_or_cuda(include)) << file << " includes " << include;
      }
    }
  }
}

TEST(Architecture, scenarios_include_public_headers_and_libtorch_only) {
  for (const auto& file : sources("scenarios")) {
    for (const auto& include : includes(file)) {
      EXPECT_TRUE(include.starts_with("leaklab/") || include.find('/') == std::string::npos ||
                  is_torch_or_cuda(include))
          << file << " includes " << include;
    }
  }
}

TEST(Architecture, the_test_would_see_an_include_of_torch) {
  EXPECT_TRUE(is_torch_or_cuda("torch/torch.h"));
  EXPECT_TRUE(is_torch_or_cuda("cuda_runtime_api.h"));
  EXPECT_TRUE(is_torch_or_cuda("leaklab/scenario.h"));
  EXPECT_FALSE(is_torch_or_cuda("leaklab/recording.h"));
}

}  // namespace

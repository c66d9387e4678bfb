#include "leaklab/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <vector>

#include "core/fd.h"
#include "leaklab/error.h"
#include "leaklab/isolation.h"

namespace leaklab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class File : public testing::Test {
 protected:
  File() {
    std::string name = (fs::temp_directory_path() / "leaklab_file_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~File() override { fs::remove_all(folder_); }

  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      found.insert(entry.path().filename().string());
    }
    return found;
  }

  fs::path folder_;
};

// The sentence with which the write failed, or "".
std::string why_not_written(const fs::path& path, const std::string& text = "text") {
  try {
    write_file(path, text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string why_not_read(const fs::path& path) {
  try {
    read_file(path);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST_F(File, what_was_written_is_read_back) {
  const std::string text("line\n\0\xff no newline at the end", 29);
  write_file(folder_ / "a.json", text);
  EXPECT_EQ(read_file(folder_ / "a.json"), text);
}

TEST_F(File, an_empty_text_makes_an_empty_file) {
  write_file(folder_ / "a.json", "");
  EXPECT_EQ(read_file(folder_ / "a.json"), "");
}

TEST_F(File, a_text_of_several_megabytes_is_whole) {
  std::string text(5'000'003, 'x');
  text.back() = 'y';
  write_file(folder_ / "a.json", text);
  EXPECT_EQ(read_file(folder_ / "a.json"), text);
}

TEST_F(File, the_new_text_takes_the_place_of_the_old_and_nothing_else_is_left) {
  write_file(folder_ / "a.json", "a much longer old text");
  write_file(folder_ / "a.json", "new");
  EXPECT_EQ(read_file(folder_ / "a.json"), "new");
  EXPECT_EQ(names(), std::set<std::string>{"a.json"});
}

TEST_F(File, a_reader_of_the_old_file_keeps_the_old_text) {
  write_file(folder_ / "a.json", "old");
  std::ifstream reader(folder_ / "a.json");
  write_file(folder_ / "a.json", "new");
  std::stringstream text;
  text << reader.rdbuf();
  EXPECT_EQ(text.str(), "old");
}

TEST_F(File, missing_folders_are_made) {
  write_file(folder_ / "cpu" / "deep" / "a.json", "text");
  EXPECT_EQ(read_file(folder_ / "cpu" / "deep" / "a.json"), "text");
}

TEST_F(File, a_bare_name_is_written_to_the_current_folder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  write_file("bare.json", "text");
  fs::current_path(before);
  EXPECT_EQ(names(), std::set<std::string>{"bare.json"});
}

TEST_F(File, others_may_read_it_as_the_umask_says) {
  const mode_t before = ::umask(022);
  write_file(folder_ / "a.json", "text");
  ::umask(before);
  EXPECT_EQ(fs::status(folder_ / "a.json").permissions(), fs::perms(0644));
}

TEST_F(File, a_temporary_that_a_killed_process_left_is_in_nobodys_way) {
  std::ofstream(folder_ / (".leaklab-" + std::to_string(::getpid()) + "-0.tmp")) << "half";
  write_file(folder_ / "a.json", "text");
  EXPECT_EQ(read_file(folder_ / "a.json"), "text");
}

// Through a link, so that a write_file that replaces the file does not replace the device.
TEST_F(File, a_device_is_written_to_and_stays_a_device) {
  fs::create_symlink("/dev/null", folder_ / "null");
  write_file(folder_ / "null", "text");
  EXPECT_TRUE(fs::is_character_file(folder_ / "null"));
  EXPECT_EQ(names(), std::set<std::string>{"null"});
}

TEST_F(File, a_link_stays_a_link_and_its_target_is_written) {
  fs::create_directory(folder_ / "far");
  fs::create_symlink("far/target", folder_ / "link");
  write_file(folder_ / "link", "text");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "far/target"), "text");
  write_file(folder_ / "link", "new text");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "far/target"), "new text");
}

TEST_F(File, a_link_to_an_open_file_writes_into_that_file) {
  const Fd open(::open((folder_ / "out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  fs::create_symlink(fmt::format("/proc/self/fd/{}", open.get()), folder_ / "link");
  write_file(folder_ / "link", "text");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "out"), "text");
}

TEST_F(File, a_pipe_is_written_to) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  write_file("/proc/self/fd/" + std::to_string(fds[1]), "text");
  ::close(fds[1]);
  EXPECT_EQ(read_file("/proc/self/fd/" + std::to_string(fds[0])), "text");
  ::close(fds[0]);
}

TEST_F(File, a_folder_that_is_a_file_is_named_with_the_cause) {
  write_file(folder_ / "file", "text");
  const fs::path path = folder_ / "file" / "a.json";
  EXPECT_EQ(why_not_written(path),
            "can't write " + path.string() + ": Not a directory; check the path");
  EXPECT_EQ(read_file(folder_ / "file"), "text");
}

TEST_F(File, a_path_that_is_a_folder_is_refused) {
  fs::create_directory(folder_ / "sub");
  EXPECT_EQ(why_not_written(folder_ / "sub"),
            "can't write " + (folder_ / "sub").string() + ": Is a directory; check the path");
  EXPECT_EQ(names(), std::set<std::string>{"sub"});
}

TEST_F(File, a_file_system_that_takes_no_files_is_refused_even_as_root) {
  EXPECT_NE(why_not_written("/proc/leaklab.json").find("can't write /proc/leaklab.json: "),
            std::string::npos);
}

TEST_F(File, a_folder_that_one_may_not_write_to_is_a_wrong_path) {
  EXPECT_THROW(write_file("/sys/leaklab.json", "text"), UsageError) << "not as root either";
  EXPECT_THROW(write_file("/dev/full", "text"), InternalError);
}

TEST_F(File, a_device_without_space_is_told) {
  fs::create_symlink("/dev/full", folder_ / "full");
  EXPECT_EQ(why_not_written(folder_ / "full"),
            "can't write " + (folder_ / "full").string() +
                ": No space left on device; free some space or choose another disk");
}

TEST_F(File, a_write_that_fails_half_way_leaves_the_old_file_and_no_temporary) {
  const fs::path path = folder_ / "a.json";
  write_file(path, "old");
  const Job job = {[&path] {
    const rlimit limit = {100'000, 100'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    return why_not_written(path, std::string(200'000, 'x'));
  }};
  EXPECT_EQ(
      run_isolated({job}, {}).at(0).payload,
      "can't write " + path.string() + ": File too large; free some space or choose another disk");
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(names(), std::set<std::string>{"a.json"});
}

// Mounts a file system of 64 KiB over the folder, for the process that runs `work` alone.
ChildResult on_a_small_disk(const fs::path& folder, const std::function<std::string()>& work) {
  const Job job = {[&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder.c_str(), "tmpfs", 0, "size=64k") != 0) {
      return std::string("may not mount");
    }
    return work();
  }};
  return run_isolated({job}, {}).at(0);
}

TEST_F(File, a_full_disk_leaves_the_old_file_and_no_temporary) {
  const ChildResult result = on_a_small_disk(folder_, [this] {
    write_file(folder_ / "a.json", "old");
    const std::string why = why_not_written(folder_ / "a.json", std::string(100'000, 'x'));
    return why + "|" + read_file(folder_ / "a.json") + "|" + std::to_string(names().size());
  });
  if (result.payload == "may not mount") GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(result.payload, "can't write " + (folder_ / "a.json").string() +
                                ": No space left on device; "
                                "free some space or choose another disk|old|1");
}

TEST_F(File, a_read_only_disk_is_told) {
  const ChildResult result = on_a_small_disk(folder_, [this] {
    write_file(folder_ / "a.json", "old");
    ::mount("none", folder_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr);
    return why_not_written(folder_ / "a.json") + "|" + read_file(folder_ / "a.json");
  });
  if (result.payload == "may not mount") GTEST_SKIP() << "needs the right to mount";
  EXPECT_EQ(result.payload, "can't write " + (folder_ / "a.json").string() +
                                ": Read-only file system; "
                                "choose a folder that you may write to|old");
}

TEST_F(File, a_missing_file_is_named_with_the_cause) {
  const fs::path path = folder_ / "none.json";
  EXPECT_EQ(why_not_read(path),
            "can't read " + path.string() + ": No such file or directory; check the path");
}

TEST_F(File, a_folder_can_not_be_read) {
  EXPECT_EQ(why_not_read(folder_),
            "can't read " + folder_.string() + ": Is a directory; check the path");
}

TEST(ToText, objects_have_sorted_keys_and_an_indent_of_two) {
  const json document = {{"b", {{"z", nullptr}, {"y", {"text"}}}}, {"a", "text"}};
  EXPECT_EQ(to_text(document),
            "{\n"
            "  \"a\": \"text\",\n"
            "  \"b\": {\n"
            "    \"y\": [\n"
            "      \"text\"\n"
            "    ],\n"
            "    \"z\": null\n"
            "  }\n"
            "}\n");
}

TEST(ToText, an_inner_object_of_plain_values_takes_one_line_where_it_fits) {
  const json fits = {{"b", {{"z", nullptr}, {"y", true}}}};
  EXPECT_EQ(to_text(fits), "{\n  \"b\": {\"y\": true, \"z\": null}\n}\n");
  const json too_long = {{"b", {{"z", std::string(90, 'x')}, {"y", true}}}};
  EXPECT_EQ(to_text(too_long), "{\n  \"b\": {\n    \"y\": true,\n    \"z\": \"" +
                                   std::string(90, 'x') + "\"\n  }\n}\n");
}

TEST(ToText, what_is_empty_takes_no_lines) {
  EXPECT_EQ(to_text(json::object()), "{}\n");
  EXPECT_EQ(to_text(json::array()), "[]\n");
  EXPECT_EQ(to_text({{"a", json::array()}}), "{\n  \"a\": []\n}\n");
}

TEST(ToText, numbers_share_a_line_and_texts_do_not) {
  const json document = {{"numbers", {1, -2, 0.5}}, {"texts", {"a", "b"}}};
  EXPECT_EQ(to_text(document),
            "{\n"
            "  \"numbers\": [1, -2, 0.5],\n"
            "  \"texts\": [\n"
            "    \"a\",\n"
            "    \"b\"\n"
            "  ]\n"
            "}\n");
}

TEST(ToText, rows_of_numbers_share_a_line) {
  const json document = {{"runs", {{512, 40}, {0, 2}, json::array(), 7}}};
  EXPECT_EQ(to_text(document),
            "{\n"
            "  \"runs\": [[512, 40], [0, 2], [], 7]\n"
            "}\n");
}

TEST(ToText, rows_with_a_text_among_them_are_one_a_line) {
  const json document = {json::array({1, 2}), json::array({3, "four"})};
  EXPECT_EQ(to_text(document),
            "[\n"
            "  [1, 2],\n"
            "  [\n"
            "    3,\n"
            "    \"four\"\n"
            "  ]\n"
            "]\n");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ToText, numbers_that_are_too_many_for_a_line_fill_lines_of_100_columns) {
  for (std::int64_t number = 1; number < 1'000'000'000'000; number *= 10) {
    const std::size_t cell = std::to_string(number).size() + 2;  // with ", "
    const auto lines = lines_of(to_text({{"a", std::vector<std::int64_t>(300, number)}}));
    ASSERT_GT(lines.size(), 6U);
    EXPECT_EQ(lines[1], "  \"a\": [");
    EXPECT_EQ(lines[lines.size() - 2], "  ]");
    for (std::size_t i = 2; i + 3 < lines.size(); ++i) {
      EXPECT_EQ(lines[i].substr(0, 5), "    1");
      EXPECT_EQ(lines[i].back(), ',');
      EXPECT_LE(lines[i].size(), 100U);
      EXPECT_GT(lines[i].size() + cell, 100U);
    }
  }
}

TEST(ToText, a_line_is_broken_only_where_it_would_be_too_long) {
  const json numbers = {1000, 2000};
  const std::string rest = "  \"\": [1000, 2000]";
  const std::string key(99 - rest.size(), 'k');
  EXPECT_EQ(lines_of(to_text({{key, numbers}})).size(), 3U);
  EXPECT_EQ(lines_of(to_text({{key + "k", numbers}})).size(), 5U);
}

TEST(ToText, rows_stay_together_where_lines_are_broken) {
  json document = json::array();
  for (int i = 0; i < 40; ++i) document.push_back({1000 + i, 2000 + i});
  const std::vector<std::string> lines = lines_of(to_text(document));
  ASSERT_GT(lines.size(), 4U);
  EXPECT_EQ(lines.front(), "[");
  EXPECT_EQ(lines.back(), "]");
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    EXPECT_LE(lines[i].size(), 100U);
    EXPECT_EQ(lines[i].substr(0, 3), "  [");
    EXPECT_EQ(lines[i].find_last_of(']'), lines[i].find_last_not_of(','));
  }
}

TEST(ToText, the_same_document_comes_back) {
  json document = {{"big", std::int64_t{9007199254740993}},
                   {"most", std::uint64_t{18446744073709551615U}},
                   {"text", "quote \" tab \t newline \n ä"},
                   {"ratio", 0.1},
                   {"nested", {{{"deep", {1, 2, 3}}}, {{"deep", json::array()}}}}};
  for (int i = 0; i < 500; ++i) document["series"].push_back(i * i - 1000);
  for (int i = 0; i < 100; ++i) document["runs"].push_back({i, -i, i * 1000});
  EXPECT_EQ(json::parse(to_text(document)), document);
  EXPECT_EQ(to_text(json::parse(to_text(document))), to_text(document));
}

TEST(ToText, bytes_that_are_no_utf8_are_replaced) {
  EXPECT_EQ(to_text("a\xff"
                    "b"),
            "\"a\xef\xbf\xbd"
            "b\"\n");
}

}  // namespace
}  // namespace leaklab

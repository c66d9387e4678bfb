// Runs the program as a user does.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "leaklab/file.h"

namespace leaklab {

// A recorded snapshot of tests/data.
inline std::string stored(const std::string& name) {
  return LEAKLAB_SOURCE_DIR "/tests/data/snapshots/" + name + ".pickle";
}

// What a command prints on a terminal.
inline std::string on_terminal(const std::string& command, unsigned short columns = 0) {
  int terminal = -1;
  const winsize size = {24, columns, 0, 0};
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("TERM", "xterm", 1);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::read(terminal, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return text;
}

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

class Program : public testing::Test {
 protected:
  void SetUp() override {
    auto folder = (std::filesystem::temp_directory_path() / "leaklab_cli_XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A shell command in the test's own folder, in which $leaklab is the program.
  Ran shell(const std::string& command) const {
    const auto out = folder_ / "stdout";
    const auto err = folder_ / "stderr";
    const auto line = "cd " + folder_.string() + "; leaklab=" LEAKLAB_PROGRAM "; { " + command +
                      "\n} >" + out.string() + " 2>" + err.string() + " </dev/null";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
  }
  Ran leaklab(const std::string& arguments) const { return shell("$leaklab " + arguments); }

  // A call that must fail: its sentence on stderr, nothing on stdout.
  std::string refused(const std::string& arguments, int code) const {
    const auto ran = leaklab(arguments);
    EXPECT_EQ(ran.code, code) << arguments << "\n" << ran.err;
    EXPECT_EQ(ran.out, "") << arguments;
    EXPECT_TRUE(ran.err.starts_with("leaklab: ")) << ran.err;
    return ran.err;
  }

  nlohmann::json document(const std::string& arguments) const {
    return nlohmann::json::parse(leaklab(arguments + " --json -").out);
  }

  // Without LibTorch there are no scenarios to run.
  static bool has_scenarios() {
    static const bool has = std::system(LEAKLAB_PROGRAM " list --json - | grep -q '\"id\"'") == 0;
    return has;
  }

  std::filesystem::path folder_;
};

// Tests of runs; their folder has a baseline of one scenario for the CPU.
class Runs : public Program {
 protected:
  static constexpr auto id = "retained_graph_loss_list";

  void SetUp() override {
    Program::SetUp();
    if (!has_scenarios()) GTEST_SKIP() << "this build has no LibTorch";
  }
  void record() const {
    const auto ran = leaklab("record " + std::string(id) + " --env cpu --baselines baselines");
    ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  }
  std::filesystem::path baseline() const {
    return folder_ / "baselines/cpu" / (std::string(id) + ".json");
  }
  std::string check(const std::string& more = "") const {
    return "check " + std::string(id) + " --env cpu --baselines baselines " + more;
  }
};

}  // namespace leaklab

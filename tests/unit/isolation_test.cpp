#include "leaklab/isolation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <stdexcept>

#include "leaklab/error.h"

namespace leaklab {
namespace {

using std::chrono::milliseconds;
namespace fs = std::filesystem;

ChildResult run_one(const std::function<std::string()>& work,
                    const IsolationOptions& options = {}) {
  return run_isolated({Job{work}}, options).at(0);
}

[[noreturn]] void hang() {
  while (true) ::pause();
}

// A pipe that is at its end once every process that holds it is gone.
class Lifeline {
 public:
  Lifeline() {
    if (::pipe(fds_.data()) != 0) throw std::runtime_error("no pipe");
  }
  ~Lifeline() {
    ::close(fds_[0]);
    close_own();
  }
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  void signal() const {
    if (::write(fds_[1], "x", 1) != 1) std::abort();
  }
  // Waits for a signal (true) or for the end (false).
  bool wait() const {
    char byte;
    return ::read(fds_[0], &byte, 1) == 1;
  }
  void close_own() { ::close(std::exchange(fds_[1], -1)); }

 private:
  std::array<int, 2> fds_{};
};

TEST(Isolation, no_jobs_give_no_results) { EXPECT_TRUE(run_isolated({}, {}).empty()); }

TEST(Isolation, what_the_work_returns_is_the_payload) {
  const ChildResult result = run_one([] { return "text"; });
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_EQ(result.payload, "text");
  EXPECT_EQ(result.detail, "");
  EXPECT_EQ(result.log, "");
}

TEST(Isolation, an_empty_payload_is_a_result) {
  EXPECT_EQ(run_one([] { return ""; }).ending, Ending::finished);
}

TEST(Isolation, a_payload_of_8_megabytes_arrives_whole) {
  const auto work = [] {
    std::string text(8 * 1024 * 1024, '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 7);
    return text;
  };
  const ChildResult result = run_one(work);
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_TRUE(result.payload == work());
}

TEST(Isolation, the_work_runs_in_another_process) {
  int here = 0;
  const ChildResult result = run_one([&here] {
    here = 1;
    return std::to_string(::getpid());
  });
  EXPECT_EQ(here, 0);
  EXPECT_NE(result.payload, std::to_string(::getpid()));
}

TEST(Isolation, an_exception_is_told_by_its_text) {
  const ChildResult result =
      run_one([]() -> std::string { throw std::runtime_error("expected 4 rows"); });
  EXPECT_EQ(result.ending, Ending::failed);
  EXPECT_EQ(result.detail, "expected 4 rows");
  EXPECT_EQ(result.payload, "");
}

TEST(Isolation, an_error_keeps_its_exit_code) {
  const ChildResult result =
      run_one([]() -> std::string { throw InternalError("can't write a.pickle"); });
  EXPECT_EQ(result.ending, Ending::failed);
  EXPECT_EQ(result.detail, "can't write a.pickle");
  EXPECT_EQ(result.error, Exit::internal);
  EXPECT_FALSE(run_one([]() -> std::string { throw 7; }).error);
}

TEST(Isolation, an_exception_of_any_type_is_a_failure) {
  const ChildResult result = run_one([]() -> std::string { throw 7; });
  EXPECT_EQ(result.ending, Ending::failed);
  EXPECT_EQ(result.detail, "an exception that is no std::exception");
}

TEST(Isolation, device_memory_that_ran_out_is_told_in_the_allocators_words) {
  const ChildResult result =
      run_one([]() -> std::string { throw OutOfMemory("CUDA out of memory. Tried 2 GiB"); });
  EXPECT_EQ(result.ending, Ending::oom);
  EXPECT_EQ(result.detail, "CUDA out of memory. Tried 2 GiB");
}

TEST(Isolation, host_memory_that_ran_out_is_told) {
  const ChildResult result = run_one([]() -> std::string { throw std::bad_alloc(); });
  EXPECT_EQ(result.ending, Ending::oom);
  EXPECT_EQ(result.detail, "out of host memory (std::bad_alloc)");
}

TEST(Isolation, a_crash_is_told_by_its_signal) {
  const ChildResult result = run_one([]() -> std::string {
    ::raise(SIGSEGV);
    return "";
  });
  EXPECT_EQ(result.ending, Ending::crashed);
  EXPECT_EQ(result.detail, "killed by SIGSEGV (segmentation fault)");
  EXPECT_EQ(result.payload, "");
}

TEST(Isolation, a_signal_without_a_name_is_told_by_its_number) {
  const ChildResult result = run_one([]() -> std::string {
    ::raise(SIGRTMIN + 3);
    return "";
  });
  EXPECT_EQ(result.detail, "killed by signal " + std::to_string(SIGRTMIN + 3));
}

TEST(Isolation, a_kill_from_outside_hints_at_the_memory) {
  const ChildResult result = run_one([]() -> std::string {
    ::raise(SIGKILL);
    return "";
  });
  EXPECT_EQ(result.ending, Ending::crashed);
  EXPECT_EQ(result.detail,
            "killed by SIGKILL from outside: the system may have been out of memory");
}

TEST(Isolation, an_exit_without_a_result_is_a_crash_with_its_code) {
  const ChildResult result = run_one([]() -> std::string { std::exit(3); });
  EXPECT_EQ(result.ending, Ending::crashed);
  EXPECT_EQ(result.detail, "exited with code 3 and gave no result");
}

TEST(Isolation, an_exit_with_code_0_is_no_result_either) {
  const ChildResult result = run_one([]() -> std::string { ::_exit(0); });
  EXPECT_EQ(result.ending, Ending::crashed);
  EXPECT_EQ(result.detail, "exited with code 0 and gave no result");
}

TEST(Isolation, a_hang_is_killed_at_its_time_limit) {
  IsolationOptions options;
  options.time_limit = milliseconds(200);
  const ChildResult result = run_one(
      []() -> std::string {
        std::puts("waiting for a collective");
        hang();
      },
      options);
  EXPECT_EQ(result.ending, Ending::timeout);
  EXPECT_EQ(result.detail, "gave no result within its time limit of 200 ms");
  EXPECT_EQ(result.log, "waiting for a collective\n");
}

TEST(Isolation, a_hang_that_blocks_every_signal_and_floods_its_output_is_killed_too) {
  IsolationOptions options;
  options.time_limit = milliseconds(1000);
  const ChildResult result = run_one(
      []() -> std::string {
        sigset_t all;
        ::sigfillset(&all);
        ::sigprocmask(SIG_SETMASK, &all, nullptr);
        while (true) std::puts("still here");
      },
      options);
  EXPECT_EQ(result.ending, Ending::timeout);
  EXPECT_EQ(result.detail, "gave no result within its time limit of 1 s");
}

TEST(Isolation, any_time_limit_is_taken) {
  IsolationOptions options;
  options.time_limit = milliseconds::max();
  EXPECT_EQ(run_one([] { return "text"; }, options).ending, Ending::finished);
}

TEST(IsolationLog, both_standard_streams_are_kept_in_the_order_of_their_writes) {
  const ChildResult result = run_one([] {
    std::printf("a");
    std::cerr << "b";
    std::cout << "c";
    std::fprintf(stderr, "d");
    std::clog << "e";
    return "text";
  });
  EXPECT_EQ(result.log, "abcde");
  EXPECT_EQ(result.payload, "text");
}

TEST(IsolationLog, what_was_printed_before_an_abort_is_kept) {
  const ChildResult result = run_one([]() -> std::string {
    std::printf("half a line, ");
    std::cout << "and the other half";
    std::abort();
  });
  EXPECT_EQ(result.detail, "killed by SIGABRT (aborted)");
  EXPECT_EQ(result.log, "half a line, and the other half");
}

TEST(IsolationLog, what_was_printed_past_stdio_before_an_abort_is_kept) {
  const ChildResult result = run_one([]() -> std::string {
    std::ios::sync_with_stdio(false);
    std::cout << "half a line";
    std::abort();
  });
  EXPECT_EQ(result.log, "half a line");
}

TEST(IsolationLog, streams_that_are_buffered_anew_are_flushed_at_the_end) {
  std::array<char, 4096> buffer;
  const ChildResult result = run_one([&buffer] {
    std::setvbuf(stdout, buffer.data(), _IOFBF, buffer.size());
    std::printf("buffered");
    return "";
  });
  EXPECT_EQ(result.log, "buffered");
}

TEST(IsolationLog, a_flood_of_50_megabytes_leaves_its_first_and_its_last_part) {
  constexpr std::size_t flood = 50'000'000;
  IsolationOptions options;
  options.log_limit = 1000;
  const ChildResult result = run_one(
      [] {
        const std::string line = "0123456789012345678901234567890123456789012345678\n";
        for (std::size_t i = 0; i < flood / line.size(); ++i) std::fputs(line.c_str(), stdout);
        std::fputs("the end", stdout);
        return "text";
      },
      options);
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_EQ(result.payload, "text");
  EXPECT_EQ(result.log.substr(0, 55), "0123456789012345678901234567890123456789012345678\n01234");
  EXPECT_EQ(result.log.substr(500, 27), "\n[49999007 bytes left out]\n");
  EXPECT_EQ(result.log.substr(result.log.size() - 10), "78\nthe end");
  EXPECT_LT(result.log.size(), 1040U);
}

TEST(IsolationLog, a_flood_does_not_grow_the_parent) {
  const ChildResult result = run_one([] {
    const auto most_kilobytes = [] {
      rusage usage;
      ::getrusage(RUSAGE_SELF, &usage);
      return usage.ru_maxrss;
    };
    const long before = most_kilobytes();
    run_one([] {
      const std::string block(100'000, 'x');
      for (int i = 0; i < 500; ++i) std::fputs(block.c_str(), stdout);
      return "text";
    });
    return std::to_string(most_kilobytes() - before);
  });
  EXPECT_LT(std::stol(result.payload), 10'000);
}

TEST(IsolationLog, a_text_of_the_limit_is_kept_whole) {
  IsolationOptions options;
  options.log_limit = 11;
  EXPECT_EQ(run_one(
                []() -> std::string {
                  std::printf("01234567890");
                  return "";
                },
                options)
                .log,
            "01234567890");
  EXPECT_EQ(run_one(
                []() -> std::string {
                  std::printf("012345678901");
                  return "";
                },
                options)
                .log,
            "01234\n[1 bytes left out]\n678901");
}

TEST(IsolationLog, a_child_may_close_its_standard_streams) {
  const ChildResult result = run_one([] {
    std::puts("before");
    std::fclose(stdout);
    ::close(STDERR_FILENO);
    return "text";
  });
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_EQ(result.payload, "text");
  EXPECT_EQ(result.log, "before\n");
}

TEST(IsolationMany, ten_jobs_two_at_a_time_keep_their_order) {
  std::vector<Job> jobs;
  for (int i = 0; i < 10; ++i) {
    jobs.push_back({[i] {
      std::printf("log %d", i);
      return "result " + std::to_string(i);
    }});
  }
  IsolationOptions options;
  options.at_once = 2;
  std::vector<std::size_t> started;
  std::vector<std::size_t> ended;
  options.on_start = [&](std::size_t job) {
    started.push_back(job);
    EXPECT_LE(started.size() - ended.size(), 2U);
  };
  options.on_end = [&](std::size_t job, const ChildResult& result) {
    ended.push_back(job);
    EXPECT_EQ(result.payload, "result " + std::to_string(job));
  };
  const std::vector<ChildResult> results = run_isolated(jobs, options);

  ASSERT_EQ(results.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(results[i].payload, "result " + std::to_string(i));
    EXPECT_EQ(results[i].log, "log " + std::to_string(i));
  }
  EXPECT_EQ(started, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended, started);
}

TEST(IsolationMany, jobs_run_at_the_same_time) {
  Lifeline line;
  const std::vector<Job> jobs = {{[&line] { return line.wait() ? "heard" : "alone"; }}, {[&line] {
                                   line.signal();
                                   return "told";
                                 }}};
  IsolationOptions options;
  options.at_once = 2;
  const std::vector<ChildResult> results = run_isolated(jobs, options);
  EXPECT_EQ(results[0].payload, "heard");
  EXPECT_EQ(results[1].payload, "told");
}

TEST(IsolationMany, a_job_that_ends_makes_room_while_others_go_on) {
  Lifeline line;
  std::vector<Job> jobs = {{[&line] { return line.wait() ? "heard" : "alone"; }}};
  for (int i = 0; i < 5; ++i) jobs.push_back({[] { return "quick"; }});
  jobs.push_back({[&line] {
    line.signal();
    return "told";
  }});
  IsolationOptions options;
  options.at_once = 2;
  EXPECT_EQ(run_isolated(jobs, options)[0].payload, "heard");
}

TEST(IsolationMany, none_at_once_is_taken_as_one) {
  IsolationOptions options;
  options.at_once = 0;
  EXPECT_EQ(run_one([] { return "text"; }, options).payload, "text");
}

TEST(IsolationMany, bad_ends_leave_the_results_of_the_others) {
  const auto good = [] { return "good"; };
  const std::vector<Job> jobs = {
      {good},
      {[]() -> std::string { std::abort(); }},
      {[]() -> std::string { hang(); }},
      {good},
      {[]() -> std::string { throw std::runtime_error("bad"); }},
      {[]() -> std::string { throw OutOfMemory("full"); }},
      {good},
  };
  IsolationOptions options;
  options.at_once = 3;
  options.time_limit = milliseconds(2000);
  const std::vector<ChildResult> results = run_isolated(jobs, options);
  std::vector<Ending> endings;
  for (const ChildResult& result : results) endings.push_back(result.ending);
  EXPECT_EQ(endings,
            (std::vector<Ending>{Ending::finished, Ending::crashed, Ending::timeout,
                                 Ending::finished, Ending::failed, Ending::oom, Ending::finished}));
  EXPECT_EQ(results[6].payload, "good");
}

TEST(IsolationMany, a_callback_that_throws_takes_the_running_children_along) {
  Lifeline line;
  IsolationOptions options;
  options.on_start = [](std::size_t) { throw std::runtime_error("stop"); };
  EXPECT_THROW(run_one([]() -> std::string { hang(); }, options), std::runtime_error);
  line.close_own();
  EXPECT_FALSE(line.wait());
}

// Starts a process that holds all pipes; returns once it runs.
pid_t leave_behind(bool in_its_own_session, const std::function<void()>& work = hang) {
  const Lifeline running;
  const pid_t pid = ::fork();
  if (pid != 0) {
    running.wait();
    return pid;
  }
  if (in_its_own_session) ::setsid();
  running.signal();
  work();
  ::_exit(0);
}

TEST(IsolationGrandchildren, one_that_holds_the_pipes_is_killed_with_the_child) {
  Lifeline line;
  const ChildResult result = run_one([] {
    leave_behind(false);
    std::puts("left one behind");
    return "text";
  });
  EXPECT_EQ(result.ending, Ending::finished);
  EXPECT_EQ(result.payload, "text");
  EXPECT_EQ(result.log, "left one behind\n");
  line.close_own();
  EXPECT_FALSE(line.wait());
}

TEST(IsolationGrandchildren, one_that_was_left_by_a_crash_is_killed_too) {
  Lifeline line;
  const ChildResult result = run_one([]() -> std::string {
    leave_behind(false);
    std::abort();
  });
  EXPECT_EQ(result.detail, "killed by SIGABRT (aborted)");
  line.close_own();
  EXPECT_FALSE(line.wait());
}

TEST(IsolationGrandchildren, one_that_fled_into_its_own_session_is_not_waited_for) {
  const ChildResult result = run_one([] { return std::to_string(leave_behind(true)); });
  EXPECT_EQ(result.ending, Ending::finished);
  ::kill(std::stoi(result.payload), SIGKILL);
}

TEST(IsolationGrandchildren, one_that_fled_and_floods_the_output_ends_when_nobody_reads) {
  Lifeline line;
  const ChildResult result = run_one([] {
    leave_behind(true, [] {
      while (true) std::puts("still here");
    });
    return "text";
  });
  EXPECT_EQ(result.payload, "text");
  line.close_own();
  EXPECT_FALSE(line.wait());
}

TEST(IsolationChild, dies_with_its_parent) {
  Lifeline line;
  const pid_t parent = ::fork();
  if (parent == 0) {
    run_one([&line]() -> std::string {
      line.signal();
      hang();
    });
    ::_exit(0);
  }
  EXPECT_TRUE(line.wait());
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  line.close_own();
  EXPECT_FALSE(line.wait());
}

TEST(IsolationChild, leads_a_process_group_of_its_own) {
  EXPECT_EQ(run_one([] { return ::getpgrp() == ::getpid() ? "leads" : "follows"; }).payload,
            "leads");
}

TEST(IsolationChild, reads_nothing_from_standard_input) {
  EXPECT_EQ(run_one([] { return std::to_string(std::getchar()); }).payload, std::to_string(EOF));
}

TEST(IsolationChild, writes_no_core_file) {
  rlimit before;
  ::getrlimit(RLIMIT_CORE, &before);
  if (before.rlim_max <= 1) GTEST_SKIP() << "core files are forbidden here";
  const rlimit most = {before.rlim_max, before.rlim_max};
  ::setrlimit(RLIMIT_CORE, &most);
  const ChildResult result = run_one([] {
    rlimit limit;
    ::getrlimit(RLIMIT_CORE, &limit);
    return std::to_string(limit.rlim_cur);
  });
  ::setrlimit(RLIMIT_CORE, &before);
  EXPECT_EQ(result.payload, "1");
}

TEST(IsolationChild, goes_first_where_the_machine_runs_out_of_memory) {
  const ChildResult result = run_one([] {
    std::string score;
    std::ifstream("/proc/self/oom_score_adj") >> score;
    return score;
  });
  EXPECT_EQ(result.payload, "1000");
}

TEST(IsolationChild, has_the_default_signal_handlers_and_no_signal_blocked) {
  const auto before = std::signal(SIGTERM, SIG_IGN);
  sigset_t blocked;
  sigset_t mask;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &mask);
  const ChildResult result = run_one([]() -> std::string {
    ::raise(SIGTERM);
    return "";
  });
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  std::signal(SIGTERM, before);
  EXPECT_EQ(result.detail, "killed by SIGTERM (terminated)");
}

TEST(IsolationChild, runs_no_exit_handler_after_its_result) {
  const ChildResult result = run_one([] {
    std::atexit([] { std::puts("exit handler"); });
    return "text";
  });
  EXPECT_EQ(result.payload, "text");
  EXPECT_EQ(result.log, "");
}

TEST(IsolationChild, holds_no_pipe_of_a_sibling) {
  // The first children wait for the last, so that all live at once.
  Lifeline line;
  const auto count = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::to_string(std::distance(begin(all), end(all)));
  };
  std::vector<Job> jobs(3, Job{[&] {
                          line.wait();
                          return count();
                        }});
  jobs.push_back({[&] {
    for (int i = 0; i < 3; ++i) line.signal();
    return count();
  }});
  IsolationOptions options;
  options.at_once = 4;
  const std::vector<ChildResult> results = run_isolated(jobs, options);
  for (const ChildResult& result : results) EXPECT_EQ(result.payload, results[0].payload);
}

TEST(IsolationParent, is_left_with_the_descriptors_it_had) {
  const auto count = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = count();
  run_one([] { return "text"; });
  run_one([]() -> std::string { std::abort(); });
  EXPECT_EQ(count(), before);
}

TEST(IsolationParent, prints_what_it_had_buffered_once) {
  const fs::path path = fs::path(testing::TempDir()) / "leaklab_isolation_buffered";
  std::FILE* file = std::fopen(path.c_str(), "w");
  std::fputs("once", file);
  run_one([] { return "text"; });
  std::fclose(file);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "once");
  fs::remove(path);
}

TEST(IsolationParent, may_ignore_the_death_of_children_and_does_so_again_afterwards) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const ChildResult result = run_one([]() -> std::string { std::abort(); });
  EXPECT_EQ(std::signal(SIGCHLD, before), SIG_IGN);
  EXPECT_EQ(result.detail, "killed by SIGABRT (aborted)");
}

// The rest nests, because what is done to the parent would last.

TEST(IsolationParent, that_was_slow_reads_all_that_a_dead_child_has_printed) {
  const ChildResult result = run_one([] {
    const pid_t parent = ::getpid();
    const ChildResult inner = run_one(
        [parent]() -> std::string {
          Lifeline child;
          leave_behind(true, [&] {
            child.close_own();
            child.wait();
            ::kill(parent, SIGCONT);
          });
          ::fcntl(STDOUT_FILENO, F_SETPIPE_SZ, 1 << 20);
          ::kill(parent, SIGSTOP);
          std::fputs(std::string(500'000, 'x').c_str(), stdout);
          std::abort();
        },
        {.log_limit = 1 << 20});
    return inner.detail + " " + std::to_string(inner.log.size());
  });
  EXPECT_EQ(result.payload, "killed by SIGABRT (aborted) 500000");
}

TEST(IsolationParent, may_run_without_standard_streams) {
  const ChildResult result = run_one([] {
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    const ChildResult inner = run_one([] {
      std::puts("printed");
      return "text";
    });
    return inner.payload + " " + inner.log;
  });
  EXPECT_EQ(result.payload, "text printed\n");
}

bool is_asleep(pid_t pid) {
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), text);
  return text.find(") S ") != std::string::npos;
}

TEST(IsolationParent, is_not_disturbed_by_signals) {
  const ChildResult result = run_one([] {
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    ::sigaction(SIGUSR1, &action, nullptr);
    const pid_t parent = ::getpid();
    const ChildResult inner = run_one([parent] {
      for (int i = 0; i < 5; ++i) {
        std::puts("line");
        while (!is_asleep(parent)) ::usleep(100);
        ::kill(parent, SIGUSR1);
      }
      return std::string(1'000'000, 'x');
    });
    return std::to_string(inner.payload.size()) + " " + std::to_string(inner.log.size());
  });
  EXPECT_EQ(result.payload, "1000000 25");
}

TEST(IsolationParent, takes_a_result_that_is_cut_off_for_none) {
  const ChildResult result = run_one([] {
    // The pipe of the result takes the two lowest free descriptors.
    std::array<int, 2> free;
    for (int& fd : free) fd = ::open("/dev/null", O_RDONLY);
    for (const int fd : free) ::close(fd);
    return run_one([&free]() -> std::string {
             const std::string junk(100, 'x');
             ::_exit(::write(free[1], junk.data(), junk.size()) == 100 ? 5 : 6);
           })
        .detail;
  });
  EXPECT_EQ(result.payload, "exited with code 5 and gave no result");
}

rlim_t next_free_fd() {
  const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(fd);
  return static_cast<rlim_t>(fd);
}

TEST(IsolationParent, says_what_to_do_where_not_one_child_can_be_started) {
  const ChildResult result = run_one([] {
    const rlimit limit = {next_free_fd() + 1, next_free_fd() + 1};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return run_one([] { return "text"; }).payload;
  });
  EXPECT_EQ(result.ending, Ending::failed);
  EXPECT_EQ(result.detail,
            "can't start a child process: Too many open files; raise the limits on processes and "
            "open files (ulimit -u, ulimit -n) or free some memory");
}

TEST(IsolationParent, starts_fewer_at_once_where_it_lacks_the_means_for_more) {
  const ChildResult result = run_one([] {
    const rlimit limit = {next_free_fd() + 7, next_free_fd() + 7};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    IsolationOptions options;
    options.at_once = 8;
    std::string all;
    for (const ChildResult& inner :
         run_isolated(std::vector<Job>(8, Job{[] { return std::string("x"); }}), options)) {
      all += inner.payload;
    }
    return all;
  });
  EXPECT_EQ(result.payload, "xxxxxxxx");
}

// Makes a system call fail with ENOSYS in this process, as an old kernel would.
void take_away(unsigned int call) {
  std::array<sock_filter, 4> filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

TEST(IsolationParent, sees_the_end_of_children_on_a_kernel_without_pidfd_open) {
  const ChildResult result = run_one([]() -> std::string {
    take_away(SYS_pidfd_open);
    if (::syscall(SYS_pidfd_open, ::getpid(), 0) != -1) return "may not filter";
    IsolationOptions options;
    options.time_limit = milliseconds(200);
    return run_one([] { return "text"; }).payload + " " + run_one([] {
                                                            leave_behind(false);
                                                            return "text";
                                                          }).payload +
           " " + run_one([]() -> std::string { hang(); }, options).detail;
  });
  if (result.payload == "may not filter") GTEST_SKIP() << "seccomp is not available";
  EXPECT_EQ(result.payload, "text text gave no result within its time limit of 200 ms");
}

}  // namespace
}  // namespace leaklab

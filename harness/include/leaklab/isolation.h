// One process per run: children that may crash, hang or flood, and never take the others along.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "leaklab/error.h"

namespace leaklab {

// How a child ended.
enum class Ending {
  finished,  // it returned its result
  failed,    // it threw: the message is in `detail`
  crashed,   // a signal, or an exit without a result
  timeout,   // killed at its time limit
  oom,       // it ran out of device or host memory
};

struct ChildResult {
  Ending ending = Ending::crashed;
  std::string payload;  // what the work returned; empty unless it finished
  std::string detail;   // the exception's text, the signal's name, or the limit
  std::string log;      // stdout and stderr of the child, the middle cut out where it was too long
  std::optional<Exit> error = {};  // the code of the Error that it threw; `detail` is its sentence
};

struct Job {
  // Runs in the child; what it returns is the payload. An OutOfMemory (below) ends it as oom.
  std::function<std::string()> work;
};

// Thrown by the work of a Job for memory that ran out, with the allocator's own sentence.
struct OutOfMemory : std::exception {
  explicit OutOfMemory(std::string sentence) : text(std::move(sentence)) {}
  const char* what() const noexcept override { return text.c_str(); }
  std::string text;
};

struct IsolationOptions {
  std::size_t at_once = 1;
  std::chrono::milliseconds time_limit{60000};  // for each child
  std::size_t log_limit = 64 * 1024;            // bytes of a child's output that are kept
  // Called in the parent when a job starts and when it ended, in the order of events.
  std::function<void(std::size_t job)> on_start = {};
  std::function<void(std::size_t job, const ChildResult&)> on_end = {};
};

// Runs every job in a child forked from this process and returns the results in the order of the
// jobs. The caller must be single-threaded and must never have touched CUDA. Children die with the
// parent. Throws InternalError when no child can be forked at all.
std::vector<ChildResult> run_isolated(const std::vector<Job>& jobs,
                                      const IsolationOptions& options);

}  // namespace leaklab

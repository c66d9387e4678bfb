// The errors that leave the library, each with the exit code of the command line.
#pragma once

#include <stdexcept>
#include <string>

namespace leaklab {

// Exit codes of every subcommand.
enum class Exit : int {
  ok = 0,
  finding = 1,  // a leak or a regression
  // The call was wrong: an unknown name, a value out of range, a file that can't be read, a path
  // where none can be written or this user may not.
  usage = 2,
  nothing_ran = 3,  // nothing could run here
  internal = 4,     // our own fault, or the machine's, such as a full disk
  undecided = 5,    // what was given can't tell: a snapshot without history
};

class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& what) : std::runtime_error(what), code_(code) {}
  Exit code() const { return code_; }

 private:
  Exit code_;
};

struct UsageError : Error {
  explicit UsageError(const std::string& what) : Error(Exit::usage, what) {}
};

// Nothing can run here: no GPU, no LibTorch in this build.
struct UnavailableError : Error {
  explicit UnavailableError(const std::string& what) : Error(Exit::nothing_ran, what) {}
};

struct InternalError : Error {
  explicit InternalError(const std::string& what) : Error(Exit::internal, what) {}
};

}  // namespace leaklab

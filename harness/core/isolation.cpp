#include "leaklab/isolation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <span>
#include <string_view>

#include "fd.h"
#include "leaklab/error.h"

namespace leaklab {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t chunk = 64 * 1024;

// The first and the last part of a text that may have no end.
class ClippedText {
 public:
  explicit ClippedText(std::size_t limit)
      : head_limit_(limit / 2), tail_limit_(limit - limit / 2) {}

  void append(std::string_view text) {
    size_ += text.size();
    const std::string_view head = text.substr(0, head_limit_ - head_.size());
    head_ += head;
    tail_ += text.substr(head.size());
    if (tail_.size() > tail_limit_ + 4 * chunk) tail_.erase(0, tail_.size() - tail_limit_);
  }

  std::string text() const {
    if (size_ <= head_limit_ + tail_limit_) return head_ + tail_;
    return fmt::format("{}\n[{} bytes left out]\n{}", head_, size_ - head_.size() - tail_limit_,
                       std::string_view(tail_).substr(tail_.size() - tail_limit_));
  }

 private:
  std::size_t head_limit_;
  std::size_t tail_limit_;
  std::size_t size_ = 0;
  std::string head_;
  std::string tail_;
};

// What a child writes into its pipe before the text: how it ended and the size of the text.
struct Header {
  std::uint64_t ending;
  std::uint64_t error;  // the code of an Error; 0: it threw none
  std::uint64_t size;
};

void flush_streams() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

// Ends by _exit, so that no static destructor of a library runs in the child.
[[noreturn]] void send(int fd, Ending ending, std::string_view text, Exit error = Exit::ok) {
  flush_streams();
  const Header header = {static_cast<std::uint64_t>(ending), static_cast<std::uint64_t>(error),
                         text.size()};
  const std::string_view bytes(reinterpret_cast<const char*>(&header), sizeof header);
  ::_exit(write_all(fd, bytes) && write_all(fd, text) ? 0 : 1);
}

void restore_signals() {
  for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
  // As in the program: a file that grows beyond its limit is an error of a write and no death.
  std::signal(SIGXFSZ, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// One byte: with 0, the kernel would still write a core to a core_pattern that is a pipe.
void forbid_core_files() {
  rlimit limit;
  ::getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = std::min<rlim_t>(1, limit.rlim_max);
  ::setrlimit(RLIMIT_CORE, &limit);
}

// Where the machine runs out of memory, the child is to go and not its parent.
void volunteer_for_the_oom_killer() {
  const Fd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (score.is_open()) write_all(score.get(), "1000");
}

void redirect_standard_streams(int output) {
  const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  // What was printed before a crash is worth more than speed.
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  std::cout << std::unitbuf;
}

[[noreturn]] void run_in_child(const Job& job, pid_t parent, int result, int output) noexcept {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  restore_signals();
  forbid_core_files();
  volunteer_for_the_oom_killer();
  // Out of the way of the standard streams: it may be one of them where the parent runs without.
  result = ::fcntl(result, F_DUPFD_CLOEXEC, 3);
  redirect_standard_streams(output);
  try {
    const std::string payload = job.work();
    send(result, Ending::finished, payload);
  } catch (const OutOfMemory& error) {
    send(result, Ending::oom, error.text);
  } catch (const std::bad_alloc&) {
    send(result, Ending::oom, "out of host memory (std::bad_alloc)");
  } catch (const Error& error) {
    send(result, Ending::failed, error.what(), error.code());
  } catch (const std::exception& error) {
    send(result, Ending::failed, error.what());
  } catch (...) {
    send(result, Ending::failed, "an exception that is no std::exception");
  }
}

InternalError cannot_start() {
  return InternalError(fmt::format(
      "can't start a child process: {}; raise the limits on processes and open files (ulimit -u, "
      "ulimit -n) or free some memory",
      std::strerror(errno)));
}

struct Pipe {
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) throw cannot_start();
    read = Fd(fds[0]);
    write = Fd(fds[1]);
  }
  Fd read;
  Fd write;
};

// Reads once; closes the pipe at its end. The number of bytes read.
template <typename Text>
std::size_t read_once(Fd& pipe, Text& text) {
  std::array<char, chunk> buffer;
  const ssize_t got = read_some(pipe.get(), buffer.data(), buffer.size());
  if (got <= 0) {
    pipe.close();
    return 0;
  }
  text.append(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
  return static_cast<std::size_t>(got);
}

// Reads what lies in the pipe now: processes that the child left behind may hold its other end.
template <typename Text>
void drain(Fd& pipe, Text& text) {
  int waiting = 0;
  if (!pipe.is_open() || ::ioctl(pipe.get(), FIONREAD, &waiting) != 0) return;
  for (auto left = static_cast<std::size_t>(waiting); left > 0 && pipe.is_open();) {
    left -= std::min(left, read_once(pipe, text));
  }
}

std::string name_of(int signal) {
  const char* name = ::sigabbrev_np(signal);
  if (name == nullptr) return fmt::format("signal {}", signal);
  std::string description = ::sigdescr_np(signal);
  description[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(description[0])));
  return fmt::format("SIG{} ({})", name, description);
}

std::string to_string(milliseconds time) {
  if (time.count() % 1000 == 0) return fmt::format("{} s", time.count() / 1000);
  return fmt::format("{} ms", time.count());
}

class Child;
using Children = std::vector<std::unique_ptr<Child>>;

// One job in a forked process, as its parent sees it.
class Child {
 public:
  Child(std::size_t index, const Job& job, const IsolationOptions& options,
        const Children& siblings)
      : index_(index), limit_(options.time_limit), log_(options.log_limit) {
    Pipe result;
    Pipe output;
    flush_streams();
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw cannot_start();
    if (pid_ == 0) {
      for (const auto& sibling : siblings) sibling->close_fds();
      result.read.close();
      output.read.close();
      run_in_child(job, parent, result.write.get(), output.write.get());
    }
    ::setpgid(pid_, pid_);  // the child does the same: whoever comes first
    death_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    result_ = std::move(result.read);
    output_ = std::move(output.read);
    deadline_ = Clock::now() + std::min<milliseconds>(limit_, std::chrono::hours(24 * 365));
  }
  ~Child() {
    if (pid_ > 0) reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::size_t index() const { return index_; }

  static constexpr std::size_t watched = 3;
  std::array<pollfd, watched> watch() const {
    return {{{death_.get(), POLLIN, 0}, {result_.get(), POLLIN, 0}, {output_.get(), POLLIN, 0}}};
  }
  // How long a wait for news of it may last.
  milliseconds patience() const {
    // A kernel older than Linux 5.3, or a sandbox, has no descriptor that tells of the child's end.
    const milliseconds longest = death_.is_open() ? milliseconds(60'000) : milliseconds(20);
    if (late_) return longest;
    return std::clamp(std::chrono::ceil<milliseconds>(deadline_ - Clock::now()), milliseconds(0),
                      longest);
  }
  void update(std::span<const pollfd, watched> ready) {
    if (ready[1].revents != 0) read_once(result_, frame_);
    if (ready[2].revents != 0) read_once(output_, log_);
    if (!late_ && Clock::now() >= deadline_) {
      late_ = true;
      kill();
    }
  }

  // Whether its whole result is here. What the driver has to do after that is not waited for: the
  // end of a process that used CUDA takes a tenth of a second.
  bool has_delivered() const {
    Header header = {};
    if (frame_.size() < sizeof header) return false;
    std::memcpy(&header, frame_.data(), sizeof header);
    return frame_.size() == sizeof header + header.size;
  }
  bool has_ended() const {
    siginfo_t info = {};
    const int options = WEXITED | WNOHANG | WNOWAIT;
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, options) != 0 || info.si_pid == pid_;
  }
  // Of a child that has delivered or ended.
  ChildResult take_result() {
    drain(result_, frame_);
    drain(output_, log_);
    close_fds();
    ChildResult result = has_delivered() ? delivered() : interpret(reap());
    result.log = log_.text();
    return result;
  }

 private:
  void close_fds() {
    death_.close();
    result_.close();
    output_.close();
  }

  // With all that it has started.
  void kill() const {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
  }

  int reap() {
    kill();
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  ChildResult delivered() {
    kill();  // what it may have started; it is about to end itself
    Header header = {};
    std::memcpy(&header, frame_.data(), sizeof header);
    frame_.erase(0, sizeof header);
    const auto ending = static_cast<Ending>(header.ending);
    if (ending == Ending::finished) return {ending, std::move(frame_), "", ""};
    std::optional<Exit> error;
    if (header.error != 0) error = static_cast<Exit>(header.error);
    return {ending, "", std::move(frame_), "", error};
  }

  ChildResult interpret(int status) const {
    if (WIFEXITED(status)) {
      return {Ending::crashed, "",
              fmt::format("exited with code {} and gave no result", WEXITSTATUS(status)), ""};
    }
    const int signal = WTERMSIG(status);
    if (signal != SIGKILL) {
      return {Ending::crashed, "", fmt::format("killed by {}", name_of(signal)), ""};
    }
    if (late_) {
      return {Ending::timeout, "",
              fmt::format("gave no result within its time limit of {}", to_string(limit_)), ""};
    }
    return {Ending::crashed, "",
            "killed by SIGKILL from outside: the system may have been out of memory", ""};
  }

  std::size_t index_;
  milliseconds limit_;
  Clock::time_point deadline_;
  bool late_ = false;
  pid_t pid_ = -1;
  Fd death_;  // readable once the child has ended
  Fd result_;
  Fd output_;
  std::string frame_;
  ClippedText log_;
};

void wait_for_news(const Children& children) {
  std::vector<pollfd> ready;
  milliseconds patience = milliseconds::max();
  for (const auto& child : children) {
    const auto watch = child->watch();
    ready.insert(ready.end(), watch.begin(), watch.end());
    patience = std::min(patience, child->patience());
  }
  if (::poll(ready.data(), ready.size(), static_cast<int>(patience.count())) < 0) return;  // EINTR
  for (std::size_t i = 0; i < children.size(); ++i) {
    children[i]->update(
        std::span<const pollfd, Child::watched>(ready.data() + i * Child::watched, Child::watched));
  }
}

// A parent that ignores SIGCHLD, as some launchers make it, is not told how its children ended.
class HeardChildren {
 public:
  HeardChildren() {
    struct sigaction heard = {};
    heard.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &heard, &before_);
  }
  ~HeardChildren() { ::sigaction(SIGCHLD, &before_, nullptr); }
  HeardChildren(const HeardChildren&) = delete;
  HeardChildren& operator=(const HeardChildren&) = delete;

 private:
  struct sigaction before_;
};

}  // namespace

std::vector<ChildResult> run_isolated(const std::vector<Job>& jobs,
                                      const IsolationOptions& options) {
  const HeardChildren heard;
  std::vector<ChildResult> results(jobs.size());
  Children running;
  Children leaving;
  std::size_t next = 0;
  while (next < jobs.size() || !running.empty()) {
    while (next < jobs.size() && running.size() < std::max<std::size_t>(1, options.at_once)) {
      try {
        running.push_back(std::make_unique<Child>(next, jobs[next], options, running));
      } catch (const InternalError&) {
        if (running.empty() && leaving.empty()) throw;
        if (leaving.empty()) break;  // until one that runs gives back what this one lacks
        leaving.clear();
        continue;
      }
      if (options.on_start) options.on_start(next);
      ++next;
    }
    wait_for_news(running);
    std::erase_if(leaving, [](const auto& child) { return child->has_ended(); });
    for (auto& child : running) {
      if (!child->has_delivered() && !child->has_ended()) continue;
      ChildResult& result = results[child->index()];
      result = child->take_result();
      if (options.on_end) options.on_end(child->index(), result);
      leaving.push_back(std::move(child));
    }
    std::erase(running, nullptr);
  }
  return results;
}

}  // namespace leaklab

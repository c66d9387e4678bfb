// One line on a terminal that tells how far a long command is.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace leaklab {

// Writes to a terminal only, and leaves nothing behind.
class Progress {
 public:
  explicit Progress(std::FILE* stream = stderr);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void show(std::size_t done, std::size_t all, const std::string& running);
  void clear();

 private:
  std::FILE* stream_;
  bool on_terminal_;
  bool shown_ = false;
};

}  // namespace leaklab

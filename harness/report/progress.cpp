#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

namespace leaklab {

Progress::Progress(std::FILE* stream)
    : stream_(stream), on_terminal_(::isatty(::fileno(stream)) != 0) {}

void Progress::show(std::size_t done, std::size_t all, const std::string& running) {
  show(fmt::format("[{}/{}] {:.60}", done, all, running));
}

void Progress::show(const std::string& text) {
  if (!on_terminal_) return;
  // Back to the start of the line; what an earlier, longer name left there is erased.
  std::fputs(("\r\x1b[K" + text).c_str(), stream_);
  std::fflush(stream_);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
  shown_ = false;
}

}  // namespace leaklab

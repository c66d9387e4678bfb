#include "source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>

namespace leaklab {
namespace {

constexpr std::size_t piece = 256 * 1024;

}  // namespace

Source::Source(std::string_view bytes) : size_(bytes.size()) {
  begin_ = next_ = reinterpret_cast<const unsigned char*>(bytes.data());
  end_ = begin_ + bytes.size();
}

Source::Source(Fd file, std::uint64_t size) : size_(size), file_(std::move(file)), buffer_(piece) {
  begin_ = next_ = end_ = buffer_.data();
}

// Whether `size` bytes are there now. The buffer grows with what was read, not with what a length
// in the file promises.
bool Source::more(std::uint64_t size) {
  if (!file_.is_open()) return false;
  const auto rest = static_cast<std::size_t>(end_ - next_);
  before_ += static_cast<std::uint64_t>(next_ - begin_);
  if (rest > 0) std::memmove(buffer_.data(), next_, rest);
  std::size_t filled = rest;
  while (filled < size) {
    if (filled == buffer_.size()) buffer_.resize(2 * buffer_.size());
    const ssize_t got = read_some(file_.get(), reinterpret_cast<char*>(buffer_.data()) + filled,
                                  buffer_.size() - filled);
    if (got < 0) {
      throw Refusal(fmt::format("can't be read: {}; copy the file to another disk",
                                std::generic_category().message(errno)));
    }
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  begin_ = next_ = buffer_.data();
  end_ = begin_ + filled;
  return filled >= size;
}

Source::Window Source::refill(const unsigned char* next, std::uint64_t size, const char* what) {
  const std::ptrdiff_t taken = next - next_;
  if (size <= UINT64_MAX - static_cast<std::uint64_t>(taken) &&
      more(static_cast<std::uint64_t>(taken) + size)) {
    return {next_ + taken, end_};
  }
  const std::ptrdiff_t rest = end_ - next_ - taken;
  throw Refusal(size == 1 ? fmt::format("cut off before {}; record the snapshot again", what)
                          : fmt::format("cut off: {} of the {} bytes of {}; record the snapshot "
                                        "again",
                                        rest, size, what));
}

}  // namespace leaklab

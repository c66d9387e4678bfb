// The bytes of a file, or of a pipe, piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "../core/fd.h"

namespace leaklab {

// Why a file is refused, without its name and the offset.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Source {
 public:
  explicit Source(std::string_view bytes);
  // `size`: how many bytes the file says it has; 0 of a pipe.
  Source(Fd file, std::uint64_t size);

  // The next `size` bytes, consecutive, which stay until the next call; `what` names them in the
  // Refusal where the file ends before.
  const unsigned char* take(std::uint64_t size, const char* what) {
    if (size > static_cast<std::uint64_t>(end_ - next_)) [[unlikely]]
      refill(size, what);
    const unsigned char* taken = next_;
    next_ += size;
    return taken;
  }
  // The next `size` bytes, at most 8, as an integer without sign.
  std::uint64_t little_endian(std::uint64_t size, const char* what) {
    std::uint64_t value = 0;
    if (end_ - next_ >= 8 && size > 0) [[likely]] {
      std::memcpy(&value, next_, 8);
      next_ += size;
      return value << (64 - 8 * size) >> (64 - 8 * size);
    }
    if (size > 0) std::memcpy(&value, take(size, what), size);
    return value;
  }
  // The next byte, which stays; -1 at the end.
  int peek() { return next_ < end_ || more(1) ? *next_ : -1; }
  void skip_one() { ++next_; }

  std::uint64_t offset() const { return before_ + static_cast<std::uint64_t>(next_ - begin_); }
  // How many bytes are still to come, as far as that is known.
  std::uint64_t left() const { return size_ > offset() ? size_ - offset() : 0; }

 private:
  void refill(std::uint64_t size, const char* what);
  bool more(std::uint64_t size);

  const unsigned char* begin_ = nullptr;
  const unsigned char* next_ = nullptr;
  const unsigned char* end_ = nullptr;
  std::uint64_t before_ = 0;  // bytes before begin_
  std::uint64_t size_ = 0;
  Fd file_;
  std::vector<unsigned char> buffer_;
};

}  // namespace leaklab

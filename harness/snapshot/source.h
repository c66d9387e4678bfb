// The bytes of a file, or of a pipe, piece by piece.
#pragma once

#include <bit>
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

  // The next byte, which stays; -1 at the end.
  int peek() { return next_ < end_ || more(1) ? *next_ : -1; }
  void skip_one() { ++next_; }

  // For Cursor: the bytes that are in memory, up to `end`. What lies before the place that it last
  // moved to may go when more are read.
  struct Window {
    const unsigned char* next;
    const unsigned char* end;
  };
  Window window() const { return {next_, end_}; }
  void move_to(const unsigned char* next) { next_ = next; }
  // A window with `size` bytes from `next` on. Throws Refusal where the file ends before; `what`
  // names the bytes.
  Window refill(const unsigned char* next, std::uint64_t size, const char* what);

  std::uint64_t offset() const { return before_ + static_cast<std::uint64_t>(next_ - begin_); }
  // How many bytes are still to come, as far as that is known.
  std::uint64_t left() const { return size_ > offset() ? size_ - offset() : 0; }

 private:
  bool more(std::uint64_t size);

  const unsigned char* begin_ = nullptr;
  const unsigned char* next_ = nullptr;
  const unsigned char* end_ = nullptr;
  std::uint64_t before_ = 0;  // bytes before begin_
  std::uint64_t size_ = 0;
  Fd file_;
  std::vector<unsigned char> buffer_;
};

// Takes the bytes of a source. All of it is inlined and nothing refers to it, so it lives in
// registers: the reader does little else for most bytes of a file.
class Cursor {
 public:
  explicit Cursor(Source& source) : source_(source), window_(source.window()) {}

  // Makes the source's offset() what has been taken so far.
  [[gnu::always_inline]] void settle() { source_.move_to(window_.next); }

  // The next `size` bytes, consecutive, which stay until the next call; `what` names them in the
  // Refusal where the file ends before.
  [[gnu::always_inline]] const unsigned char* take(std::uint64_t size, const char* what) {
    if (size > left()) [[unlikely]]
      window_ = source_.refill(window_.next, size, what);
    const unsigned char* taken = window_.next;
    window_.next += size;
    return taken;
  }
  // The next bytes as a number.
  template <typename Number>
  [[gnu::always_inline]] Number number(const char* what) {
    static_assert(std::endian::native == std::endian::little);
    Number value;
    std::memcpy(&value, take(sizeof value, what), sizeof value);
    return value;
  }
  // The next `size` bytes, 1 to 8, as an integer in two's complement.
  [[gnu::always_inline]] std::int64_t integer(std::uint64_t size, const char* what) {
    std::uint64_t bits = 0;
    if (left() >= 8) [[likely]] {
      std::memcpy(&bits, window_.next, 8);
      window_.next += size;
    } else {
      std::memcpy(&bits, take(size, what), size);
    }
    const std::uint64_t unused = 64 - 8 * size;
    return static_cast<std::int64_t>(bits << unused) >> unused;
  }

 private:
  std::uint64_t left() const { return static_cast<std::uint64_t>(window_.end - window_.next); }

  Source& source_;
  Source::Window window_;
};

}  // namespace leaklab

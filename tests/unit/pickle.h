// Pickles as Python and LibTorch write them, of JSON documents.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace leaklab {

using Document = nlohmann::ordered_json;

struct PickleStyle {
  int protocol = 4;
  bool memoize = true;           // strings and containers, as Python does
  std::size_t batch = 1000;      // elements or items at a time
  bool one_by_one = false;       // SETITEM and APPEND
  bool pools_are_lists = false;  // else tuples
};

class Pickle {
 public:
  explicit Pickle(PickleStyle style = {}) : style_(style) {
    bytes_ += {static_cast<char>(0x80), static_cast<char>(style.protocol)};
  }

  std::string of(const Document& document) {
    value(document);
    bytes_ += '.';
    return bytes_;
  }

 private:
  void value(const Document& document) {
    switch (document.type()) {
      case Document::value_t::null:
        bytes_ += 'N';
        break;
      case Document::value_t::boolean:
        bytes_ += static_cast<char>(document.get<bool>() ? 0x88 : 0x89);
        break;
      case Document::value_t::number_float: {
        double real = document.get<double>();
        std::uint64_t bits;
        std::memcpy(&bits, &real, 8);
        bytes_ += 'G';
        little_endian(__builtin_bswap64(bits), 8);
        break;
      }
      case Document::value_t::number_unsigned:
        if (document.get<std::uint64_t>() > INT64_MAX) {
          bytes_ += "\x8a\x09";
          little_endian(document.get<std::uint64_t>(), 8);
          bytes_ += '\0';
          break;
        }
        [[fallthrough]];
      case Document::value_t::number_integer:
        integer(document.get<std::int64_t>());
        break;
      case Document::value_t::string:
        string(document.get<std::string>());
        break;
      case Document::value_t::array:
        array(document);
        break;
      default:
        object(document);
    }
  }

  void integer(std::int64_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    if (bits < 256) {
      bytes_ += 'K';
      little_endian(bits, 1);
    } else if (bits < 65536) {
      bytes_ += 'M';
      little_endian(bits, 2);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
      bytes_ += 'J';
      little_endian(bits, 4);
    } else {
      bytes_ += "\x8a\x08";
      little_endian(bits, 8);
    }
  }

  void string(const std::string& text) {
    const auto found = strings_.find(text);
    if (found != strings_.end()) {
      bytes_ += 'j';
      little_endian(found->second, 4);
      return;
    }
    if (style_.protocol >= 4 && text.size() < 256) {
      bytes_ += '\x8c';
      little_endian(text.size(), 1);
    } else {
      bytes_ += 'X';
      little_endian(text.size(), 4);
    }
    bytes_ += text;
    if (!style_.memoize) return;
    strings_[text] = memoized_;
    memoize();
  }

  void memoize() {
    if (!style_.memoize) return;
    if (style_.protocol >= 4) {
      bytes_ += '\x94';
    } else {
      bytes_ += 'r';
      little_endian(memoized_, 4);
    }
    ++memoized_;
  }

  void array(const Document& elements) {
    bytes_ += ']';
    memoize();
    std::size_t left = elements.size();
    std::size_t in_batch = 0;
    for (const Document& element : elements) {
      if (!style_.one_by_one && in_batch == 0) bytes_ += '(';
      value(element);
      --left;
      if (style_.one_by_one) {
        bytes_ += 'a';
      } else if (++in_batch == style_.batch || left == 0) {
        bytes_ += 'e';
        in_batch = 0;
      }
    }
  }

  void object(const Document& items) {
    bytes_ += '}';
    memoize();
    if (items.empty()) return;
    if (!style_.one_by_one) bytes_ += '(';
    for (const auto& [key, item] : items.items()) {
      string(key);
      if (key.ends_with("pool_id") && !style_.pools_are_lists) {
        value(item[0]);
        value(item[1]);
        bytes_ += '\x86';
        memoize();
      } else {
        value(item);
      }
      if (style_.one_by_one) bytes_ += 's';
    }
    if (!style_.one_by_one) bytes_ += 'u';
  }

  void little_endian(std::uint64_t bits, std::size_t size) {
    for (; size > 0; --size, bits >>= 8) bytes_ += static_cast<char>(bits & 0xff);
  }

  PickleStyle style_;
  std::string bytes_;
  std::map<std::string, std::uint32_t> strings_;
  std::uint32_t memoized_ = 0;
};

}  // namespace leaklab

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "leaklab/file.h"
#include "visit.h"

namespace leaklab {
namespace {

using nlohmann::json;
using Sink = std::function<void(std::string_view)>;

constexpr std::size_t piece = 64 * 1024;  // bytes, as Python's frames

// Protocol 4, only with opcodes that the viewer's own reader knows as well: no integer or string
// of the longest forms, at most a thousand elements at a time.
class PickleOut {
 public:
  PickleOut(const Snapshot& snapshot, const Sink& sink)
      : snapshot_(snapshot),
        sink_(sink),
        strings_(snapshot.strings.size()),
        frames_(snapshot.frames.size()),
        stacks_(snapshot.stacks.size()) {
    sink_("\x80\x04");
  }
  void finish() {
    op('.');
    flush();
  }

  void begin_object() {
    element();
    op('}');
    open_.push_back({false, 0});
  }
  void end_object() {
    if (open_.back().elements > 0) op('u');
    open_.pop_back();
    if (frame_.size() >= piece) flush();
  }
  void begin_array() {
    element();
    op(']');
    open_.push_back({true, 0});
  }
  void end_array() {
    if (open_.back().elements > 0) op('e');
    open_.pop_back();
  }
  void key(Field field) {
    first_key();
    shared(fields_[static_cast<std::size_t>(field)], text_of(field));
  }
  void key(StringId id) {
    first_key();
    shared(strings_[id], snapshot_.strings[id]);
  }

  void none() {
    element();
    op('N');
  }
  void boolean(bool value) {
    element();
    op(value ? 0x88 : 0x89);
  }
  void integer(std::int64_t value) {
    element();
    put_integer(value);
  }
  void unsigned_integer(std::uint64_t value) {
    if (value <= INT64_MAX) return integer(static_cast<std::int64_t>(value));
    element();
    op(0x8a);
    op(9);
    bytes(value, 8);
    op(0);
  }
  void real(double value) {
    element();
    op('G');
    bytes(__builtin_bswap64(std::bit_cast<std::uint64_t>(value)), 8);
  }
  // One of a few names that are in none of the tables.
  void text(std::string_view value) {
    element();
    for (auto& [name, memo] : names_) {
      if (name.data() == value.data()) return shared(memo, value);
    }
    names_.emplace_back(value, 0);
    shared(names_.back().second, value);
  }
  void string(StringId id) {
    element();
    shared(strings_[id], snapshot_.strings[id]);
  }
  void pool(const std::pair<std::int64_t, std::int64_t>& value) {
    element();
    put_integer(value.first);
    put_integer(value.second);
    op(0x86);
  }
  void stack(StackId id) {
    if (stacks_[id] != 0) {
      element();
      return get(stacks_[id]);
    }
    begin_array();
    for (const FrameId frame : snapshot_.stacks[id]) this->frame(frame);
    end_array();
    if (id != 0) memoize(stacks_[id]);
  }
  void json(const nlohmann::json& value) {
    switch (value.type()) {
      case nlohmann::json::value_t::boolean:
        return boolean(value.get<bool>());
      case nlohmann::json::value_t::number_integer:
        return integer(value.get<std::int64_t>());
      case nlohmann::json::value_t::number_unsigned:
        return unsigned_integer(value.get<std::uint64_t>());
      case nlohmann::json::value_t::number_float:
        return real(value.get<double>());
      case nlohmann::json::value_t::string:
        element();
        return put_string(value.get_ref<const std::string&>());
      case nlohmann::json::value_t::array:
        begin_array();
        for (const nlohmann::json& inner : value) json(inner);
        return end_array();
      case nlohmann::json::value_t::object:
        begin_object();
        for (const auto& [key, inner] : value.items()) {
          first_key();
          put_string(key);
          json(inner);
        }
        return end_object();
      default:
        return none();
    }
  }

 private:
  static constexpr std::size_t batch = 1000;
  struct Open {
    bool is_array;
    std::size_t elements;
  };

  // Before a value: what the list that it goes to needs.
  void element() {
    if (open_.empty() || !open_.back().is_array) return;
    std::size_t& elements = open_.back().elements;
    if (elements == batch) {
      op('e');
      elements = 0;
    }
    if (elements++ == 0) op('(');
  }
  void first_key() {
    if (open_.back().elements++ == 0) op('(');
  }
  void frame(FrameId id) {
    if (frames_[id] != 0) {
      element();
      return get(frames_[id]);
    }
    put_frame(*this, snapshot_, id);
    memoize(frames_[id]);
  }
  // `memo`: one more than the number that the value has in the memo; 0: not there yet.
  void shared(std::uint32_t& memo, std::string_view text) {
    if (memo != 0) return get(memo);
    put_string(text);
    memoize(memo);
  }
  void memoize(std::uint32_t& memo) {
    op(0x94);
    memo = ++memoized_;
  }
  void get(std::uint32_t memo) {
    const std::uint32_t number = memo - 1;
    if (number < 256) {
      op('h');
      bytes(number, 1);
    } else {
      op('j');
      bytes(number, 4);
    }
  }
  void put_string(std::string_view text) {
    if (text.size() < 256) {
      op(0x8c);
      bytes(text.size(), 1);
    } else {
      op('X');
      bytes(text.size(), 4);
    }
    frame_ += text;
  }
  void put_integer(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    if (bits < 256) {
      op('K');
      bytes(bits, 1);
    } else if (bits < 65536) {
      op('M');
      bytes(bits, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
      op('J');
      bytes(bits, 4);
    } else {
      // As many bytes as hold the number and its sign.
      std::size_t size = 5;
      while (size < 8 && value >> (8 * size - 1) != value >> 63) ++size;
      op(0x8a);
      bytes(size, 1);
      bytes(bits, size);
    }
  }
  void op(int byte) { frame_ += static_cast<char>(byte); }
  void bytes(std::uint64_t value, std::size_t size) {
    std::array<char, 8> raw;
    std::memcpy(raw.data(), &value, 8);
    frame_.append(raw.data(), size);
  }
  void flush() {
    std::string header = "\x95";
    const std::uint64_t size = frame_.size();
    header.append(reinterpret_cast<const char*>(&size), 8);
    sink_(header);
    sink_(frame_);
    frame_.clear();
  }

  const Snapshot& snapshot_;
  const Sink& sink_;
  std::string frame_;
  std::vector<Open> open_;
  std::uint32_t memoized_ = 0;
  std::array<std::uint32_t, field_names.size()> fields_ = {};
  std::vector<std::pair<std::string_view, std::uint32_t>> names_;
  std::vector<std::uint32_t> strings_;
  std::vector<std::uint32_t> frames_;
  std::vector<std::uint32_t> stacks_;
};

class JsonOut {
 public:
  JsonOut(const Snapshot& snapshot, const Sink& sink) : snapshot_(snapshot), sink_(sink) {}
  void finish() {
    text_ += '\n';
    sink_(text_);
  }

  void begin_object() { begin('{'); }
  void end_object() {
    end('}');
    if (text_.size() >= piece) {
      sink_(text_);
      text_.clear();
    }
  }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }
  void key(Field field) { key(text_of(field)); }
  void key(StringId id) { key(snapshot_.strings[id]); }

  void none() { value("null"); }
  void boolean(bool is_true) { value(is_true ? "true" : "false"); }
  void integer(std::int64_t number) { value(fmt::format_int(number).c_str()); }
  void unsigned_integer(std::uint64_t number) { value(fmt::format_int(number).c_str()); }
  void real(double number) { json(number); }
  void text(std::string_view name) {
    separate();
    quote(name);
  }
  void string(StringId id) { text(snapshot_.strings[id]); }
  void pool(const std::pair<std::int64_t, std::int64_t>& pair) {
    begin_array();
    integer(pair.first);
    integer(pair.second);
    end_array();
  }
  void stack(StackId id) {
    begin_array();
    for (const FrameId frame : snapshot_.stacks[id]) put_frame(*this, snapshot_, frame);
    end_array();
  }
  void json(const nlohmann::json& document) {
    value(document.dump(-1, ' ', false, json::error_handler_t::replace));
  }

 private:
  using Document = nlohmann::json;

  void separate() {
    if (comma_) text_ += ", ";
    comma_ = true;
  }
  void begin(char bracket) {
    separate();
    text_ += bracket;
    comma_ = false;
  }
  void end(char bracket) {
    text_ += bracket;
    comma_ = true;
  }
  void value(std::string_view printed) {
    separate();
    text_ += printed;
  }
  void key(std::string_view name) {
    separate();
    quote(name);
    text_ += ": ";
    comma_ = false;
  }
  void quote(std::string_view plain) {
    const bool simple = std::ranges::all_of(
        plain, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
    if (simple) {
      text_ += '"';
      text_ += plain;
      text_ += '"';
    } else {
      text_ += Document(plain).dump(-1, ' ', false, Document::error_handler_t::replace);
    }
  }

  const Snapshot& snapshot_;
  const Sink& sink_;
  std::string text_;
  bool comma_ = false;
};

void write(const Snapshot& snapshot, SnapshotFormat format, const Sink& sink) {
  const auto put_all = [&](auto out) {
    put_snapshot(out, snapshot);
    out.finish();
  };
  if (format == SnapshotFormat::pickle) {
    put_all(PickleOut(snapshot, sink));
  } else {
    put_all(JsonOut(snapshot, sink));
  }
}

}  // namespace

void write_snapshot(const Snapshot& snapshot, const std::filesystem::path& path,
                    SnapshotFormat format) {
  FileWriter file(path);
  write(snapshot, format, [&](std::string_view bytes) { file.write(bytes); });
  file.commit();
}

std::string snapshot_bytes(const Snapshot& snapshot, SnapshotFormat format) {
  std::string all;
  write(snapshot, format, [&](std::string_view bytes) { all += bytes; });
  return all;
}

}  // namespace leaklab

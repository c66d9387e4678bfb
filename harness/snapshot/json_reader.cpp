#include <fmt/format.h>

#include <iterator>

#include "builder.h"
#include "read.h"

namespace leaklab {
namespace {

using nlohmann::json;

constexpr int max_depth = 128;

// The operations of a pickle that would make the same.
class Events : public nlohmann::json_sax<json> {
 public:
  explicit Events(Builder& builder) : builder_(builder) {}

  bool null() override {
    builder_.push_none();
    return true;
  }
  bool boolean(bool value) override {
    builder_.push_boolean(value);
    return true;
  }
  bool number_integer(number_integer_t value) override {
    builder_.push_integer(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    builder_.push_unsigned(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    builder_.push_real(value);
    return true;
  }
  bool string(string_t& value) override {
    builder_.push_string(value);
    return true;
  }
  bool binary(binary_t& /*value*/) override { return false; }
  bool key(string_t& value) override {
    builder_.push_string(value);
    return true;
  }
  bool start_object(std::size_t /*size*/) override {
    deeper();
    builder_.push_empty_dict();
    builder_.mark();
    return true;
  }
  bool end_object() override {
    --depth_;
    builder_.set_items();
    return true;
  }
  bool start_array(std::size_t /*size*/) override {
    deeper();
    builder_.push_empty_list();
    builder_.mark();
    return true;
  }
  bool end_array() override {
    --depth_;
    builder_.appends();
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ..."
    std::string_view text = error.what();
    text.remove_prefix(std::min(text.size(), text.find("] ") + 2));
    throw Refusal(fmt::format("no valid JSON: {}; record the snapshot again", text));
  }

 private:
  void deeper() {
    if (++depth_ > max_depth) {
      throw Refusal(fmt::format("nested more than {} levels deep; a snapshot is not", max_depth));
    }
  }

  Builder& builder_;
  int depth_ = 0;
};

// The bytes of a source, for nlohmann's parser.
class Bytes {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the standard's names
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  // NOLINTEND(readability-identifier-naming)

  Bytes() = default;
  explicit Bytes(Source& source) : source_(&source) {}
  char operator*() const { return static_cast<char>(source_->peek()); }
  Bytes& operator++() {
    source_->skip_one();
    return *this;
  }
  Bytes operator++(int) {
    Bytes before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const Bytes& left, const Bytes& right) {
    return left.at_end() == right.at_end();
  }

 private:
  bool at_end() const { return source_ == nullptr || source_->peek() < 0; }

  Source* source_ = nullptr;
};

}  // namespace

Snapshot read_json(Source& source) {
  Builder builder(source);
  Events events(builder);
  json::sax_parse(Bytes(source), Bytes(), &events);
  return builder.finish();
}

}  // namespace leaklab

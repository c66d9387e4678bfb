// An `out` of visit.h that makes a JSON value.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "visit.h"

namespace leaklab {

class Tree {
 public:
  explicit Tree(const Snapshot& snapshot) : snapshot_(snapshot) {}

  void begin_object() { open_.push_back({std::move(key_), nlohmann::json::object()}); }
  void end_object() { end(); }
  void begin_array() { open_.push_back({std::move(key_), nlohmann::json::array()}); }
  void end_array() { end(); }
  void key(Field field) { key_ = text_of(field); }
  void key(StringId id) { key_ = snapshot_.strings[id]; }

  void none() { add(nullptr); }
  void boolean(bool value) { add(value); }
  void integer(std::int64_t value) { add(value); }
  void unsigned_integer(std::uint64_t value) { add(value); }
  void real(double value) { add(value); }
  void text(std::string_view value) { add(value); }
  void string(StringId id) { add(snapshot_.strings[id]); }
  void pool(const std::pair<std::int64_t, std::int64_t>& value) {
    add(nlohmann::json::array({value.first, value.second}));
  }
  void json(const nlohmann::json& value) { add(value); }
  void stack(StackId id) {
    begin_array();
    for (const FrameId frame : snapshot_.stacks[id]) put_frame(*this, snapshot_, frame);
    end_array();
  }

  nlohmann::json take() { return std::move(root_); }

 private:
  struct Open {
    std::string key;
    nlohmann::json value;
  };

  void add(nlohmann::json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.push_back(std::move(value));
    } else {
      open_.back().value[key_] = std::move(value);
    }
  }
  void end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    key_ = std::move(done.key);
    add(std::move(done.value));
  }

  const Snapshot& snapshot_;
  std::string key_;
  std::vector<Open> open_;
  nlohmann::json root_;
};

}  // namespace leaklab

// An `out` of visit.h that makes a JSON value.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "visit.h"

namespace leaklab {

// Is told of so many nodes, each a value or 32 bytes of text, before they are made, and throws
// where they are too many.
using Charge = std::function<void(std::size_t)>;

// One node after the other: a value that is too large is not counted to its end each time that
// something refers to it.
inline void charge_for(const nlohmann::json& value, const Charge& charge) {
  charge(1);
  if (value.is_string()) {
    charge(value.get_ref<const std::string&>().size() / 32);
  } else if (value.is_array()) {
    for (const nlohmann::json& element : value) charge_for(element, charge);
  } else if (value.is_object()) {
    for (const auto& [key, element] : value.items()) {
      charge(key.size() / 32);
      charge_for(element, charge);
    }
  }
}

class Tree {
 public:
  Tree(const Snapshot& snapshot, Charge charge) : snapshot_(snapshot), charge_(std::move(charge)) {}

  void begin_object() { begin(nlohmann::json::object()); }
  void end_object() { end(); }
  void begin_array() { begin(nlohmann::json::array()); }
  void end_array() { end(); }
  void key(Field field) { key_ = text_of(field); }
  void key(StringId id) {
    charge_(snapshot_.strings[id].size() / 32);
    key_ = snapshot_.strings[id];
  }

  void none() { put(nullptr); }
  void boolean(bool value) { put(value); }
  void integer(std::int64_t value) { put(value); }
  void unsigned_integer(std::uint64_t value) { put(value); }
  void real(double value) { put(value); }
  void text(std::string_view value) { put(value, 1 + value.size() / 32); }
  void string(StringId id) { text(snapshot_.strings[id]); }
  void pool(const std::pair<std::int64_t, std::int64_t>& value) {
    put(nlohmann::json::array({value.first, value.second}));
  }
  void json(const nlohmann::json& value) {
    charge_for(value, charge_);
    add(value);
  }
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

  template <typename T>
  void put(const T& value, std::size_t nodes = 1) {
    charge_(nodes);
    add(value);
  }
  void add(nlohmann::json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.push_back(std::move(value));
    } else {
      open_.back().value[key_] = std::move(value);
    }
  }
  void begin(nlohmann::json empty) {
    charge_(1);
    open_.push_back({std::move(key_), std::move(empty)});
  }
  void end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    key_ = std::move(done.key);
    add(std::move(done.value));
  }

  const Snapshot& snapshot_;
  Charge charge_;
  std::string key_;
  std::vector<Open> open_;
  nlohmann::json root_;
};

}  // namespace leaklab

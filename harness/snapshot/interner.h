// Each distinct string, frame, pair of integers and stream of a file once.
#pragma once

#include <string_view>
#include <tuple>
#include <vector>

#include "leaklab/snapshot.h"
#include "value.h"

namespace leaklab {

class Interner {
 public:
  explicit Interner(Snapshot& snapshot);

  // Throws Refusal where `text` is no UTF-8.
  Value string(std::string_view text);
  // What a string means as the action of an event (EventKind) or as the state of a block
  // (BlockState).
  template <typename Name>
  Name named(StringId id) const {
    return std::get<Name>(meanings_[id]);
  }
  // The key of a dict: a string, or an integer, which becomes one. Throws Refusal of others.
  StringId key(Value key);

  FrameId frame(const Frame& frame);
  std::uint32_t pool(std::int64_t first, std::int64_t second);  // index into Snapshot::pools
  std::uint32_t stream(std::uint64_t handle);                   // index into Snapshot::streams

 private:
  // Adds what the next string means.
  void learn(std::string_view text);
  // The row of `table` that is `wanted`, which may be a new one.
  template <typename T>
  static std::uint32_t row_of(std::vector<T>& table, HashIndex& index, const T& wanted,
                              std::uint64_t hash);

  Snapshot& snapshot_;
  std::vector<std::tuple<Field, EventKind, BlockState>> meanings_;  // of the strings
  HashIndex frame_index_;
  HashIndex pool_index_;
  HashIndex stream_index_;
};

}  // namespace leaklab

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "columns.h"
#include "leaklab/snapshot.h"

namespace leaklab {
namespace {

// As ==, but a NaN is itself.
bool same(const nlohmann::json& left, const nlohmann::json& right) {
  if (left.is_number_float() && right.is_number_float()) {
    const auto a = left.get<double>();
    const auto b = right.get<double>();
    return a == b || (std::isnan(a) && std::isnan(b));
  }
  if (left.is_array() && right.is_array()) return std::ranges::equal(left, right, same);
  if (left.is_object() && right.is_object()) {
    return std::ranges::equal(left.get_ref<const nlohmann::json::object_t&>(),
                              right.get_ref<const nlohmann::json::object_t&>(),
                              [](const auto& one, const auto& other) {
                                return one.first == other.first && same(one.second, other.second);
                              });
  }
  return left == right;
}

// What the ids of one snapshot are in the other, as far as that is known.
class Translation {
 public:
  explicit Translation(std::size_t rows) : other_(rows, HashIndex::none) {}
  template <typename Same>
  bool same(std::uint32_t left, std::uint32_t right, Same same) {
    std::uint32_t& other = other_[left];
    if (other == right) return true;
    if (!same()) return false;
    other = right;
    return true;
  }

 private:
  std::vector<std::uint32_t> other_;
};

class Comparison {
 public:
  Comparison(const Snapshot& left, const Snapshot& right)
      : left_(left),
        right_(right),
        strings_(left.strings.size()),
        frames_(left.frames.size()),
        stacks_(left.stacks.size()) {}

  std::string run() {
    check("keys", left_.keys == right_.keys && left_.bare_segments == right_.bare_segments);
    check("allocator_settings", same(left_.allocator_settings, right_.allocator_settings));
    rows("segments", left_.segments, right_.segments, left_.segment_extras, right_.segment_extras);
    rows("blocks", left_.blocks, right_.blocks, left_.block_extras, right_.block_extras);
    rows("history", left_.history, right_.history, {}, {});
    check("traces", left_.traces.size() == right_.traces.size());
    for (std::size_t device = 0; found_.empty() && device < left_.traces.size(); ++device) {
      rows(fmt::format("traces[{}]", device), left_.traces[device], right_.traces[device],
           extras_of_trace(left_, device), extras_of_trace(right_, device));
    }
    rows("annotations", left_.annotations, right_.annotations, left_.annotation_extras,
         right_.annotation_extras);
    extras("extras", left_.extras, right_.extras);
    return found_;
  }

 private:
  void check(std::string_view what, bool equal) {
    if (found_.empty() && !equal) found_ = what;
  }

  template <typename Rows>
  void rows(const std::string& what, const Rows& left, const Rows& right,
            std::span<const Extra> left_extras, std::span<const Extra> right_extras) {
    if (!found_.empty()) return;
    if (left.size() != right.size()) {
      found_ = what;
      return;
    }
    for (std::size_t k = 0; k < left.size(); ++k) {
      const std::string_view member = row(left[k], right[k]);
      if (!member.empty()) {
        found_ = fmt::format("{}[{}].{}", what, k, member);
        return;
      }
    }
    extras(what + ".extras", left_extras, right_extras);
  }

  void extras(const std::string& what, std::span<const Extra> left, std::span<const Extra> right) {
    if (!found_.empty()) return;
    if (left.size() != right.size()) {
      found_ = what;
      return;
    }
    for (std::size_t k = 0; k < left.size(); ++k) {
      if (!extra(left[k], right[k])) {
        found_ = fmt::format("{}[{}], row {}", what, k, left[k].row);
        return;
      }
    }
  }

  bool extra(const Extra& left, const Extra& right) {
    return left.row == right.row && left.kind == right.kind && extra_but_row(left, right);
  }
  bool extra_but_row(const Extra& left, const Extra& right) {
    if (left.kind != right.kind || !string(left.key, right.key)) return false;
    switch (left.kind) {
      case Extra::Kind::text:
        return string(static_cast<StringId>(left.value), static_cast<StringId>(right.value));
      case Extra::Kind::stack:
        return stack(static_cast<StackId>(left.value), static_cast<StackId>(right.value));
      case Extra::Kind::json:
        return same(left_.values[left.value], right_.values[right.value]);
      default:
        return left.value == right.value;
    }
  }
  static std::span<const Extra> extras_of_trace(const Snapshot& snapshot, std::size_t device) {
    if (device >= snapshot.trace_extras.size()) return {};
    return snapshot.trace_extras[device];
  }

  bool string(StringId left, StringId right) {
    return strings_.same(left, right, [&] { return left_.strings[left] == right_.strings[right]; });
  }
  bool frame(FrameId left, FrameId right) {
    return frames_.same(left, right, [&] {
      const Frame& a = left_.frames[left];
      const Frame& b = right_.frames[right];
      const std::span<const Extra> more = leaklab::extras_of(left_.frame_extras, left);
      const std::span<const Extra> others = leaklab::extras_of(right_.frame_extras, right);
      return a.line == b.line && string(a.file, b.file) && string(a.function, b.function) &&
             std::ranges::equal(more, others, [&](const Extra& one, const Extra& other) {
               return extra_but_row(one, other);
             });
    });
  }
  bool stack(StackId left, StackId right) {
    return stacks_.same(left, right, [&] {
      return std::ranges::equal(left_.stacks[left], right_.stacks[right],
                                [&](FrameId a, FrameId b) { return frame(a, b); });
    });
  }
  // The name of the member that differs, or nothing.
  template <typename Row>
  std::string_view row(const Row& a, const Row& b) {
    if (a.keys != b.keys) return "keys";
    if constexpr (std::is_same_v<Row, HistoryEntry>) {
      if (a.block != b.block) return "block";
    }
    std::string_view found;
    Table<Row>::each([&]<typename Column>(Column column) {
      if (!found.empty() || same_column<Column>(a, b)) return;
      found = column.type == Type::frames ? "stack" : text_of(column.field);
    });
    return found;
  }
  template <typename Column, typename Row>
  bool same_column(const Row& a, const Row& b) {
    if constexpr (std::is_null_pointer_v<decltype(Column::member)>) {
      return true;
    } else {
      const auto& left = a.*Column::member;
      const auto& right = b.*Column::member;
      if constexpr (Column::type == Type::string) {
        return string(left, right);
      } else if constexpr (Column::type == Type::stream) {
        return left_.streams[left] == right_.streams[right];
      } else if constexpr (Column::type == Type::pool) {
        return left_.pools[left] == right_.pools[right];
      } else if constexpr (Column::type == Type::frames) {
        return stack(left, right);
      } else {
        return left == right;
      }
    }
  }

  const Snapshot& left_;
  const Snapshot& right_;
  Translation strings_;
  Translation frames_;
  Translation stacks_;
  std::string found_;
};

}  // namespace

std::string difference(const Snapshot& left, const Snapshot& right) {
  return Comparison(left, right).run();
}

}  // namespace leaklab

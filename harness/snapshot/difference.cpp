#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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
    rows("segments", left_.segments, right_.segments, left_.segment_extras, right_.segment_extras,
         [&](const Segment& a, const Segment& b) { return segment(a, b); });
    rows("blocks", left_.blocks, right_.blocks, left_.block_extras, right_.block_extras,
         [&](const Block& a, const Block& b) { return block(a, b); });
    rows("history", left_.history, right_.history, {}, {},
         [&](const HistoryEntry& a, const HistoryEntry& b) { return entry(a, b); });
    check("traces", left_.traces.size() == right_.traces.size());
    for (std::size_t device = 0; found_.empty() && device < left_.traces.size(); ++device) {
      rows(fmt::format("traces[{}]", device), left_.traces[device], right_.traces[device],
           extras_of_trace(left_, device), extras_of_trace(right_, device),
           [&](const TraceEvent& a, const TraceEvent& b) { return event(a, b); });
    }
    rows("annotations", left_.annotations, right_.annotations, left_.annotation_extras,
         right_.annotation_extras,
         [&](const Annotation& a, const Annotation& b) { return annotation(a, b); });
    extras("extras", left_.extras, right_.extras);
    return found_;
  }

 private:
  void check(std::string_view what, bool equal) {
    if (found_.empty() && !equal) found_ = what;
  }

  // `compare` gives the name of the member that differs, or nothing.
  template <typename Row, typename Compare>
  void rows(const std::string& what, const std::vector<Row>& left, const std::vector<Row>& right,
            std::span<const Extra> left_extras, std::span<const Extra> right_extras,
            Compare compare) {
    if (!found_.empty()) return;
    if (left.size() != right.size()) {
      found_ = what;
      return;
    }
    for (std::size_t row = 0; row < left.size(); ++row) {
      const std::string_view member = compare(left[row], right[row]);
      if (!member.empty()) {
        found_ = fmt::format("{}[{}].{}", what, row, member);
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
  bool stream(std::uint32_t left, std::uint32_t right) const {
    return left_.streams[left] == right_.streams[right];
  }
  bool pool(std::uint32_t left, std::uint32_t right) const {
    return left_.pools[left] == right_.pools[right];
  }

  std::string_view event(const TraceEvent& a, const TraceEvent& b) {
    if (a.keys != b.keys) return "keys";
    if (a.kind != b.kind) return "kind";
    if (a.address != b.address) return "address";
    if (a.size != b.size) return "size";
    if (a.time_us != b.time_us) return "time_us";
    if (!stack(a.stack, b.stack)) return "stack";
    if (!string(a.compile_context, b.compile_context)) return "compile_context";
    if (!string(a.user_metadata, b.user_metadata)) return "user_metadata";
    if (!stream(a.stream, b.stream)) return "stream";
    if (!pool(a.pool, b.pool)) return "pool";
    return "";
  }
  std::string_view block(const Block& a, const Block& b) {
    if (a.keys != b.keys) return "keys";
    if (a.state != b.state) return "state";
    if (a.address != b.address) return "address";
    if (a.size != b.size) return "size";
    if (a.requested != b.requested) return "requested";
    if (!stack(a.stack, b.stack)) return "stack";
    return "";
  }
  std::string_view entry(const HistoryEntry& a, const HistoryEntry& b) {
    if (a.keys != b.keys) return "keys";
    if (a.block != b.block) return "block";
    if (a.address != b.address) return "address";
    if (a.real_size != b.real_size) return "real_size";
    if (!stack(a.stack, b.stack)) return "stack";
    return "";
  }
  std::string_view segment(const Segment& a, const Segment& b) {
    if (a.keys != b.keys) return "keys";
    if (a.device != b.device) return "device";
    if (a.address != b.address) return "address";
    if (a.total_size != b.total_size) return "total_size";
    if (a.allocated_size != b.allocated_size) return "allocated_size";
    if (a.active_size != b.active_size) return "active_size";
    if (a.requested_size != b.requested_size) return "requested_size";
    if (!stream(a.stream, b.stream)) return "stream";
    if (!pool(a.pool, b.pool)) return "pool";
    if (!string(a.type, b.type)) return "type";
    if (a.expandable != b.expandable) return "expandable";
    if (!stack(a.stack, b.stack)) return "stack";
    if (a.blocks != b.blocks) return "blocks";
    return "";
  }
  std::string_view annotation(const Annotation& a, const Annotation& b) {
    if (a.keys != b.keys) return "keys";
    if (!string(a.stage, b.stage)) return "stage";
    if (!string(a.name, b.name)) return "name";
    if (a.device != b.device) return "device";
    if (a.time_us != b.time_us) return "time_us";
    return "";
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

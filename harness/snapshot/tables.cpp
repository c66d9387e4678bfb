#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "hash.h"
#include "leaklab/snapshot.h"
#include "parts.h"

namespace leaklab {
namespace {

std::uint64_t hash_bytes(const void* data, std::size_t size) {
  const char* from = static_cast<const char*>(data);
  std::uint64_t state = mix(hash_seed(), size);
  for (; size >= 8; from += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    state = mix(state, word);
  }
  std::uint64_t word = 0;
  if (size > 0) std::memcpy(&word, from, size);
  return mix(mix(state, word), 0x8bb84b93962eacc9ULL);
}

constexpr std::array<std::string_view, 10> event_kinds = {
    "alloc",        "free_requested", "free_completed", "segment_alloc",
    "segment_free", "segment_map",    "segment_unmap",  "oom",
    "snapshot",     "other"};
constexpr std::array<std::string_view, 4> block_states = {"active_allocated", "active_pending_free",
                                                          "inactive", "other"};

}  // namespace

void HashIndex::insert(std::uint64_t hash, std::uint32_t row) {
  if ((rows_ + 1) * 3 > slots_.size() * 2) {
    std::vector<Slot> old(std::max<std::size_t>(16, slots_.size() * 2));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.row != none) put(slot);
    }
  }
  put({static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(hash), row});
  ++rows_;
}

void HashIndex::put(const Slot& slot) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = slot.low & mask;
  while (slots_[at].row != none) at = (at + 1) & mask;
  slots_[at] = slot;
}

StringTable::StringTable() : ends_{0} { intern(""); }

StringId StringTable::intern(std::string_view text) {
  const std::uint64_t hash = hash_bytes(text.data(), text.size());
  const StringId found = index_.find(hash, [&](StringId id) { return (*this)[id] == text; });
  if (found != HashIndex::none) return found;
  const StringId id = row_number(size());
  text_.insert(text_.end(), text.begin(), text.end());
  ends_.push_back(text_.size());
  index_.insert(hash, id);
  return id;
}

StackTable::StackTable() : ends_{0} { intern({}); }

StackId StackTable::intern(std::span<const FrameId> frames) {
  const std::uint64_t hash = hash_bytes(frames.data(), frames.size_bytes());
  const StackId found =
      index_.find(hash, [&](StackId id) { return std::ranges::equal((*this)[id], frames); });
  if (found != HashIndex::none) return found;
  const StackId id = row_number(size());
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  ends_.push_back(frames_.size());
  index_.insert(hash, id);
  return id;
}

std::string_view name(EventKind kind) { return event_kinds[static_cast<std::size_t>(kind)]; }

std::string_view name(BlockState state) { return block_states[static_cast<std::size_t>(state)]; }

std::span<const Extra> extras_of(const std::vector<Extra>& extras, std::size_t row) {
  const auto [first, last] =
      std::equal_range(extras.begin(), extras.end(), Extra{.row = static_cast<std::uint32_t>(row)},
                       [](const Extra& left, const Extra& right) { return left.row < right.row; });
  return {first, last};
}

std::string_view action_of(const Snapshot& snapshot, std::size_t device, std::size_t index) {
  const EventKind kind = snapshot.traces[device][index].kind;
  if (kind == EventKind::other && device < snapshot.trace_extras.size()) {
    for (const Extra& extra : extras_of(snapshot.trace_extras[device], index)) {
      if (extra.kind == Extra::Kind::text && snapshot.strings[extra.key] == "action") {
        return snapshot.strings[static_cast<StringId>(extra.value)];
      }
    }
  }
  return name(kind);
}

}  // namespace leaklab

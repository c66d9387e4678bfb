#include "interner.h"

#include <fmt/format.h>

#include <algorithm>

#include "hash.h"
#include "parts.h"

namespace leaklab {
namespace {

// Whether `text` is UTF-8; as in Python's pickles, halves of surrogate pairs may stand alone.
bool is_text(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const std::size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - at <= more) return false;
    std::uint32_t code = lead & (0x3fU >> more);
    for (std::size_t i = 1; i <= more; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3fU);
    }
    if ((more == 2 && code < 0x800) || (more == 3 && (code < 0x10000 || code > 0x10ffff))) {
      return false;
    }
    at += more + 1;
  }
  return true;
}

Field field_called(std::string_view text) {
  const auto* found = std::ranges::find(field_names, text);
  return found == field_names.end() ? Field::unknown
                                    : static_cast<Field>(found - field_names.begin());
}

// The EventKind or BlockState that is called so, or `other`, which is the last of both.
template <typename Kind>
Kind name_called(std::string_view text) {
  for (int kind = 0; kind < static_cast<int>(Kind::other); ++kind) {
    if (name(static_cast<Kind>(kind)) == text) return static_cast<Kind>(kind);
  }
  return Kind::other;
}

std::uint64_t hash_pair(std::uint64_t first, std::uint64_t second) {
  return mix(mix(hash_seed(), first), second);
}

}  // namespace

Interner::Interner(Snapshot& snapshot) : snapshot_(snapshot) {
  // What the tables begin with.
  learn("");
  stream_index_.insert(hash_pair(0, 0), 0);
  pool_index_.insert(hash_pair(0, 0), 0);
}

Value Interner::string(std::string_view text) {
  const StringId id = snapshot_.strings.intern(text);
  if (id == meanings_.size()) {
    if (!is_text(text)) throw Refusal("a string that is no UTF-8 text; the file is corrupted");
    learn(text);
  }
  return Value::string(id, named<Field>(id));
}

void Interner::learn(std::string_view text) {
  meanings_.emplace_back(field_called(text), name_called<EventKind>(text),
                         name_called<BlockState>(text));
}

StringId Interner::key(Value key) {
  if (key.tag() == Tag::string) return key.string_id();
  if (key.tag() != Tag::integer) {
    throw Refusal(fmt::format("a dict with {} for a key; a snapshot has strings", what(key.tag())));
  }
  return string(std::to_string(key.payload())).string_id();
}

template <typename T>
std::uint32_t Interner::row_of(std::vector<T>& table, HashIndex& index, const T& wanted,
                               std::uint64_t hash) {
  const std::uint32_t found =
      index.find(hash, [&](std::uint32_t row) { return table[row] == wanted; });
  if (found != HashIndex::none) return found;
  const std::uint32_t row = row_number(table.size());
  table.push_back(wanted);
  index.insert(hash, row);
  return row;
}

FrameId Interner::frame(const Frame& frame) {
  return row_of(snapshot_.frames, frame_index_, frame,
                hash_pair(std::uint64_t{frame.file} << 32 | frame.function, frame.line));
}

std::uint32_t Interner::pool(std::int64_t first, std::int64_t second) {
  return row_of(snapshot_.pools, pool_index_, {first, second},
                hash_pair(static_cast<std::uint64_t>(first), static_cast<std::uint64_t>(second)));
}

std::uint32_t Interner::stream(std::uint64_t handle) {
  if (handle == 0) return 0;
  return row_of(snapshot_.streams, stream_index_, handle, hash_pair(handle, 0));
}

}  // namespace leaklab

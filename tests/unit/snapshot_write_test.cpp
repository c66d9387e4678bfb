#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "leaklab/error.h"
#include "leaklab/file.h"
#include "leaklab/snapshot.h"

namespace leaklab {
namespace {

namespace fs = std::filesystem;

// Snapshots with something of everything, the same for the same seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  Snapshot snapshot() {
    for (std::size_t k = 0; k < 20; ++k) snapshot_.strings.intern(text(k));
    for (std::size_t k = 0; k < 30; ++k) {
      snapshot_.frames.push_back({string(), string(), pick(4) == 0 ? wide() : pick(500)});
    }
    add_extras(snapshot_.frame_extras, snapshot_.frames.size());
    for (std::size_t k = 0; k < 10; ++k) {
      std::vector<FrameId> frames(k == 0 && deep_ ? 2500 : pick(12));
      for (FrameId& frame : frames) frame = static_cast<FrameId>(pick(30));
      stacks_.push_back(snapshot_.stacks.intern(frames));
    }
    for (std::size_t k = 0; k < 3; ++k) snapshot_.streams.push_back(wide());
    for (std::size_t k = 0; k < 3; ++k) snapshot_.pools.emplace_back(pick(9), signed_wide());
    add_segments();
    snapshot_.bare_segments = pick(8) == 0;
    if (snapshot_.bare_segments) {
      snapshot_.keys = Snapshot::has_segments;
      return std::move(snapshot_);
    }
    snapshot_.keys = Snapshot::has_segments | Snapshot::has_device_traces;
    for (std::size_t device = pick(4); device > 0; --device) add_trace();
    if (coin()) add_annotations();
    if (coin()) {
      snapshot_.keys |= Snapshot::has_allocator_settings;
      snapshot_.allocator_settings = {{"max_split_size", -1},
                                      {"nested", {{"1", {0, 0.5, nullptr}}}}};
    }
    add_extras(snapshot_.extras, 1);
    return std::move(snapshot_);
  }

 private:
  std::uint64_t pick(std::uint64_t below) { return engine_() % below; }
  bool coin() { return pick(2) == 0; }
  std::uint64_t wide() { return engine_() >> pick(64); }
  std::int64_t signed_wide() { return static_cast<std::int64_t>(engine_()) >> pick(64); }
  // Of an allocation, in bytes.
  std::int64_t size() { return static_cast<std::int64_t>(engine_() >> (16 + pick(48))); }
  StringId string() { return static_cast<StringId>(pick(snapshot_.strings.size())); }
  StackId stack() { return stacks_[pick(stacks_.size())]; }
  std::string text(std::size_t k) {
    const std::vector<std::string> odd = {
        "\"quoted\"\n", "C:\\temp\\\u00fc.py",         std::string(3000, 'n'), "frames",
        "size",         std::string("nul\0inside", 10)};
    return k < odd.size() ? odd[k] : fmt::format("name_{}_{}", k, pick(1000));
  }

  void add_extras(std::vector<Extra>& extras, std::size_t rows) {
    for (std::uint32_t row = 0; row < rows; ++row) {
      if (pick(10) == 0) add_extra(extras, row);
    }
  }
  void add_extra(std::vector<Extra>& extras, std::uint32_t row) {
    Extra extra{.row = row, .key = snapshot_.strings.intern(fmt::format("extra_{}", pick(5)))};
    extra.kind = static_cast<Extra::Kind>(pick(8));
    switch (extra.kind) {
      case Extra::Kind::none:
        break;
      case Extra::Kind::boolean:
        extra.value = pick(2);
        break;
      case Extra::Kind::integer:
        extra.value = static_cast<std::uint64_t>(signed_wide());
        break;
      case Extra::Kind::unsigned_integer:
        extra.value = engine_() | std::uint64_t{1} << 63;
        break;
      case Extra::Kind::real:
        extra.value = std::bit_cast<std::uint64_t>(static_cast<double>(pick(1000)) / 7);
        break;
      case Extra::Kind::text:
        extra.value = string();
        break;
      case Extra::Kind::stack:
        // One that a frame of the frame's own extras can't be in, and not the empty one, which
        // reads as an empty list.
        if (&extras == &snapshot_.frame_extras || stacks_.empty()) {
          extra.kind = Extra::Kind::none;
          break;
        }
        extra.value = stack();
        if (extra.value != 0) break;
        [[fallthrough]];
      case Extra::Kind::json:
        extra.kind = Extra::Kind::json;
        extra.value = snapshot_.values.size();
        snapshot_.values.push_back({{"a", {1, -2, "x", nullptr, true}}, {"b", pick(9)}});
        break;
    }
    extras.push_back(extra);
  }

  void add_segments() {
    for (std::size_t k = pick(5); k > 0; --k) {
      Segment segment;
      segment.device = static_cast<std::int32_t>(pick(3));
      segment.address = wide();
      segment.total_size = size();
      segment.requested_size = size();
      segment.stream = static_cast<std::uint32_t>(pick(snapshot_.streams.size()));
      segment.pool = static_cast<std::uint32_t>(pick(snapshot_.pools.size()));
      segment.type = string();
      segment.expandable = coin();
      segment.stack = stack();
      segment.first_block = static_cast<std::uint32_t>(snapshot_.blocks.size());
      segment.blocks = static_cast<std::uint32_t>(pick(6));
      for (std::uint32_t b = 0; b < segment.blocks; ++b) {
        snapshot_.blocks.push_back({.address = wide(),
                                    .size = size(),
                                    .requested = size(),
                                    .stack = stack(),
                                    .state = static_cast<BlockState>(pick(3))});
        if (pick(3) == 0) {
          snapshot_.blocks.back().keys |= Block::has_history;
          for (std::size_t h = pick(3); h > 0; --h) {
            snapshot_.history.push_back(
                {.block = static_cast<std::uint32_t>(snapshot_.blocks.size() - 1),
                 .stack = stack(),
                 .address = wide(),
                 .real_size = size()});
          }
        }
      }
      snapshot_.segments.push_back(segment);
    }
    add_extras(snapshot_.segment_extras, snapshot_.segments.size());
    add_extras(snapshot_.block_extras, snapshot_.blocks.size());
  }

  void add_trace() {
    Trace& trace = snapshot_.traces.emplace_back();
    std::vector<Extra>& extras = snapshot_.trace_extras.emplace_back();
    for (std::size_t k = deep_ ? pick(9) : pick(8) == 0 ? pick(2500) : pick(100); k > 0; --k) {
      TraceEvent event;
      event.kind = static_cast<EventKind>(pick(9));
      event.keys = static_cast<std::uint8_t>(engine_() | TraceEvent::has_size);
      const auto has = [&](TraceEvent::Key key) { return (event.keys & key) != 0; };
      event.size = size();
      if (has(TraceEvent::has_address)) event.address = wide();
      if (has(TraceEvent::has_time_us)) event.time_us = signed_wide();
      if (has(TraceEvent::has_frames)) event.stack = stack();
      if (has(TraceEvent::has_compile_context)) event.compile_context = string();
      if (has(TraceEvent::has_user_metadata)) event.user_metadata = string();
      if (has(TraceEvent::has_stream))
        event.stream = static_cast<std::uint32_t>(pick(snapshot_.streams.size()));
      if (has(TraceEvent::has_pool_id))
        event.pool = static_cast<std::uint32_t>(pick(snapshot_.pools.size()));
      trace.push_back(event);
    }
    add_extras(extras, trace.size());
  }

  void add_annotations() {
    snapshot_.keys |= Snapshot::has_external_annotations;
    for (std::size_t k = pick(9); k > 0; --k) {
      snapshot_.annotations.push_back({string(), string(), signed_wide(), signed_wide()});
    }
    add_extras(snapshot_.annotation_extras, snapshot_.annotations.size());
  }

  std::mt19937_64 engine_;
  bool deep_ = pick(16) == 0;  // with a stack of more frames than a pickle has in one batch
  Snapshot snapshot_;
  std::vector<StackId> stacks_;
};

std::vector<fs::path> stored() {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(LEAKLAB_SOURCE_DIR) / "tests/data/snapshots")) {
    if (entry.path().extension() == ".pickle") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

TEST(WriteSnapshot, WhatWasWrittenReadsTheSame) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Snapshot snapshot = Random(seed).snapshot();
    for (const SnapshotFormat format : {SnapshotFormat::pickle, SnapshotFormat::json}) {
      const Snapshot again = read_snapshot(snapshot_bytes(snapshot, format), "written");
      ASSERT_EQ(difference(snapshot, again), "") << "seed " << seed;
      ASSERT_EQ(difference(again, snapshot), "") << "seed " << seed;
    }
  }
}

TEST(WriteSnapshot, TheSameSnapshotGivesTheSameBytesWhateverItsIds) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string bytes = snapshot_bytes(Random(seed).snapshot());
    EXPECT_EQ(snapshot_bytes(read_snapshot(bytes, "written")), bytes) << "seed " << seed;
  }
}

TEST(WriteSnapshot, StoredFilesReadWrittenAndReadAgainAreEqual) {
  const std::vector<fs::path> files = stored();
  ASSERT_FALSE(files.empty());
  const fs::path copy = fs::path(testing::TempDir()) / "copy.pickle";
  for (const fs::path& file : files) {
    const Snapshot snapshot = read_snapshot(file);
    EXPECT_GT(snapshot.blocks.size(), 0U) << file;
    for (const SnapshotFormat format : {SnapshotFormat::pickle, SnapshotFormat::json}) {
      write_snapshot(snapshot, copy, format);
      EXPECT_EQ(difference(snapshot, read_snapshot(copy)), "") << file;
      EXPECT_EQ(read_file(copy), snapshot_bytes(snapshot, format)) << file;
    }
  }
  fs::remove(copy);
}

TEST(WriteSnapshot, ADifferenceIsNamedWithItsPlace) {
  const Snapshot snapshot = read_snapshot(fs::path(LEAKLAB_SOURCE_DIR) /
                                          "tests/data/snapshots/bounded_cache_clean.pickle");
  Snapshot other = snapshot;
  EXPECT_EQ(difference(snapshot, other), "");
  TraceEvent event = other.traces[0][17];
  event.stack = 0;
  other.traces[0].set(17, event);
  EXPECT_EQ(difference(snapshot, other), "traces[0][17].stack");
  other = snapshot;
  other.blocks[3].size += 1;
  EXPECT_EQ(difference(snapshot, other), "blocks[3].size");
  other = snapshot;
  other.traces[0].push_back(event);
  EXPECT_EQ(difference(snapshot, other), "traces[0]");
  other = snapshot;
  other.allocator_settings["max_split_size"] = 5;
  EXPECT_EQ(difference(snapshot, other), "allocator_settings");
  EXPECT_FALSE(snapshot == other);
}

TEST(WriteSnapshot, AFolderThatCantBeWrittenToIsNamed) {
  EXPECT_THROW(write_snapshot(Snapshot(), "/dev/null/x.pickle"), UsageError);
}

}  // namespace
}  // namespace leaklab

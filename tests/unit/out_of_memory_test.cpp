// Why an allocation failed, by the segments that there were and what the device had free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "leaklab/diagnosis.h"

namespace leaklab {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t mib = 1 << 20;

// What the allocator of a device holds, and a request that fails.
class Device {
 public:
  Device() {
    snapshot_.traces.resize(1);
    TraceEvent first;  // a single event is no history
    first.kind = EventKind::snapshot;
    snapshot_.traces[0].push_back(first);
    snapshot_.streams.push_back(0x5000);
    snapshot_.pools.emplace_back(1, 0);
  }

  struct Where {
    std::uint32_t stream = 0;  // 0 and 1 are known
    std::uint32_t pool = 0;    // 1: private
    std::string_view type = "large";
    bool expandable = false;
  };
  // A segment of blocks of that many bytes one after the other: every first one is in use, every
  // second one is cached.
  void segment(std::initializer_list<std::int64_t> blocks, const Where& where) {
    Segment segment;
    segment.address = next_;
    segment.stream = where.stream;
    segment.pool = where.pool;
    segment.type = snapshot_.strings.intern(where.type);
    segment.expandable = where.expandable;
    segment.first_block = static_cast<std::uint32_t>(snapshot_.blocks.size());
    segment.blocks = static_cast<std::uint32_t>(blocks.size());
    auto state = BlockState::active_allocated;
    for (const auto size : blocks) {
      const auto at = segment.address + static_cast<std::uint64_t>(segment.total_size);
      snapshot_.blocks.push_back({at, size, size, 0, state, Block::usual_keys});
      segment.total_size += size;
      state = state == BlockState::inactive ? BlockState::active_allocated : BlockState::inactive;
    }
    snapshot_.segments.push_back(segment);
    next_ += std::uint64_t{1} << 40;
  }
  void segment(std::initializer_list<std::int64_t> blocks) { segment(blocks, Where()); }
  // One with a block at its beginning that is freed after the request has failed.
  void freed_later(std::int64_t bytes, std::int64_t requested, const Where& where) {
    TraceEvent event;
    event.kind = EventKind::free_completed;
    event.address = next_;
    event.size = requested;
    after_.push_back(event);
    segment({0, bytes}, where);
    snapshot_.blocks.erase(snapshot_.blocks.end() - 2);
    snapshot_.segments.back().blocks = 1;
  }
  // One that holds nothing when the request fails and is given back after that.
  void given_back(std::int64_t bytes, std::uint32_t stream) {
    TraceEvent event;
    event.kind = EventKind::segment_free;
    event.address = next_;
    event.size = bytes;
    event.stream = stream;
    after_.push_back(event);
    next_ += std::uint64_t{1} << 40;
  }
  void set(const char* name, const nlohmann::json& value) {
    snapshot_.allocator_settings[name] = value;
  }

  FailedAllocation fail(std::int64_t request, std::int64_t free, std::uint32_t pool = 0) {
    TraceEvent event;
    event.kind = EventKind::oom;
    event.size = request;
    event.address = static_cast<std::uint64_t>(free);
    event.pool = pool;
    snapshot_.traces[0].push_back(event);
    for (const auto& each : after_) snapshot_.traces[0].push_back(each);
    return diagnose(snapshot_).oom.value_or(FailedAllocation());
  }

 private:
  Snapshot snapshot_;
  std::vector<TraceEvent> after_;
  std::uint64_t next_ = 0x7f0000000000;
};

TEST(OutOfMemory, a_device_that_holds_the_request_but_not_its_segment_is_no_limit_of_the_process) {
  struct Case {
    std::int64_t request;
    std::int64_t free;
    bool expandable;
    const char* told;
  };
  for (const auto& each : {
           Case{512, mib, false, "has 1.0 MiB free, but the allocator needs 2.0 MiB of it"},
           Case{mib, 2 * mib - 1, false, "needs 2.0 MiB of it in one segment"},
           Case{mib + 512, 12 * mib, false, "needs 20.0 MiB of it in one segment"},
           Case{10 * mib - 512, 20 * mib - 1, false, "needs 20.0 MiB of it in one segment"},
           Case{10 * mib, 10 * mib - 1, false, "the device has 10.0 MiB free, and"},
           Case{10 * mib, 10 * mib, false, "a limit of this process"},
           Case{11 * mib, 11 * mib, false, "needs 12.0 MiB of it in one segment"},
           Case{mib + 512, 20 * mib, false, "a limit of this process"},
           Case{mib, 2 * mib, false, "a limit of this process"},
           Case{30 * mib, 35 * mib, true, "needs 40.0 MiB of it in one go"},
           Case{30 * mib, 40 * mib, true, "a limit of this process"},
           Case{mib, mib, true, "needs 2.0 MiB of it in one go"},
       }) {
    Device device;
    device.segment({50 * mib});
    device.set("expandable_segments", each.expandable);
    const auto oom = device.fail(each.request, each.free);
    EXPECT_THAT(oom.reason, HasSubstr(each.told)) << each.request << ' ' << each.free;
    EXPECT_THAT(oom.reason, HasSubstr("nothing is cached: too much was live")) << each.request;
  }
}

TEST(OutOfMemory, segments_that_grow_tell_expandable_ones_where_no_setting_does) {
  Device device;
  device.segment({40 * mib}, {.expandable = true});
  EXPECT_THAT(device.fail(30 * mib, 35 * mib).reason, HasSubstr("needs 40.0 MiB of it in one go"));
}

TEST(OutOfMemory, fragmentation_is_told_with_what_is_cached_in_how_many_stretches) {
  Device device;
  device.segment({10 * mib, 30 * mib, 10 * mib, 20 * mib});
  device.segment({10 * mib, 40 * mib, 10 * mib});
  const auto oom = device.fail(64 * mib, mib);
  EXPECT_EQ(oom.cached, 90 * mib);
  EXPECT_EQ(oom.reason,
            "the device has 1.0 MiB free, and 90.0 MiB is cached, but in 3 stretches of 40.0 MiB "
            "at most: fragmentation, which PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
            "lessens");
}

TEST(OutOfMemory, who_has_expandable_segments_is_not_told_to_use_them) {
  Device device;
  device.segment({10 * mib, 40 * mib, 10 * mib, 40 * mib}, {.expandable = true});
  const auto oom = device.fail(64 * mib, mib);
  EXPECT_THAT(oom.reason, HasSubstr("fragmentation"));
  EXPECT_THAT(oom.reason, Not(HasSubstr("PYTORCH_CUDA_ALLOC_CONF")));
}

TEST(OutOfMemory, what_is_cached_and_too_little_is_no_fragmentation) {
  Device device;
  device.segment({100 * mib, 30 * mib});
  EXPECT_EQ(device.fail(64 * mib, mib).reason,
            "the device has 1.0 MiB free, and only 30.0 MiB is cached: too much was live");
}

TEST(OutOfMemory, a_stretch_that_is_long_enough_in_another_place_is_told_with_the_place) {
  struct Case {
    Device::Where where;
    std::int64_t request;
    std::uint32_t pool;  // of the request
    const char* told;
  };
  for (const auto& each : {
           Case{{.stream = 1}, 8 * mib, 0, "but for another stream"},
           Case{{.pool = 1}, 8 * mib, 0, "in a private pool, such as that of a CUDA graph"},
           Case{{.stream = 1, .pool = 1}, 8 * mib, 0, "in a private pool"},
           Case{{}, 8 * mib, 1, "outside of the private pool"},
           Case{{}, mib, 0, "for requests of more than 1.0 MiB"},
           Case{{.type = "small"}, 8 * mib, 0, "for requests of 1.0 MiB or less"},
       }) {
    Device device;
    device.segment({20 * mib, 16 * mib, 20 * mib}, each.where);
    const auto oom = device.fail(each.request, 512, each.pool);
    EXPECT_THAT(oom.reason, HasSubstr("16.0 MiB is cached in one stretch, but ")) << each.told;
    EXPECT_THAT(oom.reason, HasSubstr(each.told));
    EXPECT_EQ(oom.largest_free, 16 * mib);
  }
}

TEST(OutOfMemory, pieces_that_the_request_can_not_use_are_no_fragmentation_of_what_it_can) {
  struct Case {
    Device::Where where;
    std::uint32_t pool;  // of the request
    const char* told;
  };
  for (const auto& each : {
           Case{{.stream = 1}, 0, "but for another stream: allocate on one stream"},
           Case{{.pool = 1}, 0, "but in a private pool, such as that of a CUDA graph"},
           Case{{}, 1, "but outside of the private pool"},
           Case{{.type = "small"}, 0, "but for requests of 1.0 MiB or less: too much was live"},
       }) {
    for (const std::int64_t own : {0, 10}) {
      Device device;
      device.segment({mib, 20 * mib, mib, 20 * mib, mib, 20 * mib}, each.where);
      if (own > 0) device.segment({mib, own * mib}, {.pool = each.pool});
      const auto oom = device.fail(40 * mib, mib, each.pool);
      EXPECT_EQ(oom.cached, (60 + own) * mib);
      EXPECT_THAT(oom.reason, Not(HasSubstr("fragmentation"))) << each.told;
      EXPECT_THAT(oom.reason, Not(HasSubstr("expandable_segments"))) << each.told;
      EXPECT_THAT(oom.reason, HasSubstr(each.told));
      EXPECT_THAT(oom.reason,
                  HasSubstr(own > 0 ? "60.0 MiB is cached beside 10.0 MiB that it could use, but "
                                    : "60.0 MiB is cached, but "));
    }
  }
}

TEST(OutOfMemory, fragmentation_counts_the_pieces_that_the_request_can_use_alone) {
  Device device;
  device.segment({mib, 30 * mib, mib, 30 * mib});
  device.segment({mib, 35 * mib}, {.stream = 1});
  EXPECT_THAT(device.fail(40 * mib, mib).reason,
              HasSubstr("60.0 MiB is cached, but in 2 stretches of 30.0 MiB at most: frag"));
}

TEST(OutOfMemory, what_the_allocator_does_not_split_off_a_block_freed_later_is_not_cached) {
  struct Case {
    std::int64_t segment;
    std::int64_t requested;
    Device::Where where;
    std::int64_t cached;
  };
  for (const auto& each : {
           Case{20 * mib, 19 * mib, {}, 0},
           Case{20 * mib, 18 * mib + 100, {}, 2 * mib - 512},
           Case{20 * mib, 19 * mib, {.expandable = true}, mib},
           Case{2 * mib, mib, {.type = "small"}, mib},
           Case{40 * mib, 30 * mib, {}, 10 * mib},
       }) {
    Device device;
    device.freed_later(each.segment, each.requested, each.where);
    EXPECT_EQ(device.fail(64 * mib, mib).cached, each.cached) << each.requested;
  }
  Device device;
  device.freed_later(40 * mib, 30 * mib, {});
  device.set("max_split_size", 25 * mib);
  EXPECT_EQ(device.fail(64 * mib, mib).cached, 0);
}

TEST(OutOfMemory, a_block_freed_later_is_rounded_as_the_settings_of_the_file_say) {
  struct Case {
    std::int64_t requested;
    std::int64_t cached;  // of 100 MiB
  };
  for (const auto& each :
       {Case{66 * mib, 20 * mib}, Case{64 * mib, 36 * mib}, Case{20 * mib, 80 * mib},
        Case{21 * mib, 76 * mib}, Case{5 * mib + 100, 95 * mib - 512}}) {
    Device device;
    device.set("roundup_power2_divisions", {{"1", 0}, {"16", 4}, {"64", 4}});
    device.freed_later(100 * mib, each.requested, {});
    EXPECT_EQ(device.fail(200 * mib, mib).cached, each.cached) << each.requested;
  }
}

TEST(OutOfMemory, a_segment_that_is_gone_at_the_dump_has_the_stream_and_class_of_its_event) {
  for (const std::uint32_t stream : {0U, 1U}) {
    Device device;
    device.given_back(20 * mib, stream);
    EXPECT_THAT(device.fail(8 * mib, mib).reason,
                HasSubstr(stream == 0 ? "while a CUDA graph was captured" : "for another stream"));
  }
  Device device;
  device.given_back(2 * mib, 0);
  EXPECT_THAT(device.fail(mib + 512, mib).reason, HasSubstr("for requests of 1.0 MiB or less"));
}

TEST(OutOfMemory, a_stretch_that_the_request_could_have_had_was_kept_from_it) {
  for (const bool split_limited : {false, true}) {
    Device device;
    device.segment({20 * mib, 16 * mib});
    device.set("max_split_size", split_limited ? 30 * mib : -1);
    EXPECT_THAT(device.fail(8 * mib, mib).reason,
                HasSubstr(split_limited ? "max_split_size_mb keeps long stretches whole"
                                        : "while a CUDA graph was captured"));
  }
}

}  // namespace
}  // namespace leaklab

// Histories of allocator events: levels, and the snapshot that says the same.
#include "leaklab/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "leaklab/diagnosis.h"

namespace leaklab {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// Three layers, freed in the step, and one tensor of 640 bytes that stays.
History leaky(int steps) {
  History history;
  for (const std::uint64_t line : {10U, 11U, 12U, 16U}) {
    history.stacks.push_back({{"/home/me/train.py", "train", line}});
  }
  std::uint32_t next = 0;
  history.boundaries.push_back(0);
  for (int step = 0; step < steps; ++step) {
    const auto first = next;
    for (std::uint32_t stack = 1; stack <= 3; ++stack) {
      history.events.push_back({true, next++, stack, 4096 * std::int64_t{stack}});
    }
    history.events.push_back({true, next++, 4, 640});
    for (auto freed = first; freed < first + 3; ++freed) {
      history.events.push_back({false, freed, 0, 4096 * (std::int64_t{freed} - first + 1)});
    }
    history.boundaries.push_back(history.events.size());
  }
  return history;
}

TEST(History, a_level_counts_what_is_live_at_each_boundary) {
  EXPECT_THAT(levels(leaky(3)),
              ElementsAre(Level{0, 0}, Level{640, 1}, Level{1280, 2}, Level{1920, 3}));
}

TEST(History, its_snapshot_is_diagnosed_as_the_history_leaks) {
  const auto found = diagnose(to_snapshot(leaky(12)));
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.bytes_per_step, 640);
  EXPECT_EQ(found.onset_step, 0);
  EXPECT_EQ(found.steps.source, "annotations");
  EXPECT_EQ(found.steps.count, 12);
  ASSERT_THAT(found.findings, SizeIs(1));
  EXPECT_EQ(found.findings.front().site.line, 16);
  EXPECT_EQ(found.findings.front().live_allocations, 12);
}

TEST(History, its_snapshot_holds_what_is_live_at_the_end_as_blocks) {
  const auto snapshot = to_snapshot(leaky(4));
  std::int64_t live = 0;
  for (const auto& block : snapshot.blocks) {
    if (block.state == BlockState::active_allocated) live += block.requested;
  }
  EXPECT_EQ(live, 4 * 640);
  ASSERT_THAT(snapshot.segments, SizeIs(1));
  EXPECT_EQ(snapshot.segments.front().requested_size, 4 * 640);
}

TEST(History, an_empty_one_is_a_snapshot_without_segments) {
  History nothing;
  nothing.boundaries = {0};
  const auto snapshot = to_snapshot(nothing);
  EXPECT_THAT(snapshot.segments, SizeIs(0));
  EXPECT_THAT(snapshot.traces, SizeIs(1));
}

}  // namespace
}  // namespace leaklab

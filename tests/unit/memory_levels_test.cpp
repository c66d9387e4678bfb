// What a diagnosis tells of memory by steps, ages, blocks and segments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "expect_diagnosis.h"
#include "made_snapshot.h"
#include "report/diagnose_text.h"

namespace leaklab {
namespace {

using made::after;
using made::change;
using made::expect_leak;
using made::Program;
using made::Training;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr std::int64_t mebibyte = 1 << 20;

// A training that keeps a tensor of that size on line 16 in each step from that one on.
Program training_that_keeps(int steps, std::int64_t size, int from = 0) {
  Program program;
  Training training(program);
  for (int step = 0; step < steps; ++step) {
    training.step();
    if (size > 0 && step >= from) program.alloc(Program::line(16), size);
  }
  return program;
}

const Survivors& of_line(const Diagnosis& found, std::int64_t line) {
  static const Survivors none;
  for (const auto& each : found.survivors) {
    if (each.site.line == line) return each;
  }
  ADD_FAILURE() << "nothing lives of line " << line;
  return none;
}

// As one line, wherever the text breaks its own.
std::string text_of(const Diagnosis& found) {
  std::istringstream words(diagnose_text("s", found, {}, {}));
  std::string text;
  for (std::string word; words >> word;) text += (text.empty() ? "" : " ") + word;
  return text;
}

// ---------------------------------------------------------------- steps and ages

TEST(MemoryLevels, the_number_of_live_allocations_is_told_after_each_step) {
  auto program = training_that_keeps(12, 640);
  const auto found = after(program);
  ASSERT_THAT(found.steps.live_counts, SizeIs(12));
  // Three layers; a batch and a loss that live to the next step; what is kept.
  EXPECT_EQ(found.steps.live_counts.front(), 3 + 2 + 1);
  EXPECT_EQ(found.steps.live_counts.back(), 3 + 2 + 12);
  EXPECT_EQ(to_json(found)["steps"]["live_counts"].size(), 12u);
  EXPECT_THAT(text_of(found), HasSubstr("allocations live step 0: 6, step 3: 9, "));
}

TEST(MemoryLevels, what_is_live_is_told_by_line_with_its_age_in_steps) {
  auto program = training_that_keeps(12, 640);
  const auto found = after(program);
  EXPECT_EQ(found.survivors.front().site.line, 3) << "the largest comes first";
  EXPECT_EQ(of_line(found, 16).allocations, 12);
  EXPECT_EQ(of_line(found, 16).bytes, 12 * 640);
  EXPECT_EQ(of_line(found, 16).ages.oldest, 12);
  EXPECT_EQ(of_line(found, 16).ages.median, 7);
  EXPECT_EQ(of_line(found, 10).ages.oldest, 1) << "the batch of the last step";
  EXPECT_EQ(of_line(found, 3).ages.oldest, 12) << "the model, built before the first step";
  EXPECT_EQ(found.findings.front().ages.oldest, 12);
  EXPECT_EQ(found.findings.front().ages.before_trace, 0);
  const auto json = to_json(found);
  EXPECT_EQ(json["findings"][0]["age_steps"]["median"], 7);
  EXPECT_EQ(json["survivors"][0]["age_steps"]["oldest"], 12);
  EXPECT_THAT(text_of(found), HasSubstr("live in 12 allocations, up to 12 steps old (median 7), "));
}

TEST(MemoryLevels, what_lived_before_the_trace_has_no_age_and_is_counted) {
  auto program = training_that_keeps(40, 640);
  // Of a step: a batch, three outputs and gradients, a loss, each freed, and what is kept.
  program.keep_newest(8 * (8 + 2 * 8 + 1));
  const auto found = after(program);
  ASSERT_THAT(found.findings, SizeIs(1)) << found.summary;
  ASSERT_EQ(found.steps.seen, 8);
  const auto& ages = found.findings.front().ages;
  EXPECT_EQ(ages.oldest, 8);
  EXPECT_EQ(ages.before_trace, 32);
  EXPECT_EQ(of_line(found, 16).ages.before_trace, 32);
  EXPECT_EQ(of_line(found, 3).ages.oldest, -1);
  EXPECT_TRUE(to_json(found)["survivors"][0]["age_steps"]["oldest"].is_null());
  EXPECT_THAT(text_of(found),
              HasSubstr("up to 8 steps old (median 5), 32 of them from before the trace"));
}

TEST(MemoryLevels, the_series_of_a_leak_begins_with_what_of_it_was_there_before_the_trace) {
  auto program = training_that_keeps(40, 640);
  program.keep_newest(8 * (8 + 2 * 8 + 1));
  const auto found = after(program);
  ASSERT_THAT(found.steps.leaked_after, SizeIs(8)) << found.summary;
  EXPECT_EQ(found.steps.leaked_after.front(), 33 * 640);
  EXPECT_EQ(found.steps.leaked_after.back(), 40 * 640);
  EXPECT_EQ(found.findings.front().live_bytes, 40 * 640);
}

TEST(MemoryLevels, a_buffer_that_would_look_the_same_holds_what_was_there_before_the_trace_too) {
  auto program = training_that_keeps(40, 640);
  program.keep_newest(8 * (8 + 2 * 8 + 1));
  EXPECT_THAT(after(program).limits, Contains(HasSubstr("bounded at more than 40 steps would")));
  auto late = training_that_keeps(40, 640, 20);
  EXPECT_THAT(after(late).limits, Contains(HasSubstr("bounded at more than 20 steps would")));
}

TEST(MemoryLevels, a_tensor_that_a_larger_one_replaces_is_one_allocation_without_an_age) {
  Program program;
  Training training(program);
  std::uint64_t history = 0;
  for (int step = 0; step < 20; ++step) {
    training.step();
    const auto larger = program.alloc(Program::line(16), 2048 * (step + 1));
    if (history != 0) program.free(history, Program::line(16));
    history = larger;
  }
  const auto found = after(program);
  expect_leak(found, 16, 2048, 0);
  EXPECT_EQ(found.findings.front().live_allocations, 1);
  EXPECT_EQ(found.findings.front().ages.oldest, -1);
}

TEST(MemoryLevels, copies_that_each_step_replaces_have_no_age) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> copies;
  for (int step = 0; step < 40; ++step) {
    training.step();
    for (auto& copy : copies) {
      const auto fresh = program.alloc(Program::line(17), 640);
      program.free(std::exchange(copy, fresh), Program::line(17));
    }
    if (step % 4 == 2) copies.push_back(program.alloc(Program::line(17), 640));
  }
  const auto found = after(program);
  expect_leak(found, 17, 640.0 / 4, 2);
  EXPECT_EQ(found.findings.front().ages.oldest, -1);
  EXPECT_EQ(of_line(found, 17).ages.oldest, 1);
}

TEST(MemoryLevels, a_clean_verdict_on_few_steps_says_what_would_not_show_in_them) {
  auto few = training_that_keeps(4, 0);
  const auto found = after(few);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_THAT(found.limits, Contains(HasSubstr("than each of the 4 steps seen would not show")));
  auto many = training_that_keeps(12, 0);
  EXPECT_THAT(after(many).limits, Not(Contains(HasSubstr("would not show"))));
}

TEST(MemoryLevels, no_line_is_said_to_be_unknown_that_is_shown) {
  auto program = training_that_keeps(12, 640);
  auto snapshot = program.dump();
  // Of the state alone: blocks have frames, events have none or are not there.
  change(snapshot.traces[0], [](TraceEvent& event) { event.stack = 0; });
  for (const std::size_t events : {std::size_t{0}, std::size_t{40}}) {
    auto part = snapshot;
    part.traces[0] = made::part(snapshot.traces[0], 0, events);
    const auto found = diagnose(part);
    ASSERT_EQ(found.verdict, Verdict::undecided);
    ASSERT_FALSE(found.findings.front().site.file.empty());
    EXPECT_THAT(found.limits, Each(Not(HasSubstr("no line can be named")))) << events;
    for (auto& block : part.blocks) block.stack = 0;
    EXPECT_THAT(diagnose(part).limits, Contains(HasSubstr("no line can be named"))) << events;
  }
}

// ---------------------------------------------------------------- blocks

TEST(MemoryLevels, a_leak_of_scalars_is_told_in_whole_blocks_too) {
  auto program = training_that_keeps(12, 4);
  const auto found = after(program);
  expect_leak(found, 16, 4, 0);
  EXPECT_NEAR(found.findings.front().block_bytes_per_step, 512, 0.001);
  ASSERT_THAT(found.rates, SizeIs(1));
  EXPECT_NEAR(found.rates[0].block_bytes_per_step, 512, 0.001);
  EXPECT_EQ(to_json(found)["rates"][0]["block_bytes_per_step"], 512);
  EXPECT_THAT(text_of(found),
              HasSubstr("whole blocks of 512 B, each 2,097,152 steps take another GiB"));
}

TEST(MemoryLevels, blocks_of_small_and_large_tensors_of_one_line_are_rounded_apart) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    for (int scalar = 0; scalar < 3; ++scalar) program.alloc(Program::line(16), 4);
    program.alloc(Program::line(16), 1 << 19);
  }
  EXPECT_NEAR(after(program).findings.front().block_bytes_per_step, (1 << 19) + 3 * 512, 0.001);
}

// ---------------------------------------------------------------- several lines and devices

// As many devices as there are programs.
Snapshot on_devices(std::vector<Snapshot> programs) {
  auto all = programs.front();
  for (std::size_t device = 1; device < programs.size(); ++device) {
    // The programs are alike, so their stacks are the same.
    all.traces.push_back(programs[device].traces[0]);
    auto segment = programs[device].segments[0];
    segment.device = static_cast<std::int32_t>(device);
    segment.first_block = static_cast<std::uint32_t>(all.blocks.size());
    all.segments.push_back(segment);
    all.blocks.insert(all.blocks.end(), programs[device].blocks.begin(),
                      programs[device].blocks.end());
  }
  return all;
}

TEST(MemoryLevels, each_device_that_leaks_has_a_rate_of_its_own) {
  auto small = training_that_keeps(12, 640);
  auto large = training_that_keeps(12, 6400);
  const auto apart = diagnose(on_devices({small.dump(), large.dump()}));
  EXPECT_NEAR(apart.bytes_per_step, 7040, 0.001);
  ASSERT_THAT(apart.rates, SizeIs(2));
  EXPECT_EQ(apart.rates[0].device, 1);
  EXPECT_NEAR(apart.rates[0].bytes_per_step, 6400, 0.001);
  EXPECT_NEAR(apart.rates[1].bytes_per_step, 640, 0.001);
  EXPECT_THAT(
      apart.summary,
      HasSubstr("Leak of 6,400 B a step on device 1 since step 0 and 640 B a step on device "
                "0 since step 0, at train.py:16"));
  EXPECT_THAT(text_of(apart),
              AllOf(HasSubstr("Left behind are 6,400 B a step on device 1 since step 0 and "),
                    HasSubstr("GiB of device 1; ")));
  EXPECT_THAT(diagnose(on_devices({small.dump(), small.dump()})).summary,
              HasSubstr("Leak of 640 B a step on each of devices 0 and 1 since step 0, at"));
  EXPECT_THAT(after(small).summary, HasSubstr("Leak of 640 B a step since step 0, at"));
}

TEST(MemoryLevels, most_is_said_of_a_line_that_has_half_of_the_leak_or_more) {
  for (const bool even : {false, true}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 12; ++step) {
      training.step();
      program.alloc(Program::line(16), 1024);
      program.alloc(Program::line(17), even ? 1024 : 512);
      if (even) program.alloc(Program::line(18), 1024);
    }
    const auto text = text_of(after(program));
    EXPECT_EQ(text.find("most of it") == std::string::npos, even) << text;
    EXPECT_EQ(text.find(" and 2 more lines.") != std::string::npos, even) << text;
  }
}

TEST(MemoryLevels, a_line_that_leaks_on_two_devices_is_one_line_that_leaks_all_of_it) {
  auto small = training_that_keeps(12, 640);
  auto large = training_that_keeps(12, 1920);
  const auto found = diagnose(on_devices({small.dump(), large.dump()}));
  ASSERT_THAT(found.findings, SizeIs(2));
  EXPECT_THAT(found.summary, AllOf(HasSubstr("at train.py:16"), Not(HasSubstr("more line"))));
  EXPECT_THAT(text_of(found), AllOf(HasSubstr(" allocated at "), Not(HasSubstr("most of it")),
                                    Not(HasSubstr("more line"))));
}

TEST(MemoryLevels, a_memory_was_full_unless_whole_steps_came_after_what_failed) {
  for (const int failing : {1, 10, 11}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 12; ++step) {
      training.step();
      program.alloc(Program::line(16), 640);
      if (step == failing) program.fail(1 << 20, 512, Program::line(11));
    }
    const auto found = after(program);
    ASSERT_EQ(found.verdict, Verdict::leak);
    ASSERT_TRUE(found.oom.has_value());
    EXPECT_EQ(found.oom->steps_after, 11 - failing);
    EXPECT_EQ(to_json(found)["oom"]["steps_after"], 11 - failing);
    EXPECT_EQ(was_full(found), failing == 11);
    EXPECT_EQ(text_of(found).find("memory was full") != std::string::npos, failing == 11);
  }
}

TEST(MemoryLevels, what_recent_steps_needed_is_told_in_blocks_with_what_has_leaked_since) {
  for (const int high : {2, 9}) {
    Program program;
    Training training(program, 1, 1024);
    for (int step = 0; step < 12; ++step) {
      training.step(step == high ? 100 : 1);
      program.alloc(Program::line(16), 600);
    }
    const auto found = diagnose(program.dump());
    ASSERT_THAT(found.rates, SizeIs(1));
    // The layer, its gradient, the batch, its output and the loss, and the loss before it.
    const auto batches = std::int64_t{2} * 1024 * (high == 9 ? 100 : 1);
    const auto before = std::int64_t{1024} + 512;
    EXPECT_GE(found.rates[0].needed, 16384 + batches + 512 + 11 * 1024);
    EXPECT_LE(found.rates[0].needed, 2 * 16384 + batches + 512 + before + 12 * 1024);
    EXPECT_EQ(to_json(found)["rates"][0]["needed_bytes"], found.rates[0].needed);
  }
}

// ---------------------------------------------------------------- segments

struct Segments {
  Snapshot snapshot;

  // Blocks of it that are in use: offset and size.
  void add(std::uint64_t address, std::int64_t size,
           const std::vector<std::pair<std::uint64_t, std::int64_t>>& used = {},
           bool expandable = false, std::int32_t device = 0) {
    Segment segment;
    segment.device = device;
    segment.address = address;
    segment.total_size = size;
    segment.expandable = expandable;
    segment.first_block = static_cast<std::uint32_t>(snapshot.blocks.size());
    segment.blocks = static_cast<std::uint32_t>(used.size());
    for (const auto& [offset, bytes] : used) {
      snapshot.blocks.push_back(
          {address + offset, bytes, bytes, 0, BlockState::active_allocated, Block::usual_keys});
    }
    snapshot.segments.push_back(segment);
  }
};

// What `programs` dump, in a segment that they fill.
Snapshot filled(Program& program) {
  auto snapshot = program.dump();
  auto& segment = snapshot.segments[0];
  const auto first = snapshot.blocks.front().address;
  segment.address = first;
  for (std::size_t at = 0; at + 1 < snapshot.blocks.size(); ++at) {
    snapshot.blocks[at].size =
        static_cast<std::int64_t>(snapshot.blocks[at + 1].address - snapshot.blocks[at].address);
  }
  segment.total_size = static_cast<std::int64_t>(snapshot.blocks.back().address - first) +
                       snapshot.blocks.back().size;
  return snapshot;
}

TEST(MemoryLevels, what_is_cached_and_unused_is_told_with_the_pieces_that_it_is_in) {
  Segments made;
  made.add(0x1000000, 2 * mebibyte, {{512 << 10, 512 << 10}});
  made.add(0x9000000, 20 * mebibyte);
  made.add(0x5000000, mebibyte, {{0, mebibyte}});
  const auto found = diagnose(made.snapshot);
  EXPECT_EQ(found.cache.reserved, 23 * mebibyte);
  EXPECT_EQ(found.cache.bytes, 23 * mebibyte - mebibyte - (512 << 10));
  EXPECT_EQ(found.cache.releasable, 20 * mebibyte);
  EXPECT_EQ(found.cache.stretches, 3);
  EXPECT_EQ(found.cache.largest, 20 * mebibyte);
  const auto json = to_json(found);
  EXPECT_EQ(json["cached_bytes"], found.cache.bytes);
  EXPECT_EQ(json["free_stretches"], 3);
  EXPECT_EQ(json["largest_free_bytes"], 20 * mebibyte);
  EXPECT_THAT(text_of(found), HasSubstr("at the dump 1.5 MiB are live and 23.0 MiB reserved, 21.5 "
                                        "MiB of it cached and unused in 3 pieces of at"));
}

TEST(MemoryLevels, only_expandable_segments_side_by_side_are_one_piece) {
  for (const bool expandable : {false, true}) {
    Segments made;
    made.add(0x1000000 + 2 * mebibyte, 2 * mebibyte, {}, expandable);
    made.add(0x1000000, 2 * mebibyte, {{0, mebibyte}}, expandable);
    made.add(0x1000000 + 4 * mebibyte, 2 * mebibyte, {}, expandable, 1);
    const auto found = diagnose(made.snapshot);
    EXPECT_EQ(found.cache.stretches, expandable ? 2 : 3);
    EXPECT_EQ(found.cache.largest, expandable ? 3 * mebibyte : 2 * mebibyte);
    EXPECT_EQ(found.cache.bytes, 5 * mebibyte);
    EXPECT_EQ(found.cache.releasable, 4 * mebibyte);
  }
}

TEST(MemoryLevels, of_an_expandable_segment_empty_cache_gives_back_whole_free_pages_alone) {
  struct Case {
    std::int64_t size;
    std::vector<std::pair<std::uint64_t, std::int64_t>> used;
    std::int64_t given_back;
  };
  const std::uint64_t mib = mebibyte;
  for (const auto& each : {
           // For requests of more than a MiB, as its size is of pages of 20 MiB.
           Case{40, {{0, 10 * mebibyte}, {20 * mib, 10 * mebibyte}}, 0},
           Case{40, {{0, mebibyte}}, 20},
           Case{60, {{10 * mib, mebibyte}, {59 * mib, mebibyte}}, 20},
           Case{80, {{39 * mib, 2 * mebibyte}}, 40},
           Case{40, {}, 40},
           // For smaller ones.
           Case{4, {{0, 512}, {2 * mib, 512}}, 0},
           Case{8, {{3 * mib, mebibyte}}, 6},
       }) {
    Segments made;
    made.add(0x1000000 + 2 * mib, each.size * mebibyte, each.used, true);
    const auto found = diagnose(made.snapshot);
    EXPECT_EQ(found.cache.releasable, each.given_back * mebibyte) << each.size;
    EXPECT_EQ(to_json(found)["releasable_bytes"], each.given_back * mebibyte);
  }
}

TEST(MemoryLevels, free_segments_of_private_pools_are_not_said_to_come_back_while_graphs_live) {
  for (const bool expandable : {false, true}) {
    auto program = training_that_keeps(12, 0);
    auto snapshot = filled(program);
    snapshot.pools.emplace_back(1, 0);
    Segment segment;
    segment.address = 0x1000000;
    segment.total_size = 100 * mebibyte;
    segment.expandable = expandable;
    segment.pool = 1;
    snapshot.segments.push_back(segment);
    const auto found = diagnose(snapshot);
    EXPECT_EQ(found.cache.releasable, 0);
    EXPECT_EQ(found.cache.releasable_later, 100 * mebibyte);
    ASSERT_THAT(found.device_lookalikes, SizeIs(1));
    EXPECT_EQ(found.device_lookalikes[0].taxonomy, "N01");
    EXPECT_THAT(found.device_lookalikes[0].reason,
                AllOf(HasSubstr("private pools"), HasSubstr("once nothing needs the pool")));
  }
}

auto of_class(const std::string& taxonomy) { return Field(&Lookalike::taxonomy, taxonomy); }

TEST(MemoryLevels, a_cache_far_above_what_is_live_is_named_whatever_the_verdict) {
  for (const std::int64_t kept : {0, 640}) {
    auto program = training_that_keeps(12, kept);
    const auto full = filled(program);
    EXPECT_THAT(diagnose(full).device_lookalikes, IsEmpty());
    for (const std::int64_t cached : {15, 30}) {
      auto snapshot = full;
      Segment segment;
      segment.address = 0x1000000;
      segment.total_size = cached * mebibyte;
      snapshot.segments.push_back(segment);
      const auto found = diagnose(snapshot);
      EXPECT_EQ(found.verdict, kept == 0 ? Verdict::clean : Verdict::leak) << found.summary;
      if (cached < 16) {
        EXPECT_THAT(found.device_lookalikes, IsEmpty());
        continue;
      }
      ASSERT_THAT(found.device_lookalikes, ElementsAre(of_class("N01")));
      EXPECT_EQ(found.device_lookalikes[0].bytes, 30 * mebibyte);
      EXPECT_EQ(to_json(found)["lookalikes"].back()["channel"], "reserved");
      EXPECT_THAT(text_of(found), AllOf(HasSubstr(" no leak although it looks so "),
                                        HasSubstr(" 30.0 MiB: freed and kept by the allocator")));
    }
  }
}

TEST(MemoryLevels, free_memory_between_live_blocks_is_named_unless_more_and_more_is_reserved) {
  for (const bool grows : {false, true}) {
    auto program = training_that_keeps(12, 0);
    if (grows) program.segment(EventKind::segment_alloc, 0x1000000, 40 * mebibyte);
    auto snapshot = filled(program);
    Segment segment;
    segment.address = 0x1000000;
    segment.total_size = 40 * mebibyte;
    segment.first_block = static_cast<std::uint32_t>(snapshot.blocks.size());
    segment.blocks = 1;
    snapshot.blocks.push_back(
        {0x1000000 + 20 * mebibyte, 512, 512, 0, BlockState::active_allocated, Block::usual_keys});
    snapshot.segments.push_back(segment);
    const auto found = diagnose(snapshot);
    if (grows) {
      EXPECT_THAT(found.device_lookalikes, IsEmpty());
    } else {
      EXPECT_THAT(found.device_lookalikes, ElementsAre(of_class("N07")));
    }
  }
}

// Steps that keep nothing, of which those up to `until` reserve a segment of 20 MiB each.
Snapshot reserving(int until, bool in_pools) {
  Program program;
  Training training(program);
  const auto segment_of = [](int step) {
    return 0x1000000 + static_cast<std::uint64_t>(step) * 20 * mebibyte;
  };
  for (int step = 0; step < 24; ++step) {
    training.step();
    if (step < until) program.segment(EventKind::segment_alloc, segment_of(step), 20 * mebibyte);
  }
  auto snapshot = filled(program);
  snapshot.pools.emplace_back(1, 0);
  for (int step = 0; step < until; ++step) {
    Segment segment;
    segment.address = segment_of(step);
    segment.total_size = 20 * mebibyte;
    segment.pool = in_pools ? 1 : 0;
    snapshot.segments.push_back(segment);
  }
  return snapshot;
}

TEST(MemoryLevels, reserved_memory_that_grows_while_nothing_is_kept_is_told_with_what_to_do) {
  for (const bool in_pools : {false, true}) {
    const auto found = diagnose(reserving(24, in_pools));
    EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
    EXPECT_THAT(found.limits,
                Contains(AllOf(HasSubstr("reserved memory grows by 20.0 MiB a step although no "
                                         "line keeps more"),
                               HasSubstr(in_pools ? "such as those of CUDA graphs: capture"
                                                  : "expandable_segments:True"))));
    for (const int until : {0, 6, 12, 18, 20}) {
      EXPECT_THAT(diagnose(reserving(until, in_pools)).limits,
                  Not(Contains(HasSubstr("reserved memory grows"))))
          << until;
    }
  }
}

TEST(MemoryLevels, a_high_water_mark_of_an_early_step_is_named_and_one_that_comes_again_is_not) {
  for (const std::int64_t kept : {0, 640}) {
    for (const int every : {100, 5}) {
      Program program;
      Training training(program);
      for (int step = 0; step < 12; ++step) {
        training.step(step % every == 2 ? 5000 : 1);
        if (kept > 0) program.alloc(Program::line(16), kept);
      }
      const auto found = diagnose(filled(program));
      EXPECT_EQ(found.verdict, kept == 0 ? Verdict::clean : Verdict::leak) << found.summary;
      if (every == 5) {
        EXPECT_THAT(found.device_lookalikes, IsEmpty());
        continue;
      }
      ASSERT_THAT(found.device_lookalikes, ElementsAre(of_class("N06")));
      EXPECT_THAT(found.device_lookalikes[0].reason, HasSubstr("were live in step 2, and "));
      EXPECT_GT(found.device_lookalikes[0].bytes, 3 * 4096 * 4900);
    }
  }
}

}  // namespace
}  // namespace leaklab

// From snapshots and series to patterns of allocations.
#include "leaklab/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "leaklab/error.h"
#include "made_snapshot.h"

namespace leaklab {
namespace {

using made::change;
using made::Program;
using made::Training;
using testing::HasSubstr;

std::int64_t allocations(const Pattern& pattern) {
  std::int64_t count = 0;
  for (const auto& step : pattern.steps) {
    for (const auto& op : step) count += op.kind == Pattern::Op::Kind::free ? 0 : 1;
  }
  return count;
}

TEST(Import, a_leak_keeps_its_rate_and_loses_what_the_diagnosis_does_not_need) {
  Program program;
  Training training(program);
  for (int step = 0; step < 40; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  const auto imported = import_snapshot(program.dump());
  EXPECT_EQ(imported.diagnosis.verdict, Verdict::leak);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 640);
  EXPECT_EQ(imported.pattern.growth().per_period("live_allocations"), 1);
  EXPECT_EQ(imported.pattern.period, 1);
  EXPECT_LT(imported.pattern.steps.size(), 10);
  EXPECT_LT(imported.kept, imported.allocations / 4);
  EXPECT_EQ(allocations(imported.pattern), imported.kept);
}

TEST(Import, a_leak_each_third_step_keeps_its_period) {
  Program program;
  Training training(program);
  for (int step = 0; step < 60; ++step) {
    training.step();
    if (step % 3 == 2) program.alloc(Program::line(16), 1000);
  }
  const auto pattern = import_snapshot(program.dump()).pattern;
  EXPECT_EQ(pattern.period, 3);
  EXPECT_EQ(pattern.growth().per_period("requested"), 1000);
}

TEST(Import, of_a_leak_without_a_period_the_last_steps_stay_and_what_they_leave) {
  Program program;
  Training training(program);
  std::vector<std::int64_t> sizes;
  std::uint32_t random = 1;
  for (int step = 0; step < 300; ++step) {
    training.step();
    random = random * 1664525 + 1013904223;
    sizes.push_back(512 + random % 100'000);
    program.alloc(Program::line(16), sizes.back());
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.period, 0);
  EXPECT_FALSE(imported.merely_grows);
  EXPECT_EQ(imported.pattern.period, 32);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"),
            std::accumulate(sizes.end() - 32, sizes.end(), std::int64_t{0}));
}

TEST(Import, two_leaks_are_both_kept) {
  Program program;
  Training training(program);
  for (int step = 0; step < 30; ++step) {
    training.step();
    program.alloc(Program::line(16), 4096);
    program.alloc(Program::line(17), 640);
  }
  const auto growth = import_snapshot(program.dump()).pattern.growth();
  EXPECT_EQ(growth.per_period("requested"), 4096 + 640);
  EXPECT_EQ(growth.per_period("live_allocations"), 2);
}

TEST(Import, a_tensor_that_a_larger_one_replaces_leaks_what_it_grows_by) {
  Program program;
  Training training(program);
  auto kept = program.alloc(Program::line(16), 640);
  for (int step = 1; step < 40; ++step) {
    training.step();
    const auto larger = program.alloc(Program::line(16), 640 * (step + 1));
    program.free(kept, Program::line(16));
    kept = larger;
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::leak) << imported.diagnosis.summary;
  EXPECT_FALSE(imported.merely_grows);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 640);
  EXPECT_EQ(imported.pattern.growth().per_period("live_allocations"), 0);
  EXPECT_THAT(to_text(imported.pattern), testing::EndsWith("\n25600+640 -1.0\n"));
}

TEST(Import, what_is_not_due_at_the_dump_is_no_leak) {
  // The line that leaks replaces another tensor in each step, which is live at the end.
  Program program;
  std::uint64_t last = 0;
  for (int step = 0; step < 20; ++step) {
    program.alloc(Program::line(16), 1000);
    const auto next = program.alloc(Program::line(16), 64);
    program.free(program.alloc(Program::line(17), 256), Program::line(17));
    if (last != 0) program.free(last, Program::line(18));
    last = next;
  }
  const auto imported = import_snapshot(program.dump());
  EXPECT_FALSE(imported.merely_grows);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 1000);
  EXPECT_EQ(imported.pattern.growth().per_period("live_allocations"), 1);
}

TEST(Import, what_was_live_before_the_first_step_stays_where_the_verdict_needs_it) {
  // Old optimizers are kept with their parameters, of which the first ones were made before.
  Program program;
  const auto make = [&] {
    std::vector<std::uint64_t> parameters;
    for (int layer = 0; layer < 2; ++layer) {
      parameters.push_back(program.alloc(Program::to_device(5), 8192));
    }
    return parameters;
  };
  auto parameters = make();
  for (int step = 0; step < 24; ++step) {
    if (step % 6 == 0 && step > 0) parameters = make();
    const auto x = program.alloc(Program::line(10), 4096);
    const auto out = program.alloc(Program::module(11), 4096);
    program.free(program.alloc({}, 4096));
    if (step % 6 == 0) {
      for (int state = 0; state < 4; ++state) program.alloc(Program::optimizer(14), 8192);
    }
    program.free(out);
    program.free(x, Program::line(15));
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.findings.size(), 2U) << imported.diagnosis.summary;
  EXPECT_FALSE(imported.merely_grows);
  EXPECT_LT(imported.kept, imported.allocations);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 6 * 8192);
}

TEST(Import, what_the_loop_drops_when_it_ends_takes_nothing_from_the_leak) {
  // Each third step keeps two tensors. The last one of all goes with the loop.
  Program program;
  Training training(program);
  std::uint64_t last = 0;
  for (int step = 0; step < 30; ++step) {
    training.step();
    if (step % 3 != 1) continue;
    program.alloc(Program::line(16), 1000);
    last = program.alloc(Program::line(16), 3000);
  }
  program.free(last, Program::line(18));
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::leak) << imported.diagnosis.summary;
  ASSERT_EQ(imported.diagnosis.period, 3);
  EXPECT_FALSE(imported.merely_grows);
  EXPECT_EQ(imported.pattern.period, 3);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 4000);
  EXPECT_EQ(imported.pattern.growth().per_period("live_allocations"), 2);
}

TEST(Import, of_a_tensor_that_grows_irregularly_each_step_adds_the_mean) {
  Program program;
  Training training(program);
  std::int64_t size = 4096;
  auto kept = program.alloc(Program::line(16), size);
  for (int step = 1; step < 40; ++step) {
    training.step();
    size += 64 + 4 * (step * 37 % 61);
    const auto larger = program.alloc(Program::line(16), size);
    program.free(std::exchange(kept, larger), Program::line(16));
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::leak) << imported.diagnosis.summary;
  ASSERT_EQ(imported.diagnosis.period, 0);
  EXPECT_TRUE(imported.merely_grows);
  EXPECT_EQ(imported.pattern.period, 1);
  EXPECT_NEAR(static_cast<double>(imported.pattern.growth().per_period("requested")),
              imported.diagnosis.bytes_per_step, 0.5);
}

TEST(Import, of_several_devices_the_worst_is_imported_and_told) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  auto snapshot = program.dump();
  snapshot.traces.push_back(snapshot.traces[0]);
  change(snapshot.traces[1], [](TraceEvent& event) {
    if (event.size == 640) event.size = 6400;
  });
  const auto imported = import_snapshot(snapshot);
  EXPECT_EQ(imported.diagnosis.device, 1);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 6400);
  EXPECT_THAT(imported.diagnosis.summary, testing::HasSubstr("6,400 B a step"));
}

TEST(Import, hundreds_of_lines_that_leak_are_not_tried_one_by_one) {
  constexpr std::size_t lines = 200;
  Program program;
  for (int step = 0; step < 16; ++step) {
    const auto batch = program.alloc(Program::line(10), 4096);
    for (std::size_t line = 0; line < lines; ++line) {
      // Each by way of two calls, of which neither can be left out.
      program.alloc(Program::called("keep", 1000 + line, 11), 512);
      program.alloc(Program::called("keep", 1000 + line, 12), 512);
    }
    program.free(batch, Program::line(13));
  }
  ImportProgress last;
  const auto imported = import_snapshot(program.dump(), {}, [&](const auto& now) { last = now; });
  ASSERT_EQ(imported.diagnosis.findings.size(), lines);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), lines * 2 * 512);
  EXPECT_GT(last.tried, 0U);
  EXPECT_LT(last.tried, 50U);
}

TEST(Import, a_line_that_leaks_loses_what_it_calls_and_does_not_leak) {
  Program program;
  Training training(program);
  for (int step = 0; step < 24; ++step) {
    program.free(program.alloc(Program::called("make", 50, 16), 1280), Program::line(16));
    training.step();
    program.alloc(Program::line(16), 640);
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::leak) << imported.diagnosis.summary;
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 640);
  for (const auto& step : imported.pattern.steps) {
    for (const auto& op : step) EXPECT_NE(op.bytes, 1280);
  }
}

TEST(Import, a_loop_that_does_not_leak_becomes_a_pattern_that_does_not_grow) {
  Program program;
  Training training(program);
  training.adam = true;
  for (int step = 0; step < 24; ++step) training.step();
  const auto imported = import_snapshot(program.dump());
  EXPECT_EQ(imported.diagnosis.verdict, Verdict::clean);
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 0);
  EXPECT_EQ(imported.pattern.growth().per_period("live_allocations"), 0);
}

TEST(Import, a_buffer_of_eight_becomes_a_pattern_that_holds_eight) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> buffer;
  for (int step = 0; step < 24; ++step) {
    training.step();
    buffer.push_back(program.alloc(Program::line(16), 4096));
    if (step < 8) continue;
    program.free(buffer.front(), Program::line(17));
    buffer.erase(buffer.begin());
  }
  const auto imported = import_snapshot(program.dump());
  EXPECT_EQ(imported.diagnosis.verdict, Verdict::clean) << imported.diagnosis.summary;
  EXPECT_EQ(imported.pattern.period, 1);
  EXPECT_GE(imported.pattern.reach(), 8);
  const auto levels = imported.pattern.levels(40, true);
  for (auto step = imported.pattern.settled(); step < 40; ++step) {
    EXPECT_EQ(levels[static_cast<std::size_t>(step)], levels.back()) << step;
  }
  EXPECT_GE(levels.back(), 8 * 4096);
}

TEST(Import, what_is_dropped_after_the_last_step_keeps_no_loop_from_being_reduced) {
  // The scores of ten steps are dropped between two steps, and the last ones after all of them.
  Program program;
  Training training(program);
  std::vector<std::uint64_t> scores;
  for (int step = 0; step < 50; ++step) {
    const auto name = "step " + std::to_string(step);
    program.mark("START", name);
    training.step();
    scores.push_back(program.alloc(Program::line(16), 960));
    program.mark("END", name);
    if (step % 10 != 9) continue;
    for (const auto score : scores) program.free(score, Program::line(18));
    scores.clear();
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::clean) << imported.diagnosis.summary;
  EXPECT_LT(imported.kept * 2, imported.allocations);
  const auto levels = imported.pattern.levels(60, true);
  EXPECT_GE(std::ranges::max(levels), 9 * 960);
}

TEST(Import, what_fills_once_keeps_the_step_that_fills_it_and_few_others) {
  Program program;
  Training training(program);
  training.adam = true;
  for (int step = 0; step < 60; ++step) training.step();
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::clean);
  EXPECT_LE(imported.pattern.steps.size(), 6u);
  std::int64_t states = 0;  // of 65536 bytes, made once on line 14
  for (const auto& op : imported.pattern.steps.front()) states += op.bytes == 4096 * 16 ? 1 : 0;
  EXPECT_GE(states, 6);
}

TEST(Import, a_buffer_that_fills_slowly_keeps_its_size_and_loses_the_steps_between) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> buffer;
  for (int step = 0; step < 64; ++step) {
    training.step();
    if (step % 8 == 7 && buffer.size() < 4) buffer.push_back(program.alloc(Program::line(16), 640));
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::clean) << imported.diagnosis.summary;
  EXPECT_LT(imported.pattern.steps.size(), 16u);
  std::int64_t filled = 0;
  for (const auto& step : imported.pattern.steps) {
    filled += std::ranges::count_if(step, [](const auto& op) { return op.bytes == 640; });
  }
  EXPECT_EQ(filled, 4);
}

TEST(Import, a_leak_in_evaluation_is_reduced_although_a_history_has_one_kind_of_step) {
  Program program;
  Training training(program);
  for (int epoch = 0; epoch < 8; ++epoch) {
    for (int step = 0; step < 6; ++step) training.step();
    for (int step = 0; step < 3; ++step) {
      training.evaluation_step();
      program.alloc(Program::line(23), 640);
    }
  }
  const auto imported = import_snapshot(program.dump());
  ASSERT_EQ(imported.diagnosis.verdict, Verdict::leak) << imported.diagnosis.summary;
  EXPECT_LT(imported.kept * 3, imported.allocations);
  EXPECT_EQ(imported.pattern.growth().per_period("requested") * 9, imported.pattern.period * 1920);
}

TEST(Import, functions_without_a_file_do_not_leak_for_each_other) {
  const auto native = [](const char* function) {
    return made::MadeStack{{"??", function, 0}, {"??", "main", 0}};
  };
  Program program;
  std::uint64_t last = 0;
  for (int step = 0; step < 16; ++step) {
    program.mark("START", "step " + std::to_string(step));
    program.alloc(native("keep(at::Tensor)"), 640);
    const auto batch = program.alloc(native("next_batch()"), 4096);
    if (last != 0) program.free(last, native("next_batch()"));
    last = batch;
    program.mark("END", "step " + std::to_string(step));
  }
  const auto pattern = import_snapshot(program.dump()).pattern;
  EXPECT_EQ(pattern.growth().per_period("requested"), 640 * pattern.period);
}

TEST(Import, of_two_devices_the_one_that_leaks_most_is_imported) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  auto snapshot = program.dump();
  // The other device has the same trace and nothing else is known of it.
  snapshot.traces.push_back(snapshot.traces[0]);
  const auto imported = import_snapshot(snapshot);
  EXPECT_THAT(imported.diagnosis.findings, testing::SizeIs(1));
  EXPECT_EQ(imported.pattern.growth().per_period("requested"), 640 * imported.pattern.period);
}

TEST(Import, the_same_file_gives_the_same_pattern) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) training.step(1 + step % 3, true);
  const auto snapshot = program.dump();
  EXPECT_EQ(import_snapshot(snapshot).pattern, import_snapshot(snapshot).pattern);
}

TEST(Import, a_file_that_can_not_tell_is_refused) {
  Program program;
  Training training(program);
  training.step();
  program.drop_history();
  try {
    import_snapshot(program.dump());
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::undecided);
    EXPECT_THAT(error.what(), HasSubstr("nothing to import"));
  }
}

TEST(Import, every_stored_leak_becomes_a_pattern_of_its_rate) {
  const auto folder = std::filesystem::path(LEAKLAB_SOURCE_DIR) / "tests/data/snapshots";
  int leaks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".pickle") continue;
    const auto snapshot = read_snapshot(entry.path());
    const auto found = diagnose(snapshot);
    if (found.verdict != Verdict::leak) continue;
    const auto pattern = import_snapshot(snapshot).pattern;
    const auto growth = static_cast<double>(pattern.growth().per_period("requested"));
    EXPECT_NEAR(growth / static_cast<double>(pattern.period), found.bytes_per_step, 0.001)
        << entry.path();
    ++leaks;
  }
  EXPECT_GT(leaks, 5);
}

TEST(Import, the_events_of_a_file_have_its_levels) {
  const auto folder = std::filesystem::path(LEAKLAB_SOURCE_DIR) / "tests/data/snapshots";
  std::int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".pickle") continue;
    const auto snapshot = read_snapshot(entry.path());
    for (std::size_t device = 0; device < snapshot.traces.size(); ++device) {
      if (snapshot.traces[device].empty()) continue;
      const auto performed = levels(history_of(snapshot, device, {}));
      EXPECT_EQ(performed, file_levels(snapshot, device, {}).levels)
          << entry.path() << " device " << device;
      std::int64_t live = 0;  // at the dump, as the blocks say
      for (const auto& segment : snapshot.segments) {
        if (segment.device != static_cast<std::int32_t>(device)) continue;
        live += segment.requested_size;
      }
      EXPECT_EQ(performed.back().requested, live) << entry.path();
      ++files;
    }
  }
  EXPECT_GT(files, 10);
}

// The levels of a snapshot's events and those that the snapshot itself tells.
void expect_its_levels(const Snapshot& snapshot) {
  EXPECT_EQ(levels(history_of(snapshot, 0, {})), file_levels(snapshot, 0, {}).levels);
}

TEST(Import, what_was_freed_after_the_recording_is_freed_at_its_end) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) training.step();
  const auto late = program.alloc(Program::line(16), 640);
  auto snapshot = program.dump();
  std::erase_if(snapshot.blocks, [&](const Block& block) { return block.address == late; });
  snapshot.segments.front().blocks -= 1;
  const auto history = history_of(snapshot, 0, {});
  EXPECT_FALSE(history.events.back().alloc);
  EXPECT_EQ(history.events.back().bytes, 640);
  expect_its_levels(snapshot);
}

TEST(Import, an_address_taken_again_without_a_free_was_freed_before) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) training.step();
  auto snapshot = program.dump();
  auto& trace = snapshot.traces[0];
  // The free of one block is missing, as where recording was off for a while.
  const auto born = std::ranges::find(trace, EventKind::alloc, &TraceEvent::kind);
  auto again = *born;
  again.size = 4096;
  again.time_us = trace.back().time_us + 1;
  trace.push_back(again);
  for (auto& block : snapshot.blocks) {
    if (block.address == again.address) block.requested = 4096;
  }
  expect_its_levels(snapshot);
}

TEST(Import, without_blocks_what_was_freed_only_was_there_before) {
  Program program;
  const auto old = program.forgotten(4096);
  Training training(program);
  for (int step = 0; step < 12; ++step) training.step();
  program.free(old, Program::line(16));
  auto snapshot = program.dump();
  snapshot.blocks.clear();
  snapshot.segments.clear();
  expect_its_levels(snapshot);
}

TEST(Import, a_series_that_grows_by_the_same_bytes_becomes_one_leak_a_period) {
  std::vector<std::int64_t> series = {5000, 9000};
  for (int step = 0; step < 20; ++step) series.push_back(series.back() + 640);
  const auto pattern = import_series(series);
  EXPECT_EQ(pattern.period, 1);
  EXPECT_EQ(pattern.growth().per_period("requested"), 640);
}

TEST(Import, a_series_of_stairs_keeps_their_period) {
  std::vector<std::int64_t> series;
  for (std::int64_t step = 0; step < 24; ++step) series.push_back(1'000'000 + step / 4 * 8192);
  const auto pattern = import_series(series);
  EXPECT_EQ(pattern.period, 4);
  EXPECT_EQ(pattern.growth().per_period("requested"), 8192);
}

TEST(Import, a_series_that_is_level_or_a_sawtooth_does_not_grow) {
  const std::vector<std::int64_t> flat(12, 4096);
  EXPECT_EQ(import_series(flat).growth().per_period("requested"), 0);
  std::vector<std::int64_t> sawtooth;
  for (std::int64_t step = 0; step < 24; ++step) sawtooth.push_back(4096 + step % 4 * 512);
  const auto pattern = import_series(sawtooth);
  EXPECT_EQ(pattern.growth().per_period("requested"), 0);
  EXPECT_EQ(pattern.period, 4);
}

TEST(Import, a_series_that_tells_nothing_is_refused) {
  const std::vector<std::int64_t> brief = {1, 2, 3};
  EXPECT_THROW(import_series(brief), UsageError);
  std::vector<std::int64_t> noise;
  for (std::int64_t step = 0; step < 24; ++step) noise.push_back(step * step * 7919 % 10'007);
  EXPECT_THROW(import_series(noise), UsageError);
}

}  // namespace
}  // namespace leaklab

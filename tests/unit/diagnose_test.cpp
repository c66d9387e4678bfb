// The diagnosis of memory snapshots, on streams of events made for it.
#include "leaklab/diagnosis.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "expect_diagnosis.h"
#include "made_snapshot.h"

namespace leaklab {
namespace {

using made::after;
using made::change;
using made::expect_leak;
using made::MadeStack;
using made::part;
using made::Program;
using made::Training;
using testing::AnyOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// ---------------------------------------------------------------- leaks

TEST(Diagnosis, a_tensor_kept_in_each_step_is_a_leak_with_line_rate_and_onset) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  const auto found = after(program);
  expect_leak(found, 16, 640, 0);
  EXPECT_EQ(found.steps.count, 12);
  EXPECT_EQ(found.findings.front().live_allocations, 12);
  EXPECT_EQ(found.findings.front().site.file, "/home/me/train.py");
  EXPECT_EQ(found.findings.front().site.function, "train");
}

TEST(Diagnosis, an_output_kept_by_a_later_line_is_told_by_the_line_that_allocated_it) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) training.step(1, true);
  expect_leak(after(program), 11, 4096, 0);
}

TEST(Diagnosis, the_series_of_a_leak_rises_to_what_is_live_at_the_dump) {
  Program program;
  Training training(program);
  std::uint64_t last = program.alloc(Program::line(16), 640);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
    // Of the same line and size, and held to the next step: what is younger may go as well.
    program.free(std::exchange(last, program.alloc(Program::line(16), 640)), Program::line(17));
  }
  const auto found = after(program);
  ASSERT_THAT(found.findings, SizeIs(1)) << found.summary;
  const auto& series = found.steps.leaked_after;
  ASSERT_THAT(series, SizeIs(12));
  for (std::size_t step = 1; step < series.size(); ++step) {
    EXPECT_EQ(series[step] - series[step - 1], 640) << step;
  }
  EXPECT_EQ(series.back(), found.findings.front().live_bytes);
}

TEST(Diagnosis, a_cache_with_an_entry_for_each_shape_is_told_from_a_list_of_varying_sizes) {
  struct Kept {
    int every;   // step of three is left out; 3: none is
    int shapes;  // that there are
    std::string taxonomy;
  };
  for (const auto& kept : {Kept{3, 64, "L17"}, Kept{2, 64, "L20"}, Kept{2, 11, "L17"}}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 40; ++step) {
      training.step();
      if (step % 3 == kept.every) continue;
      program.alloc(Program::line(16), 512 * (1 + step * 37 % kept.shapes));
    }
    const auto found = after(program);
    ASSERT_EQ(found.verdict, Verdict::leak) << found.summary;
    EXPECT_EQ(found.findings.front().taxonomy, kept.taxonomy) << kept.every << kept.shapes;
  }
}

TEST(Diagnosis, hooks_added_in_each_step_make_each_step_keep_more) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    for (int hook = 0; hook <= step; ++hook) program.alloc(Program::called("hook", 30, 11), 640);
  }
  const auto found = after(program);
  ASSERT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.findings.front().taxonomy, "L10");
}

TEST(Diagnosis, hooks_that_each_refresh_a_copy_leak_although_each_copy_is_replaced) {
  for (const int hooked_until : {40, 12}) {
    Program program;
    Training training(program);
    std::vector<std::uint64_t> copies;
    for (int step = 0; step < 40; ++step) {
      training.step();
      for (auto& copy : copies) {
        const auto fresh = program.alloc(Program::called("hook", 30, 17), 640);
        program.free(std::exchange(copy, fresh), Program::called("hook", 30, 17));
      }
      if (step % 4 == 2 && step < hooked_until) {
        copies.push_back(program.alloc(Program::called("hook", 30, 17), 640));
      }
    }
    const auto found = after(program);
    if (hooked_until < 40) {
      EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
      continue;
    }
    expect_leak(found, 30, 640.0 / 4, 2);
    EXPECT_EQ(found.findings.front().taxonomy, "L10");
  }
}

TEST(Diagnosis, batches_sorted_by_length_are_no_history) {
  enum class Grows { batches, history, history_and_its_scores };
  for (const auto grows : {Grows::batches, Grows::history, Grows::history_and_its_scores}) {
    Program program;
    std::uint64_t kept = 0;
    for (int step = 0; step < 24; ++step) {
      // Longer by another amount each time.
      const std::int64_t length = 64 + step * 20 + step * 7 % 5;
      const auto work = (grows == Grows::batches ? length : 64) * 1024;
      const auto next = program.alloc(Program::line(10), length * 64);
      if (step > 0) program.free(kept, Program::line(10));
      kept = next;
      std::vector passing = {program.alloc(Program::module(11), work),
                             program.alloc(Program::line(12), work / 2),
                             program.alloc(Program::line(13), 4)};
      if (grows == Grows::history_and_its_scores) {
        passing.push_back(program.alloc(Program::line(14), length * 32));
        passing.push_back(program.alloc(Program::line(15), length * 32));
      }
      for (const auto address : passing) program.free(address, Program::line(16));
    }
    const auto found = after(program);
    const bool sorted = grows == Grows::batches;
    EXPECT_EQ(found.verdict, sorted ? Verdict::undecided : Verdict::leak) << found.summary;
    EXPECT_EQ(found.summary.find("sizes grow") != std::string::npos, sorted) << found.summary;
  }
}

TEST(Diagnosis, batches_that_grow_are_no_history_beside_a_cache_of_them) {
  Program program;
  std::uint64_t batch = 0;
  for (int step = 0; step < 16; ++step) {
    const auto next = program.alloc(Program::line(10), 512 * (step + 8));
    if (batch != 0) program.free(batch, Program::line(10));
    batch = next;
    const auto out = program.alloc(Program::module(11), 4096);
    program.alloc(Program::line(16), 256 * (step + 8));
    program.free(out, Program::line(12));
  }
  const auto found = after(program);
  ASSERT_EQ(found.verdict, Verdict::leak) << found.summary;
  ASSERT_THAT(found.findings, SizeIs(1));
  EXPECT_EQ(found.findings.front().site.line, 16);
}

TEST(Diagnosis, what_the_first_step_left_once_moves_no_onset_of_a_later_leak) {
  Program program;
  Training training(program);
  for (int step = 0; step < 48; ++step) {
    training.step();
    if (step == 0 || step % 8 == 7) program.alloc(Program::line(16), 640);
  }
  expect_leak(after(program), 16, 80, 7);
}

TEST(Diagnosis, three_steps_tell_a_leak_where_live_blocks_tell_what_those_before_kept) {
  for (const bool kept_before : {false, true}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 40; ++step) {
      training.step();
      const auto kept = program.alloc(Program::line(16), 640);
      if (step < 36 && !kept_before) program.free(kept, Program::line(17));
    }
    // Of a step: a batch, three outputs and gradients, a loss, each freed, and what is kept.
    program.keep_newest(3 * (8 + 2 * 8 + 1));
    const auto found = after(program);
    EXPECT_EQ(found.steps.seen, 3);
    EXPECT_EQ(found.verdict, kept_before ? Verdict::leak : Verdict::undecided) << found.summary;
  }
}

TEST(Diagnosis, what_one_of_many_steps_does_not_free_is_told_from_what_all_keep) {
  Program program;
  Training training(program);
  for (int step = 0; step < 60; ++step) {
    training.step();
    const auto request = program.alloc(Program::line(16), 640);
    const auto answer = program.alloc(Program::line(16), 1280);
    if (step % 9 == 4) continue;
    program.free(request, Program::line(17));
    program.free(answer, Program::line(17));
  }
  const auto found = after(program);
  ASSERT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.findings.front().taxonomy, "L11");
}

TEST(Diagnosis, a_leak_each_seventh_step_has_its_mean_rate_and_its_period) {
  Program program;
  Training training(program);
  for (int step = 0; step < 70; ++step) {
    training.step();
    if (step % 7 == 6) program.alloc(Program::line(16), 256);
  }
  const auto found = after(program);
  expect_leak(found, 16, 256.0 / 7, 6);
  EXPECT_EQ(found.period, 7);
  EXPECT_EQ(found.steps.count, 70);
}

TEST(Diagnosis, a_leak_that_begins_late_has_that_onset) {
  Program program;
  Training training(program);
  for (int step = 0; step < 40; ++step) {
    training.step();
    const auto kept = program.alloc(Program::line(16), 1024);
    if (step < 25) program.free(kept, Program::line(17));
  }
  expect_leak(after(program), 16, 1024, 25);
}

TEST(Diagnosis, two_leaks_are_two_findings_and_their_sum_is_the_rate) {
  Program program;
  Training training(program);
  for (int step = 0; step < 30; ++step) {
    training.step();
    program.alloc(Program::line(16), 4096);
    if (step % 3 == 0) program.alloc(Program::line(17), 64000);
  }
  const auto found = after(program);
  EXPECT_THAT(found.findings, SizeIs(2));
  expect_leak(found, 17, 4096 + 64000.0 / 3, 0, 2);
}

TEST(Diagnosis, a_leak_whose_sizes_vary_has_its_mean_rate) {
  Program program;
  Training training(program);
  std::int64_t total = 0;
  for (int step = 0; step < 30; ++step) {
    training.step(1 + step * 7 % 5);
    const auto size = 512 * (1 + step * step * 5 % 97);
    total += size;
    program.alloc(Program::line(16), size);
  }
  expect_leak(after(program), 16, static_cast<double>(total) / 30, 0);
}

TEST(Diagnosis, a_workspace_of_the_leaking_line_is_no_part_of_its_rate) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) {
    training.step();
    if (step == 0) program.alloc(Program::line(16), 33'554'432);
    program.alloc(Program::line(16), 500 + step * 37 % 90 * 4);
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak);
  EXPECT_LT(found.bytes_per_step, 1000);
}

TEST(Diagnosis, an_evaluation_that_keeps_its_predictions_leaks_in_its_own_steps) {
  for (const int batches : {5, 12}) {
    Program program;
    Training training(program);
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (int step = 0; step < 8; ++step) training.step();
      for (int step = 0; step < batches; ++step) {
        training.evaluation_step();
        program.alloc(Program::line(23), 768);
      }
    }
    const auto found = after(program);
    expect_leak(found, 23, 768.0 * batches / (8 + batches), 8);
    EXPECT_EQ(found.steps.kinds, batches < 8 ? (std::vector<std::int64_t>{32, 20})
                                             : (std::vector<std::int64_t>{48, 32}));
    EXPECT_EQ(found.findings.front().taxonomy, "L19");
  }
}

TEST(Diagnosis, an_old_optimizer_kept_leaks_from_the_second_one_on) {
  Program program;
  for (int epoch = 0; epoch < 4; ++epoch) {
    Training training(program);
    training.adam = true;
    for (int step = 0; step < 6; ++step) training.step();
    training.end();
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.onset_step, 6);
  EXPECT_EQ(found.period, 6);
  EXPECT_THAT(found.findings, Contains(testing::Field(&Finding::taxonomy, AnyOf("L13", "L14"))));
}

TEST(Diagnosis, a_history_enlarged_by_concatenation_leaks_although_each_tensor_is_freed) {
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
  EXPECT_EQ(found.findings.front().taxonomy, "L05");
}

TEST(Diagnosis, what_a_backward_pass_leaks_is_told_by_the_line_before_it) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    const auto start = program.alloc(Program::line(13), 4);
    program.alloc({}, 3072);
    program.free(start, Program::line(13));
  }
  const auto found = after(program);
  expect_leak(found, 13, 3072, 0);
  EXPECT_EQ(found.findings.front().taxonomy, "L06");
}

// ---------------------------------------------------------------- lookalikes

TEST(Diagnosis, plain_training_is_clean) {
  Program program;
  Training training(program);
  for (int step = 0; step < 10; ++step) training.step();
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 10);
  EXPECT_EQ(found.bytes_per_step, 0);
  EXPECT_THAT(found.findings, IsEmpty());
}

TEST(Diagnosis, optimizer_state_that_triples_memory_once_is_clean_and_named) {
  Program program;
  Training training(program);
  training.adam = true;
  for (int step = 0; step < 10; ++step) training.step();
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_THAT(found.lookalikes,
              Contains(testing::Field(&Lookalike::reason, HasSubstr("state of the optimizer"))));
}

TEST(Diagnosis, varying_lengths_reach_a_high_water_mark_and_are_clean) {
  Program program;
  Training training(program);
  for (int step = 0; step < 24; ++step) training.step(1 + step * 13 % 17);
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

TEST(Diagnosis, a_bounded_buffer_is_clean_once_it_is_full) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> buffer;
  for (int step = 0; step < 30; ++step) {
    training.step();
    buffer.push_back(program.alloc(Program::line(16), 1024));
    if (buffer.size() > 8) {
      program.free(buffer.front(), Program::line(17));
      buffer.erase(buffer.begin());
    }
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_THAT(found.lookalikes, Contains(testing::Field(&Lookalike::taxonomy, "N17")));
}

TEST(Diagnosis, a_queue_filled_faster_than_it_is_emptied_leaks_although_things_are_taken_away) {
  for (const std::size_t taken : {1U, 4U}) {  // at once
    Program program;
    Training training(program);
    std::vector<std::uint64_t> queue;
    for (std::size_t step = 0; step < 42; ++step) {
      training.step();
      for (int result = 0; result < 3; ++result) {
        queue.push_back(program.alloc(Program::line(16), 1024));
      }
      if (step % taken != taken - 1) continue;
      for (std::size_t each = 0; each < taken; ++each) {
        program.free(queue.front(), Program::line(17));
        queue.erase(queue.begin());
      }
    }
    const auto found = after(program);
    expect_leak(found, 16, 2048, 0);
    EXPECT_EQ(found.findings.front().live_allocations, taken == 1 ? 84 : 86);
    EXPECT_THAT(found.findings.front().reason, HasSubstr("more is added than is taken away"));
  }
}

TEST(Diagnosis, a_list_that_is_cleared_is_no_queue_however_its_clearing_falls) {
  for (std::size_t length = 3; length <= 30; ++length) {
    Program program;
    Training training(program);
    std::vector<std::uint64_t> list;
    for (int step = 0; step < 60; ++step) {
      training.step();
      list.push_back(program.alloc(Program::line(16), 1024));
      if (list.size() < length) continue;
      for (const auto each : list) program.free(each, Program::line(17));
      list.clear();
    }
    EXPECT_NE(after(program).verdict, Verdict::leak) << length;
  }
}

TEST(Diagnosis, a_queue_that_became_full_or_hardly_grows_any_more_is_none_that_grows) {
  for (const bool full : {true, false}) {
    Program program;
    Training training(program);
    std::vector<std::uint64_t> queue;
    for (int step = 0; step < 60; ++step) {
      training.step();
      for (int result = 0; result < 3; ++result) {
        queue.push_back(program.alloc(Program::line(16), 1024));
      }
      const int taken = queue.size() < 40 ? 1 : (!full && step % 15 == 0) ? 2 : 3;
      for (int each = 0; each < taken; ++each) {
        program.free(queue.front(), Program::line(17));
        queue.erase(queue.begin());
      }
    }
    EXPECT_EQ(after(program).verdict, Verdict::clean) << full;
  }
}

TEST(Diagnosis, a_buffer_longer_than_the_trace_is_said_to_look_the_same) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 1024);
  }
  EXPECT_THAT(after(program).limits, Contains(HasSubstr("bounded at more than 12 steps")));
}

TEST(Diagnosis, what_stayed_once_and_what_is_not_collected_yet_are_clean) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> cycles;
  for (int step = 0; step < 120; ++step) {
    training.step();
    const auto cycle = program.alloc(Program::line(16), 192);
    // Collected all at once, but for a few that an older generation took.
    if (step < 20 || step > 23) cycles.push_back(cycle);
    if (step % 25 != 24) continue;
    for (const auto each : cycles) program.free(each, Program::line(16));
    cycles.clear();
  }
  EXPECT_EQ(after(program).verdict, Verdict::clean) << after(program).summary;
}

TEST(Diagnosis, a_cache_that_stops_growing_is_clean) {
  Program program;
  Training training(program);
  for (int step = 0; step < 40; ++step) {
    training.step();
    if (step < 15) program.alloc(Program::line(16), 1024);
  }
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

TEST(Diagnosis, accumulation_over_four_micro_steps_is_a_sawtooth_of_micro_steps) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> saved;
  for (int step = 0; step < 24; ++step) {
    const auto x = program.alloc(Program::line(10), 4096);
    saved.push_back(x);
    for (int layer = 0; layer < 3; ++layer)
      saved.push_back(program.alloc(Program::module(11), 4096));
    saved.push_back(program.alloc(Program::line(12), 4));
    if (step % 4 != 3) continue;
    std::vector<std::uint64_t> gradients;
    for (int layer = 0; layer < 3; ++layer) gradients.push_back(program.alloc({}, 65536));
    for (const auto tensor : saved) program.free(tensor, Program::line(13));
    for (const auto tensor : gradients) program.free(tensor, Program::line(15));
    saved.clear();
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 24);
}

TEST(Diagnosis, predictions_dropped_after_each_evaluation_are_clean) {
  Program program;
  Training training(program);
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (int step = 0; step < 8; ++step) training.step();
    std::vector<std::uint64_t> predictions;
    for (int step = 0; step < 5; ++step) {
      training.evaluation_step();
      predictions.push_back(program.alloc(Program::line(23), 768));
    }
    // The dump comes before the last of them are dropped.
    if (epoch == 3) break;
    for (const auto each : predictions) program.free(each, Program::line(30));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 52);
}

TEST(Diagnosis, logits_held_until_the_next_batch_are_clean) {
  Program program;
  Training training(program);
  std::uint64_t logits = 0;
  for (int step = 0; step < 12; ++step) {
    training.step();
    const auto now = program.alloc(Program::line(16), 1 << 20);
    if (logits != 0) program.free(logits, Program::line(16));
    logits = now;
  }
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

TEST(Diagnosis, a_coarse_to_fine_staircase_is_clean) {
  Program program;
  Training training(program);
  for (int step = 0; step < 36; ++step) training.step(1 << std::min(step / 6, 3));
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

TEST(Diagnosis, an_autocast_cache_that_grows_by_layer_and_returns_is_clean) {
  Program program;
  Training training(program);
  for (int step = 0; step < 8; ++step) {
    std::vector<std::uint64_t> casts;
    for (int layer = 0; layer < 32; ++layer)
      casts.push_back(program.alloc(Program::module(9), 32768));
    training.step();
    for (const auto cast : casts) program.free(cast, Program::line(17));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 8);
}

TEST(Diagnosis, requests_of_different_length_are_steps_and_their_caches_clean) {
  Program program;
  for (int request = 0; request < 14; ++request) {
    auto cache = program.alloc(Program::called("generate", 40, 10), 1024);
    for (int token = 0; token < 4 + request * 5 % 7; ++token) {
      const auto logits = program.alloc(Program::module(Program::called("generate", 42, 10)), 4096);
      const auto longer =
          program.alloc(Program::module(Program::called("generate", 42, 10)), 1024 * (token + 2));
      program.free(cache, Program::called("generate", 42, 10));
      cache = longer;
      const auto next = program.alloc(Program::called("generate", 43, 10), 8);
      program.free(logits, Program::called("generate", 43, 10));
      program.free(next, Program::called("generate", 43, 10));
    }
    const auto text = program.alloc(Program::called("generate", 45, 10), 64);
    program.free(text, Program::called("generate", 45, 10));
    program.free(cache, Program::line(10));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 14);
}

TEST(Diagnosis, caches_of_aborted_requests_leak_although_hardly_a_size_is_left_often) {
  Program program;
  program.alloc(Program::to_device(3), 65536);
  std::uint64_t random = 11;
  for (int request = 0; request < 45; ++request) {
    program.marked(fmt::format("request {}", request), [&] {
      random = random * 6364136223846793005u + 1442695040888963407u;
      const auto drawn = static_cast<std::int64_t>((random >> 33) % 20);
      // One length is left three times, and the last of it may be in use.
      const auto length = request == 17 || request == 32 || request == 44 ? 3 : drawn;
      std::vector<std::uint64_t> cache;
      for (int layer = 0; layer < 4; ++layer) {
        cache.push_back(program.alloc(Program::module(11), 1024 + 192 * length));
        program.free(program.alloc(Program::line(12), 2048), Program::line(13));
      }
      if (request % 3 == 2) return;
      for (const auto keys : cache) program.free(keys, Program::line(14));
    });
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  ASSERT_THAT(found.findings, SizeIs(1));
  EXPECT_EQ(found.findings.front().live_allocations, 60);
  EXPECT_EQ(found.onset_step, 2);
}

TEST(Diagnosis, sizes_of_a_leaking_line_that_come_twice_count_and_so_does_the_last_step) {
  Program program;
  Training training(program);
  const std::vector<std::int64_t> images = {4, 9, 4, 16, 9, 4, 4, 9, 16};
  std::int64_t kept = 0;
  std::size_t next = 0;
  for (int step = 0; step < 27; ++step) {
    training.step();
    // By no rule, and in the last step too.
    if (step % 3 != 2 && step != 10) continue;
    if (step == 11) continue;
    const auto bytes = images[next++] * 1024;
    const auto first = program.alloc(Program::line(16), bytes);
    program.alloc(Program::line(16), bytes);
    program.free(first, Program::line(16));
    kept += bytes;
  }
  const auto found = after(program);
  expect_leak(found, 16, static_cast<double>(kept) / 25, 2);
  EXPECT_EQ(found.period, 0);
}

TEST(Diagnosis, memories_that_a_training_step_joins_leak_although_a_call_replaces_them) {
  Program program;
  Training training(program);
  const auto join = Program::called("forward", 60, 11);
  auto memory = program.alloc(join, 4096);
  for (int step = 1; step < 30; ++step) {
    training.step();
    const auto longer = program.alloc(join, 4096 * (step + 1));
    program.free(std::exchange(memory, longer), join);
  }
  expect_leak(after(program), 60, 4096, 0);
}

// ---------------------------------------------------------------- what can't be told

TEST(Diagnosis, a_single_step_is_undecided) {
  Program program;
  Training training(program, 48);
  training.adam = true;
  training.step();
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  EXPECT_THAT(found.limits, Contains(HasSubstr("ten steps")));
}

TEST(Diagnosis, a_forward_pass_that_climbs_through_48_modules_is_undecided) {
  Program program;
  for (int layer = 0; layer < 48; ++layer) program.alloc(Program::to_device(3), 16384);
  program.alloc(Program::line(10), 8192);
  for (int layer = 0; layer < 48; ++layer) {
    program.alloc(Program::module(11), 8192);
    const auto scratch = program.alloc(Program::module(11), 8192);
    program.alloc(Program::module(11), 8192);
    program.free(scratch, Program::module(11));
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, a_forward_pass_over_the_layers_of_a_list_is_undecided) {
  Program program;
  for (int layer = 0; layer < 48; ++layer) program.alloc(Program::to_device(3), 16384);
  for (int layer = 0; layer < 48; ++layer) {
    const auto scratch = program.alloc(Program::line(12), 8192);
    program.alloc(Program::module(12), 8192);
    program.alloc(Program::line(13), 8192);
    program.free(scratch, Program::line(13));
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, layers_in_a_function_called_forward_are_no_steps) {
  Program program;
  program.alloc(Program::line(10), 8192);
  for (int layer = 0; layer < 32; ++layer) {
    const auto scratch = program.alloc(Program::called("forward", 40, 11), 8192);
    program.alloc(Program::called("forward", 41, 11), 8192);
    program.free(scratch, Program::called("forward", 42, 11));
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, layers_before_the_only_backward_pass_are_no_steps) {
  Program program;
  std::vector<std::uint64_t> saved;
  for (int layer = 0; layer < 32; ++layer) {
    saved.push_back(program.alloc(Program::line(12), 8192));
    saved.push_back(program.alloc(Program::line(13), 8192));
  }
  for (int layer = 0; layer < 32; ++layer) program.alloc({}, 4096);
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, two_batches_are_undecided_whatever_they_keep) {
  for (const bool keep : {false, true}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 2; ++step) training.step(1, keep);
    EXPECT_EQ(after(program).verdict, Verdict::undecided);
  }
}

TEST(Diagnosis, what_two_steps_do_several_times_each_is_no_step) {
  Program program;
  Training training(program);
  for (int step = 0; step < 2; ++step) {
    for (int part = 0; part < 6; ++part) {
      const auto scratch = program.alloc(Program::line(8), 4096);
      program.alloc(Program::line(9), 2048);
      program.free(scratch, Program::line(9));
    }
    training.step();
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, three_steps_that_each_keep_a_tensor_are_undecided) {
  Program program;
  Training training(program);
  for (int step = 0; step < 3; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, a_leak_that_showed_twice_is_undecided) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    if (step % 5 == 3) program.alloc(Program::line(16), 640);
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  EXPECT_THAT(found.limits, Contains(HasSubstr("too few steps")));
}

TEST(Diagnosis, the_loading_of_a_model_is_no_loop_over_steps) {
  Program program;
  for (int layer = 0; layer < 40; ++layer) {
    const auto read = program.alloc(Program::line(5), 25600);
    program.alloc(Program::to_device(6), 25600);
    program.free(read, Program::line(6));
  }
  EXPECT_NE(after(program).verdict, Verdict::leak);
}

TEST(Diagnosis, layers_filled_from_a_checkpoint_by_one_line_are_no_steps) {
  Program program;
  for (int layer = 0; layer < 26; ++layer) {
    for (const auto size : {73728, 384, 73728, 384}) program.alloc(Program::line(16), size);
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, tensors_made_in_a_constructor_are_no_steps) {
  Program program;
  for (int layer = 0; layer < 40; ++layer) {
    program.alloc(Program::called("__init__", 50, 5), 25600);
    program.alloc(Program::called("__init__", 51, 5), 256);
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, without_history_it_is_undecided_with_the_live_lines) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 20000);
  }
  program.drop_history();
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::undecided);
  EXPECT_EQ(found.findings.front().site.line, 16);
  EXPECT_EQ(found.findings.front().live_bytes, 12 * 20000);
  EXPECT_FALSE(found.findings.front().bytes_per_step.has_value());
  EXPECT_THAT(found.limits, Contains(HasSubstr("_record_memory_history")));
}

TEST(Diagnosis, where_only_live_blocks_have_frames_these_name_the_line) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  auto snapshot = program.dump();
  change(snapshot.traces[0], [](TraceEvent& event) { event.stack = 0; });
  const auto found = diagnose(snapshot);
  expect_leak(found, 16, 640, 0);
  EXPECT_THAT(found.limits, Contains(HasSubstr("by the live blocks alone")));
}

TEST(Diagnosis, an_empty_file_is_undecided) {
  EXPECT_EQ(diagnose(Snapshot()).verdict, Verdict::undecided);
}

TEST(Diagnosis, what_grows_in_a_last_phase_that_came_once_is_undecided) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) training.step();
  for (int step = 0; step < 10; ++step) {
    training.evaluation_step();
    program.alloc(Program::line(23), 768);
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  EXPECT_THAT(found.limits, Contains(HasSubstr("phase")));
}

// 60 steps of a training with marks of its optimizer, then 30 of an evaluation that keeps its
// predictions, of which the trace holds the newest part only.
Diagnosis evaluated_once(double part_of_the_trace) {
  Program program;
  Training training(program);
  for (int step = 0; step < 60; ++step) {
    training.step();
    program.marked("Optimizer.step#SGD.step",
                   [&] { program.free(program.alloc(Program::line(14), 512)); });
  }
  for (int step = 0; step < 30; ++step) {
    training.evaluation_step();
    program.alloc(Program::line(23), 768);
  }
  const auto events = static_cast<double>(program.dump().traces[0].size());
  program.keep_newest(static_cast<std::size_t>(events * part_of_the_trace));
  return after(program);
}

TEST(Diagnosis, an_evaluation_behind_a_training_ran_not_before_what_the_trace_lost) {
  for (const double part : {0.7, 0.5}) {
    const auto found = evaluated_once(part);
    EXPECT_EQ(found.steps.count, 90) << part;
    EXPECT_EQ(found.verdict, Verdict::undecided) << part << ' ' << found.summary;
  }
}

TEST(Diagnosis, what_all_steps_kept_until_they_were_over_is_undecided) {
  for (const int kept_at_the_dump : {0, 3, 15}) {
    Program program;
    Training training(program);
    std::vector<std::uint64_t> kept;
    for (int step = 0; step < 30; ++step) {
      training.step();
      kept.push_back(program.alloc(Program::line(16), 512));
    }
    training.end();
    for (auto each = kept_at_the_dump; each < 30; ++each) {
      program.free(kept[static_cast<std::size_t>(each)], Program::line(18));
    }
    const auto found = after(program);
    EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
    EXPECT_THAT(found.limits, Contains(HasSubstr("dump before the loop ends")));
  }
}

TEST(Diagnosis, what_a_search_kept_and_dropped_before_a_longer_training_is_clean) {
  for (const int trained : {8, 40}) {
    Program program;
    Training training(program);
    std::vector<std::uint64_t> kept;
    for (int step = 0; step < 15; ++step) {
      program.marked(fmt::format("search step {}", step), [&] {
        training.step();
        kept.push_back(program.alloc(Program::line(16), 512));
      });
    }
    for (const auto each : kept) program.free(each, Program::line(18));
    for (int step = 0; step < trained; ++step) {
      program.marked(fmt::format("training step {}", step), [&] { training.step(); });
    }
    const auto found = after(program);
    EXPECT_EQ(found.verdict, trained > 15 ? Verdict::clean : Verdict::undecided) << found.summary;
  }
}

TEST(Diagnosis, what_an_only_evaluation_kept_and_dropped_behind_it_is_clean) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> kept;
  for (int step = 0; step < 20; ++step) training.step();
  for (int step = 0; step < 10; ++step) {
    training.evaluation_step();
    kept.push_back(program.alloc(Program::line(23), 768));
  }
  for (const auto each : kept) program.free(each, Program::line(24));
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

// A training that keeps something in these steps.
Diagnosis kept_in(const std::vector<int>& those, int steps, std::size_t newest = 100'000) {
  Program program;
  Training training(program);
  for (int step = 0; step < steps; ++step) {
    training.step();
    if (std::ranges::find(those, step) != those.end()) program.alloc(Program::line(16), 4096);
  }
  program.keep_newest(newest);
  return after(program);
}

TEST(Diagnosis, what_two_steps_kept_is_undecided_unless_it_has_stopped) {
  EXPECT_EQ(kept_in({0, 10}, 15).verdict, Verdict::undecided);
  EXPECT_EQ(kept_in({3, 13}, 15).verdict, Verdict::undecided);
  EXPECT_EQ(kept_in({28, 29}, 30).verdict, Verdict::undecided);
  EXPECT_EQ(kept_in({0, 1}, 15).verdict, Verdict::clean);
  EXPECT_EQ(kept_in({0, 10}, 30).verdict, Verdict::clean);
}

TEST(Diagnosis, what_one_step_kept_beside_the_same_from_before_the_trace_is_undecided) {
  // 20 steps have 279 events and more: what step 20 kept is the last of three.
  EXPECT_EQ(kept_in({0, 10, 20}, 21, 100).verdict, Verdict::undecided);
  EXPECT_EQ(kept_in({20}, 21, 100).verdict, Verdict::clean);
}

// ---------------------------------------------------------------- limits of recordings

TEST(Diagnosis, without_frames_a_leak_has_a_rate_and_no_line) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 20; ++step) {
    training.step();
    program.alloc({}, 640);
  }
  const auto found = after(program);
  expect_leak(found, 0, 640, 0);
  EXPECT_EQ(found.findings.front().site.file, "");
  EXPECT_EQ(found.steps.source, "sizes");
  EXPECT_THAT(found.limits, Contains(HasSubstr("no line can be named")));
}

TEST(Diagnosis, without_frames_batches_of_any_size_are_told_by_how_long_their_tensors_live) {
  for (const bool leaks : {true, false}) {
    for (const std::int64_t sizes : {2, 3, 8, 1000}) {
      Program program({.frames = false});
      Training training(program);
      training.adam = true;
      std::uint64_t random = 7;
      for (int step = 0; step < 40; ++step) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const auto batch = 1 + static_cast<std::int64_t>(random >> 33) % sizes;
        const auto x = program.alloc({}, 4096 * batch);
        std::vector<std::uint64_t> saved;
        for (int layer = 0; layer < 3; ++layer) saved.push_back(program.alloc({}, 4096 * batch));
        if (leaks) program.alloc({}, 640);
        training.backward(saved);
        training.optimizer();
        program.free(x);
      }
      const auto found = after(program);
      EXPECT_EQ(found.steps.count, 40) << sizes;
      EXPECT_EQ(found.steps.source, "lifetimes") << sizes;
      EXPECT_THAT(found.limits, Contains(HasSubstr("found by their lifetimes alone")));
      if (leaks) {
        expect_leak(found, 0, 640, 0);
      } else {
        EXPECT_EQ(found.verdict, Verdict::clean) << sizes << found.summary;
      }
      // Where variables hold on to the batch and the loss until there are new ones.
      Program holding({.frames = false});
      Training held(holding);
      for (int step = 0; step < 40; ++step) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        held.step(1 + static_cast<std::int64_t>(random >> 33) % sizes);
      }
      EXPECT_EQ(after(holding).steps.count, 40) << sizes;
    }
  }
}

TEST(Diagnosis, without_frames_a_pass_through_layers_that_free_their_inputs_is_undecided) {
  for (const bool shrinking : {false, true}) {
    Program program({.frames = false});
    for (int layer = 0; layer < 48; ++layer) program.alloc({}, 65536);
    auto last = program.alloc({}, 4096);
    for (int layer = 0; layer < 48; ++layer) {
      const auto size = shrinking ? 480'000 - layer * 7'000 : 480'000;
      const auto workspace = program.alloc({}, size / 2);
      const auto out = program.alloc({}, size);
      program.free(workspace);
      program.free(std::exchange(last, out));
    }
    const auto found = after(program);
    EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  }
}

TEST(Diagnosis, without_frames_the_cache_of_one_long_request_is_undecided) {
  Program program({.frames = false});
  for (int layer = 0; layer < 4; ++layer) program.alloc({}, 65536);
  std::vector<std::uint64_t> cache(4);
  for (int token = 1; token <= 120; ++token) {
    const auto embedded = program.alloc({}, 2048);
    for (auto& keys : cache) {
      const auto query = program.alloc({}, 4096);
      const auto before = std::exchange(keys, program.alloc({}, 1024 * token));
      if (before != 0) program.free(before);
      program.free(query);
    }
    program.free(embedded);
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  EXPECT_THAT(found.limits, Contains(HasSubstr("as in the cache of one long request")));
}

TEST(Diagnosis, without_frames_what_the_first_step_makes_once_is_no_part_of_a_leak_of_any_size) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 30; ++step) {
    program.mark("START", "## step " + std::to_string(step) + " ##");
    training.step();
    for (int state = 0; step == 0 && state < 3; ++state) program.alloc({}, 9'000 + state);
    program.alloc({}, 1000 + 16 * step);
    program.mark("END", "## step " + std::to_string(step) + " ##");
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_NEAR(found.bytes_per_step, 1232, 20) << found.summary;
}

TEST(Diagnosis, without_frames_a_copy_made_once_is_no_part_of_a_leak_of_another_size) {
  Program program({false, false, true});
  Training training(program);
  training.adam = true;
  for (int step = 0; step < 30; ++step) {
    program.mark("START", "## step " + std::to_string(step) + " ##");
    training.step();
    // The weights, as large as their gradients and the optimizer's state.
    for (int layer = 0; step == 16 && layer < 3; ++layer) program.alloc({}, 65536);
    if (step % 2 == 1) program.alloc({}, 1024);
    program.mark("END", "## step " + std::to_string(step) + " ##");
  }
  EXPECT_NEAR(after(program).bytes_per_step, 512, 0.001);
}

TEST(Diagnosis, without_frames_plain_training_is_clean) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 20; ++step) training.step();
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

TEST(Diagnosis, without_frames_a_climbing_forward_pass_is_undecided) {
  Program program({.frames = false});
  for (int layer = 0; layer < 48; ++layer) {
    program.alloc({}, 8192);
    program.alloc({}, 4096);
    program.alloc({}, 2048);
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Diagnosis, frees_without_frames_of_their_own_do_not_matter) {
  Program program({.free_frames = false});
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  expect_leak(after(program), 16, 640, 0);
}

TEST(Diagnosis, a_trace_that_lost_its_beginning_tells_the_onset_by_live_blocks) {
  Program program;
  Training training(program);
  for (int step = 0; step < 40; ++step) {
    training.step();
    program.mark("START", "Optimizer.step#Adam.step");
    program.mark("END", "Optimizer.step#Adam.step");
    program.alloc(Program::line(16), 640);
  }
  program.keep_newest(250);
  const auto found = after(program);
  expect_leak(found, 16, 640, 0);
  EXPECT_EQ(found.steps.count, 40);
  EXPECT_LT(found.steps.seen, 20);
  EXPECT_EQ(found.findings.front().live_allocations, 40);
  EXPECT_THAT(found.limits, Contains(HasSubstr("oldest events are gone")));
}

TEST(Diagnosis, a_history_switched_on_late_says_so_and_still_tells_the_rate) {
  Program program;
  for (int block = 0; block < 9; ++block) program.forgotten(1 << 16);
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  const auto found = after(program);
  expect_leak(found, 16, 640, 0);
  EXPECT_THAT(found.limits, Contains(HasSubstr("before recording began")));
}

TEST(Diagnosis, a_file_without_times_is_read_all_the_same) {
  Program program({.times = false});
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  expect_leak(after(program), 16, 640, 0);
}

TEST(Diagnosis, the_device_that_leaks_is_told_among_several) {
  Program quiet;
  Training training(quiet);
  for (int step = 0; step < 12; ++step) training.step();
  Program leaky;
  Training other(leaky);
  for (int step = 0; step < 12; ++step) {
    other.step();
    leaky.alloc(Program::line(16), 640);
  }
  auto snapshot = leaky.dump();
  const auto clean = quiet.dump();
  snapshot.traces.insert(snapshot.traces.begin(), Trace());
  for (auto& segment : snapshot.segments) segment.device = 1;
  const auto found = diagnose(snapshot);
  expect_leak(found, 16, 640, 0);
  EXPECT_EQ(found.device, 1);
  EXPECT_EQ(diagnose(clean).device, 0);
}

// Two devices that do the same, the second with ten times the leak of the first.
Snapshot two_devices() {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  auto snapshot = program.dump();
  const auto larger = [](std::int64_t bytes) { return bytes == 640 ? 6400 : bytes; };
  snapshot.traces.push_back(snapshot.traces[0]);
  change(snapshot.traces[1], [&](TraceEvent& event) { event.size = larger(event.size); });
  auto segment = snapshot.segments[0];
  segment.device = 1;
  segment.first_block = segment.blocks;
  snapshot.segments.push_back(segment);
  const auto blocks = snapshot.blocks;
  for (auto block : blocks) {
    block.requested = larger(block.requested);
    snapshot.blocks.push_back(block);
  }
  return snapshot;
}

TEST(Diagnosis, a_program_in_a_folder_named_like_a_library_is_the_users) {
  for (const std::string file :
       {"/home/me/torch/utils/train.py", "/home/me/project/copy.py", "/home/me/importlib/train.py",
        "/home/me/lib/train.py", "/home/me/pythonlib/python3/train.py"}) {
    const auto line = [&](std::uint64_t number) {
      return MadeStack{{file, "train", number}, {file, "<module>", 90}};
    };
    Program program;
    for (int step = 0; step < 12; ++step) {
      const auto x = program.alloc(line(10), 4096);
      const auto y = program.alloc(Program::module(line(11)), 8192);
      program.alloc(line(12), 640);
      program.free(x, line(13));
      program.free(y, line(13));
    }
    const auto found = after(program);
    expect_leak(found, 12, 640, 0);
    EXPECT_EQ(found.findings.front().site.file, file);
    EXPECT_EQ(found.steps.count, 12) << file;
  }
}

TEST(Diagnosis, frames_of_installed_packages_and_of_the_standard_library_are_no_lines_of_the_user) {
  for (const std::string file :
       {"/home/me/pytorch/torch/optim/optimizer.py", "/usr/lib/python3.11/contextlib.py",
        "C:\\Python311\\Lib\\contextlib.py", "C:\\Users\\me\\anaconda3\\lib\\contextlib.py",
        "/home/me/.venv/lib/python3.12/site-packages/somelib/wrap.py"}) {
    const auto wrapped = [&](std::uint64_t number) {
      auto stack = Program::line(number);
      stack.insert(stack.begin(), {file, "wrapper", 81});
      return stack;
    };
    Program program;
    Training training(program);
    for (int step = 0; step < 12; ++step) {
      training.step();
      program.alloc(wrapped(16), 640);
    }
    expect_leak(after(program), 16, 640, 0);
  }
}

TEST(Diagnosis, of_two_devices_that_leak_the_worse_one_comes_first) {
  const auto found = diagnose(two_devices());
  EXPECT_EQ(found.device, 1);
  EXPECT_NEAR(found.bytes_per_step, 7040, 0.001);
  ASSERT_THAT(found.findings, SizeIs(2));
  EXPECT_EQ(found.findings[0].device, 1);
  EXPECT_NEAR(*found.findings[0].bytes_per_step, 6400, 0.001);
  EXPECT_EQ(found.findings[1].device, 0);
  EXPECT_EQ(found.period, 1);
}

TEST(Diagnosis, devices_that_leak_in_different_periods_have_none_together) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    if (step % 2 == 1) program.alloc(Program::line(16), 640);
  }
  auto snapshot = two_devices();
  auto other = program.dump();
  // The stacks are the same.
  snapshot.traces[0] = other.traces[0];
  snapshot.segments.clear();
  snapshot.blocks.clear();
  const auto found = diagnose(snapshot);
  ASSERT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_NEAR(found.bytes_per_step, 6400 + 320, 0.001);
  EXPECT_EQ(found.period, 0);
}

TEST(Diagnosis, one_of_several_devices_can_be_asked_for) {
  DiagnoseOptions only;
  only.device = 0;
  const auto found = diagnose(two_devices(), only);
  EXPECT_EQ(found.device, 0);
  EXPECT_NEAR(found.bytes_per_step, 640, 0.001);
  EXPECT_THAT(found.findings, SizeIs(1));
  EXPECT_THAT(found.summary, HasSubstr("640 B a step"));
}

TEST(Diagnosis, a_step_that_runs_out_of_memory_is_not_counted_and_explained) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 1 << 20);
  }
  program.alloc(Program::line(10), 4096);
  program.fail(std::int64_t{1} << 33, 1 << 20, Program::module(11));
  const auto found = after(program);
  expect_leak(found, 16, 1 << 20, 0);
  EXPECT_EQ(found.steps.count, 12);
  ASSERT_TRUE(found.oom.has_value());
  EXPECT_EQ(found.oom->request, std::int64_t{1} << 33);
  EXPECT_EQ(found.oom->device_free, 1 << 20);
  EXPECT_EQ(found.oom->live_sites.front().first.line, 16);
  EXPECT_THAT(found.oom->reason, HasSubstr("larger than all"));
}

TEST(Diagnosis, a_request_that_fits_in_sum_but_nowhere_at_once_is_fragmentation) {
  Program program;
  Training training(program);
  for (int step = 0; step < 6; ++step) training.step();
  // A MiB apart in the segment, so that no stretch is longer.
  program.fail(std::int64_t{3} << 20, 0, Program::module(11));
  const auto found = after(program);
  ASSERT_TRUE(found.oom.has_value());
  EXPECT_GT(found.oom->cached, std::int64_t{3} << 20);
}

TEST(Diagnosis, what_a_failed_request_met_is_told_as_it_was_then_and_not_at_the_dump) {
  Program program;
  Training training(program);
  for (int step = 0; step < 6; ++step) training.step();
  constexpr std::int64_t size = 200 << 20;
  program.segment(EventKind::segment_alloc, 0x7e0000000000, size);
  program.fail(std::int64_t{1} << 33, 1 << 20, Program::module(11));
  program.segment(EventKind::segment_free, 0x7e0000000000, size);
  const auto snapshot = program.dump();
  const auto found = diagnose(snapshot);
  ASSERT_TRUE(found.oom.has_value());
  EXPECT_EQ(found.oom->reserved, snapshot.segments[0].total_size + size);
  EXPECT_EQ(found.oom->largest_free, size);
}

TEST(Diagnosis, of_an_expandable_segment_what_is_mapped_side_by_side_is_one_stretch) {
  constexpr std::int64_t size = 2 << 20;
  Snapshot snapshot;
  snapshot.traces.resize(1);
  const auto event = [&](EventKind kind, std::uint64_t address, std::int64_t bytes) {
    TraceEvent each;
    each.kind = kind;
    each.address = address;
    each.size = bytes;
    snapshot.traces[0].push_back(each);
  };
  event(EventKind::segment_map, 0x7e0000000000, 3 * size);
  event(EventKind::oom, 0, 4 * size);
  event(EventKind::segment_unmap, 0x7e0000000000, size);
  event(EventKind::segment_unmap, 0x7e0000000000 + 2 * size, size);
  event(EventKind::segment_map, 0x7e0000000000 + 8 * size, size);
  Segment segment;
  segment.address = 0x7e0000000000 + size;
  segment.total_size = size;
  segment.expandable = true;
  snapshot.segments.push_back(segment);
  segment.address = 0x7e0000000000 + 8 * size;
  snapshot.segments.push_back(segment);
  const auto found = diagnose(snapshot);
  ASSERT_TRUE(found.oom.has_value());
  EXPECT_EQ(found.oom->reserved, 3 * size);
  EXPECT_EQ(found.oom->largest_free, 3 * size);
}

// A queue on line 16 that throws the oldest out, of which the recording has the newest events only.
Diagnosis of_full_queue(std::size_t entries, bool varying, bool leaks) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> queue;
  for (int step = 0; step < 60; ++step) {
    training.step();
    queue.push_back(program.alloc(Program::line(16), varying ? 1000 + step * 37 % 50 * 8 : 1000));
    if (leaks) program.alloc(Program::line(18), 1000);
    if (queue.size() <= 12) continue;
    program.free(queue.front(), Program::line(17));
    queue.erase(queue.begin());
  }
  program.keep_newest(entries);
  return after(program);
}

TEST(Diagnosis, a_full_queue_that_was_filled_before_the_oldest_event_is_no_leak) {
  const auto found = of_full_queue(190, false, false);
  ASSERT_LE(found.steps.seen, 9) << "the queue holds more";
  ASSERT_GE(found.steps.seen, 4);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
}

TEST(Diagnosis, a_full_queue_of_varying_sizes_can_not_be_told_from_a_leak) {
  const auto found = of_full_queue(190, true, false);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  EXPECT_THAT(found.limits, Contains(HasSubstr("as in a full buffer")));
}

TEST(Diagnosis, a_leak_beside_a_full_queue_of_the_same_size_is_told) {
  const auto found = of_full_queue(210, false, true);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
}

// A queue of twelve on line 16 that every second step fills, with a large batch now and then; the
// recording begins before it is full.
TEST(Diagnosis, a_queue_that_becomes_full_in_the_trace_is_no_leak_of_its_rarer_sizes) {
  for (const std::size_t entries : {360U, 420U, 480U}) {
    Program program;
    Training training(program);
    std::vector<std::uint64_t> queue;
    for (int step = 0; step < 40; ++step) {
      training.step();
      if (step % 2 == 1) continue;
      queue.push_back(program.alloc(Program::line(16), step % 6 == 4 ? 12'288 : 3072));
      if (queue.size() <= 12) continue;
      program.free(queue.front(), Program::line(17));
      queue.erase(queue.begin());
    }
    program.keep_newest(entries);
    const auto found = after(program);
    EXPECT_EQ(found.verdict, Verdict::clean) << entries << ' ' << found.summary;
  }
}

TEST(Diagnosis, what_variables_hold_of_a_queues_size_makes_no_leak_of_it) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> queue;
  std::map<std::uint64_t, std::uint64_t> variables;  // by the line that assigns
  for (int step = 0; step < 26; ++step) {
    training.step();
    for (const std::uint64_t line : {30U, 31U, 32U}) {
      const auto tensor = program.alloc(Program::line(line), 640);
      if (step > 0) program.free(variables[line], Program::line(line));
      variables[line] = tensor;
    }
    if (step % 2 == 1) continue;
    queue.push_back(program.alloc(Program::line(16), 640));
    if (queue.size() <= 8) continue;
    program.free(queue.front(), Program::line(17));
    queue.erase(queue.begin());
  }
  program.keep_newest(440);
  EXPECT_EQ(after(program).verdict, Verdict::clean) << after(program).summary;
}

TEST(Diagnosis, a_queue_longer_than_the_trace_that_became_full_in_it_is_no_leak) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> queue;
  for (int step = 0; step < 32; ++step) {
    training.step();
    if (step % 2 == 1) continue;
    queue.push_back(program.alloc(Program::line(16), 640));
    if (queue.size() <= 12) continue;
    program.free(queue.front(), Program::line(17));
    queue.erase(queue.begin());
  }
  program.keep_newest(480);
  const auto found = after(program);
  EXPECT_LT(found.steps.seen, 24) << "the queue holds those of 24 steps";
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
}

// Without frames: a training with copies of all parameters in these steps, of the size of the
// gradients, and of a leak of that size where it has one.
Diagnosis with_copies(const std::vector<int>& copied, bool leaks) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 30; ++step) {
    training.step();
    program.marked("Optimizer.step#Adam.step", [&] { program.free(program.alloc({}, 777)); });
    if (leaks) program.alloc({}, 65'536);
    const auto copies = std::ranges::count(copied, step) * (3 + step % 4);
    for (std::ptrdiff_t copy = 0; copy < copies; ++copy) program.alloc({}, 65'536);
  }
  return after(program);
}

TEST(Diagnosis, without_frames_copies_made_now_and_then_are_no_part_of_a_leak_of_their_size) {
  expect_leak(with_copies({}, true), 0, 65'536, 0);
  expect_leak(with_copies({3, 12, 21}, true), 0, 65'536, 0);
  const auto found = with_copies({3, 8, 12, 17, 21, 26}, false);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
}

TEST(Diagnosis, without_frames_what_few_steps_left_is_a_leak_where_it_is_even) {
  const auto left_in = [](const std::vector<int>& steps) {
    Program program({.frames = false});
    Training training(program);
    for (int step = 0; step < 36; ++step) {
      training.step();
      program.marked("Optimizer.step#Adam.step", [&] { program.free(program.alloc({}, 777)); });
      const auto tensor = program.alloc({}, 5000);
      if (std::ranges::find(steps, step) == steps.end()) program.free(tensor);
    }
    return after(program).verdict;
  };
  EXPECT_EQ(left_in({4, 13, 22, 31}), Verdict::leak);
  EXPECT_EQ(left_in({4, 17, 20, 31}), Verdict::undecided);
}

// ---------------------------------------------------------------- wherever the trace was cut

// Steps of a training with the marks of its optimizer, each of which `act` ends.
template <typename Act>
void train(Program& program, int steps, Act act) {
  Training training(program);
  for (int step = 0; step < steps; ++step) {
    training.step();
    program.marked("Optimizer.step#SGD.step",
                   [&] { program.free(program.alloc(Program::line(14), 512)); });
    act(step, training);
  }
}

// That part of the program's events, the newest ones, as a ring of that size keeps them.
Diagnosis newest(Program& program, double part, bool frames = true) {
  const auto events = static_cast<double>(program.dump().traces[0].size());
  program.keep_newest(static_cast<std::size_t>(events * part));
  auto snapshot = program.dump();
  if (!frames) {
    change(snapshot.traces[0], [](TraceEvent& event) { event.stack = 0; });
    for (auto& block : snapshot.blocks) block.stack = 0;
  }
  return diagnose(snapshot);
}

constexpr double parts_kept[] = {0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3};

TEST(CutTrace, a_list_that_is_cleared_now_and_then_is_no_leak) {
  for (const bool frames : {true, false}) {
    for (const auto part : parts_kept) {
      Program program;
      std::vector<std::uint64_t> list;
      train(program, 79, [&](int step, Training&) {
        list.push_back(program.alloc(Program::line(16), 4096));
        if (step % 40 != 39) return;
        for (const auto each : list) program.free(each, Program::line(17));
        list.clear();
      });
      const auto found = newest(program, part, frames);
      // Where the clearing is lost as well nothing tells it from a leak.
      if (part <= 0.5) continue;
      EXPECT_NE(found.verdict, Verdict::leak) << part << frames << found.summary;
    }
  }
}

TEST(CutTrace, what_is_left_seldom_beside_many_of_the_same_from_before_is_undecided) {
  for (int after = 1; after < 10; ++after) {
    Program program;
    train(program, 60 + after, [&](int step, Training&) {
      if (step % 10 == 0) program.alloc(Program::line(16), 4096);
    });
    const auto found = newest(program, 9.0 / (60 + after));
    EXPECT_NE(found.verdict, Verdict::clean) << after << found.summary;
  }
}

TEST(CutTrace, the_onset_of_a_leak_stays_where_it_was) {
  for (const bool frames : {true, false}) {
    for (const int every : {1, 7}) {
      for (const auto part : parts_kept) {
        Program program;
        train(program, 70, [&](int step, Training&) {
          if (step % every == every - 1) program.alloc(Program::line(16), 5000);
        });
        const auto found = newest(program, part, frames);
        EXPECT_EQ(found.verdict, Verdict::leak) << part << frames << every << found.summary;
        EXPECT_EQ(found.onset_step, every - 1) << part << frames << every;
        EXPECT_NEAR(found.bytes_per_step, 5000.0 / every, 0.001);
      }
    }
  }
}

TEST(CutTrace, steps_onset_and_rate_of_an_evaluation_between_are_told_by_whole_cycles) {
  for (const auto part : parts_kept) {
    Program program;
    train(program, 48, [&](int step, Training& training) {
      for (int batch = 0; batch < 5 && step % 8 == 7; ++batch) {
        training.evaluation_step();
        program.alloc(Program::line(23), 768);
      }
    });
    const auto found = newest(program, part);
    EXPECT_EQ(found.verdict, Verdict::leak) << part << found.summary;
    EXPECT_EQ(found.steps.count, 78) << part;
    EXPECT_EQ(found.onset_step, 8) << part;
    EXPECT_NEAR(found.bytes_per_step, 768 * 5 / 13.0, 0.001) << part;
  }
}

TEST(CutTrace, what_an_inference_kept_for_long_makes_no_layers_of_its_requests) {
  for (const auto part : parts_kept) {
    Program program;
    for (int layer = 0; layer < 3; ++layer) program.alloc(Program::to_device(3), 65'536);
    for (int request = 0; request < 40; ++request) {
      const auto x = program.alloc(Program::line(10), 8192);
      program.alloc(Program::module(11), 65'536);
      program.free(program.alloc(Program::line(12), 4), Program::line(12));
      program.free(x, Program::line(13));
    }
    const auto found = newest(program, part);
    EXPECT_EQ(found.verdict, Verdict::leak) << part << found.summary;
  }
}

TEST(Diagnosis, a_trace_of_frees_alone_is_undecided) {
  Program program;
  train(program, 20, [&](int, Training&) { program.alloc(Program::line(16), 640); });
  auto snapshot = program.dump();
  Trace frees;
  for (const auto event : snapshot.traces[0]) {
    if (event.kind != EventKind::alloc) frees.push_back(event);
  }
  snapshot.traces[0] = frees;
  const auto found = diagnose(snapshot);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  EXPECT_THAT(found.summary, HasSubstr("no allocations"));
}

TEST(Diagnosis, what_is_left_by_chance_and_goes_on_to_the_end_is_not_clean) {
  Program program;
  const std::vector<int> those = {2,  5,  9,  11, 12, 17, 21, 22, 25, 28, 31,
                                  33, 38, 40, 44, 47, 59, 71, 80, 92, 99};
  train(program, 100, [&](int step, Training&) {
    if (std::ranges::find(those, step) != those.end()) program.alloc(Program::line(16), 30'000);
  });
  EXPECT_NE(after(program).verdict, Verdict::clean) << after(program).summary;
}

TEST(Diagnosis, a_training_that_follows_another_one_and_leaks_is_a_leak) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) training.step();
  for (int step = 0; step < 15; ++step) {
    const auto x = program.alloc(Program::line(40), 2048);
    const auto y = program.alloc(Program::module(41), 4096);
    const auto gradient = program.alloc({}, 8192);
    program.alloc(Program::line(43), 768);
    for (const auto tensor : {x, y, gradient}) program.free(tensor, Program::line(44));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.findings.front().site.line, 43);
}

TEST(Diagnosis, doubts_of_one_device_are_not_outweighed_by_another_one) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) training.step();
  for (int step = 0; step < 10; ++step) {
    training.evaluation_step();
    program.alloc(Program::line(23), 768);
  }
  auto snapshot = program.dump();
  ASSERT_EQ(diagnose(snapshot).verdict, Verdict::undecided);
  // The same stacks but for those of the evaluation.
  const auto& trace = snapshot.traces[0];
  snapshot.traces.push_back(part(trace, 0, trace.size() * 6 / 10));
  snapshot.segments.clear();
  snapshot.blocks.clear();
  EXPECT_EQ(diagnose(snapshot, {}).verdict, Verdict::undecided);
}

TEST(Diagnosis, a_device_without_a_trace_is_told_beside_one_that_has_one) {
  auto snapshot = two_devices();
  snapshot.traces[1] = {};
  const auto found = diagnose(snapshot);
  EXPECT_THAT(found.limits, Contains(HasSubstr("there is no trace of device 1")));
}

// ---------------------------------------------------------------- steps

TEST(Diagnosis, a_loop_of_operations_in_a_step_with_a_backward_pass_goes_round_no_steps) {
  Program program;
  Training training(program, 40);
  for (int step = 0; step < 16; ++step) {
    const auto batch = program.alloc(Program::line(6), 8192);
    for (int part = 0; part < 60; ++part) {
      std::vector<std::uint64_t> scratch;
      for (const auto line : {7, 8, 9}) {
        scratch.push_back(program.alloc(Program::line(static_cast<std::uint64_t>(line)), 256));
      }
      for (const auto each : scratch) program.free(each, Program::line(9));
    }
    // A step that has too few samples learns nothing.
    if (step % 5 == 2) {
      program.free(program.alloc(Program::line(16), 64), Program::line(16));
    } else {
      training.step();
    }
    program.free(batch, Program::line(16));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 16);
}

TEST(Diagnosis, time_steps_of_a_recurrent_net_on_the_programs_own_lines_are_parts_of_a_step) {
  Program program;
  for (int step = 0; step < 24; ++step) {
    const auto batch = program.alloc(Program::line(10), 8192);
    std::vector<std::uint64_t> states;
    for (int time = 0; time < 20; ++time) {
      states.push_back(program.alloc(Program::module(12), 512));
      states.push_back(program.alloc(Program::line(13), 512));
    }
    const auto loss = program.alloc(Program::line(15), 4);
    for (int time = 0; time < 20; ++time) program.free(program.alloc({}, 512));
    program.alloc(Program::line(17), 1000);
    for (const auto state : states) program.free(state);
    program.free(loss);
    program.free(batch);
  }
  const auto found = after(program);
  expect_leak(found, 17, 1000, 0);
  EXPECT_EQ(found.steps.count, 24);
}

TEST(Diagnosis, buffers_made_before_the_training_are_no_steps) {
  Program program;
  for (int each = 0; each < 40; ++each) program.alloc(Program::line(5), 4096 + 4 * each);
  Training training(program);
  for (int step = 0; step < 24; ++step) {
    training.step();
    program.alloc(Program::line(16), 1000);
  }
  const auto found = after(program);
  expect_leak(found, 16, 1000, 0);
  EXPECT_EQ(found.steps.count, 24);
}

TEST(Diagnosis, meters_read_every_tenth_step_are_no_steps_and_an_evaluation_is) {
  for (const bool evaluation : {false, true}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 60; ++step) {
      training.step();
      if (step % 10 != 9) continue;
      for (int each = 0; each < 8; ++each) {
        if (evaluation) {
          training.evaluation_step();
          continue;
        }
        const auto values = program.alloc(Program::called("median", 40, 17), 80);
        const auto sorted = program.alloc(Program::called("median", 41, 17), 80);
        const auto middle = program.alloc(Program::called("median", 42, 17), 4);
        for (const auto tensor : {values, sorted, middle}) {
          program.free(tensor, Program::called("median", 43, 17));
        }
      }
    }
    EXPECT_EQ(after(program).steps.count, evaluation ? 108 : 60);
  }
}

TEST(Diagnosis, steps_that_skip_a_bad_batch_are_steps) {
  Program program;
  Training training(program);
  for (int step = 0; step < 40; ++step) {
    const auto batch = program.alloc(Program::line(7), 4096);
    for (int each = 0; each < 4; ++each) {
      program.free(program.alloc(Program::line(8), 4096), Program::line(8));
    }
    if (step % 4 == 1) {
      program.alloc(Program::line(9), 640);
    } else {
      training.step();
    }
    program.free(batch, Program::line(16));
  }
  expect_leak(after(program), 9, 160, 1);
}

TEST(Diagnosis, a_function_that_calls_itself_is_a_part_of_one_step) {
  Program program;
  for (int step = 0; step < 20; ++step) {
    std::vector<std::uint64_t> nodes;
    const auto encode = [&](const auto& self, const MadeStack& from, int depth) -> void {
      auto stack = from;
      stack.insert(stack.begin(), {"/home/me/train.py", "encode", 26});
      if (depth > 0) {
        self(self, stack, depth - 1);
        self(self, stack, depth - 1);
      }
      nodes.push_back(program.alloc(stack, 384));
      nodes.push_back(program.alloc(Program::module(stack), 192));
    };
    encode(encode, Program::line(34), 3);
    for (const auto node : nodes) program.free(node, Program::line(35));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 20);
}

TEST(Diagnosis, a_function_that_calls_itself_at_random_is_a_part_of_one_step) {
  // The depth is drawn in each step, so no two of them are alike; two lines come by turns.
  Program program;
  std::uint64_t random = 3;
  for (int step = 0; step < 25; ++step) {
    const auto walk = [&](const auto& self, const MadeStack& from, std::uint64_t depth) -> void {
      auto stack = from;
      stack.insert(stack.begin(), {"/home/me/train.py", "walk", 61});
      program.free(program.alloc(stack, 2048), stack);
      for (const std::uint64_t line : {62U, 63U}) {
        if (depth == 0) return;
        stack.front().line = line;
        self(self, stack, depth - 1);
      }
    };
    random = random * 6364136223846793005u + 1442695040888963407u;
    walk(walk, Program::line(10), 1 + (random >> 33) % 5);
    program.alloc(Program::line(16), 1536);
  }
  const auto found = after(program);
  EXPECT_EQ(found.steps.count, 25);
  expect_leak(found, 16, 1536, 0);
}

TEST(Diagnosis, iterations_that_may_be_time_steps_of_one_call_are_said_to_be_doubtful) {
  const auto unrolled = [](bool trains, bool frees) {
    Program program;
    for (int layer = 0; layer < 2; ++layer) program.alloc(Program::to_device(3), 65536);
    for (int time = 0; time < 64; ++time) {
      program.alloc(Program::module(Program::called("unroll", 51, 11)), 8192);
      const auto input = program.alloc(Program::called("unroll", 52, 11), 32768);
      if (trains) program.free(program.alloc({}, 64));
      if (frees) program.free(input, Program::called("unroll", 53, 11));
    }
    return after(program);
  };
  const auto doubtful = HasSubstr("all 64 iterations lie in one call at train.py:11 (train)");
  const auto keeps_all = unrolled(false, false);
  EXPECT_EQ(keeps_all.verdict, Verdict::leak) << keeps_all.summary;
  EXPECT_THAT(keeps_all.limits, Contains(doubtful));
  EXPECT_LT(keeps_all.findings.front().confidence, 0.6);
  // What has a backward pass is a step, and what frees most of what it allocates.
  for (const auto& sure : {unrolled(true, false), unrolled(false, true)}) {
    EXPECT_EQ(sure.verdict, Verdict::leak) << sure.summary;
    EXPECT_THAT(sure.limits, Not(Contains(doubtful)));
    EXPECT_GT(sure.findings.front().confidence, 0.8);
  }
}

// `outputs.append(model(x))` on line 11 and nothing else, by a model of that many parameters.
Program calls_of_a_model(int calls, int parameters, bool keeps, bool one_line = false) {
  Program program;
  for (int each = 0; each < parameters; ++each) program.alloc(Program::to_device(3), 65536);
  const auto layer = [&](std::uint64_t line) {
    auto model = Program::module(11);
    model.erase(model.begin());
    model.insert(model.begin(), {"/home/me/train.py", "forward", one_line ? 40 : line});
    return Program::module(model);
  };
  std::uint64_t last = 0;
  for (int call = 0; call < calls; ++call) {
    const auto first = program.alloc(layer(40), 8192);
    const auto second = program.alloc(layer(41), 16384);
    program.free(first);
    const auto third = program.alloc(layer(42), 4096);
    program.free(second);
    if (last != 0 && !keeps) program.free(last);
    last = third;
  }
  return program;
}

TEST(Diagnosis, calls_of_a_model_on_a_programs_only_line_are_steps) {
  auto leaky = calls_of_a_model(40, 6, true);
  const auto found = after(leaky);
  expect_leak(found, 42, 4096, 0);
  EXPECT_EQ(found.steps.count, 40);
  auto clean = calls_of_a_model(40, 6, false);
  EXPECT_EQ(after(clean).verdict, Verdict::clean);
}

TEST(Diagnosis, on_an_only_line_layers_with_their_own_parameters_are_no_steps) {
  auto layers = calls_of_a_model(40, 120, false);
  EXPECT_EQ(after(layers).verdict, Verdict::undecided);
  auto loop_inside = calls_of_a_model(40, 6, false, true);
  EXPECT_EQ(after(loop_inside).verdict, Verdict::undecided);
}

TEST(Diagnosis, how_often_or_where_an_only_line_makes_a_step_can_be_told) {
  for (const bool one_line : {false, true}) {
    auto program = calls_of_a_model(40, 120, true, one_line);
    DiagnoseOptions often;
    often.steps = 40;
    EXPECT_EQ(after(program, often).steps.count, 40);
    DiagnoseOptions where;
    where.step_file = "train.py";
    where.step_line = 11;
    EXPECT_EQ(after(program, where).steps.count, 40);
  }
}

// ---------------------------------------------------------------- sites

TEST(Diagnosis, the_site_is_the_innermost_line_that_is_no_library) {
  const std::pair<std::string, std::string> libraries[] = {
      {"C:\\Users\\me\\env\\Lib\\site-packages\\torch\\nn\\modules\\linear.py", "forward"},
      {"/usr/lib/python3/dist-packages/torch/nn/functional.py", "relu"},
      {"/home/me/conda/lib/python3.10/site-packages/transformers/models/gpt2/modeling_gpt2.py",
       "attn"},
      {"<frozen importlib._bootstrap>", "_call_with_frames_removed"},
      {"<eval_with_key>.7", "inner"},
      {"/home/me/pytorch/torch/nn/functional.py", "gelu"},
  };
  for (const auto& [file, function] : libraries) {
    Program program;
    Training training(program);
    for (int step = 0; step < 12; ++step) {
      training.step();
      auto stack = Program::line(16);
      stack.insert(stack.begin(), {file, function, 44});
      program.alloc(stack, 640);
    }
    expect_leak(after(program), 16, 640, 0);
  }
}

TEST(Diagnosis, the_program_itself_is_no_python_file_where_it_has_no_debug_information) {
  const auto stack = [](const char* function) {
    return made::MadeStack{{"/home/me/train", function, 22564},
                           {"/usr/lib/libc.so.6", "__libc_start_main", 171},
                           {"/home/me/train", "_start", 22001}};
  };
  Program program;
  for (int step = 0; step < 12; ++step) {
    const auto batch = program.alloc(stack("next_batch()"), 4096);
    const auto out = program.alloc(stack("forward(Net&)"), 8192);
    program.free(out, stack("forward(Net&)"));
    program.free(batch, stack("forward(Net&)"));
    program.alloc(stack("keep(at::Tensor)"), 640);
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  ASSERT_THAT(found.findings, SizeIs(1));
  EXPECT_EQ(found.findings.front().site.function, "keep(at::Tensor)");
}

TEST(Diagnosis, frames_of_blocks_alone_are_told_as_events_without_frames) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc({}, 640);
  }
  auto snapshot = program.dump();
  const auto frame = static_cast<FrameId>(snapshot.frames.size());
  snapshot.frames.push_back({snapshot.strings.intern("train.py"), snapshot.strings.intern("f"), 7});
  snapshot.blocks.back().stack = snapshot.stacks.intern(std::vector<FrameId>{frame});
  const auto found = diagnose(snapshot);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_THAT(found.limits, Contains(HasSubstr("events have no frames")));
}

TEST(Diagnosis, native_frames_between_python_frames_are_passed_over) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    auto stack = Program::line(16);
    stack.insert(stack.begin(), {"??", "at::detail::empty_generic(c10::ArrayRef<long>)", 0});
    stack.push_back({"", "__libc_start_main", 0});
    program.alloc(stack, 640);
  }
  expect_leak(after(program), 16, 640, 0);
}

TEST(Diagnosis, a_program_in_cpp_is_told_by_its_functions) {
  const auto native = [](const char* library, const char* function) {
    return made::MadeStack{{"??", library, 0},
                           {"??", function, 0},
                           {"??", "main", 0},
                           {"??", "__libc_start_call_main", 0}};
  };
  Program program;
  for (int step = 0; step < 12; ++step) {
    const auto batch = program.alloc(native("at::_ops::randn::call", "next_batch()"), 4096);
    const auto out = program.alloc(native("at::_ops::addmm::call", "train_step(Net&)"), 8192);
    program.free(out, native("at::_ops::addmm::call", "train_step(Net&)"));
    program.free(batch, native("c10::TensorImpl::~TensorImpl()", "train_step(Net&)"));
    program.alloc(native("at::_ops::clone::call", "keep(at::Tensor)"), 640);
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.findings.front().site.function, "keep(at::Tensor)");
  EXPECT_NEAR(found.bytes_per_step, 640, 0.001);
  EXPECT_THAT(found.findings.front().frames, Contains("main"));
  EXPECT_THAT(found.summary, HasSubstr("at keep(at::Tensor)."));
  EXPECT_THAT(to_json(found).dump(), Not(HasSubstr("??:0")));
}

// ---------------------------------------------------------------- output

TEST(Diagnosis, json_has_what_a_program_needs) {
  Program program;
  Training training(program);
  for (int step = 0; step < 70; ++step) {
    training.step();
    if (step % 7 == 6) program.alloc(Program::line(16), 256);
  }
  const auto json = to_json(after(program));
  EXPECT_EQ(json["verdict"], "leak");
  EXPECT_EQ(json["bytes_per_step"], 36.571);
  EXPECT_EQ(json["onset_step"], 6);
  EXPECT_EQ(json["steps"]["count"], 70);
  EXPECT_EQ(json["steps"]["source"], "call stacks");
  EXPECT_EQ(json["findings"][0]["site"]["line"], 16);
  EXPECT_EQ(json["findings"][0]["channel"], "requested");
  EXPECT_TRUE(json["oom"].is_null());
  EXPECT_FALSE(json["summary"].get<std::string>().empty());
}

TEST(Diagnosis, the_same_snapshot_gives_the_same_document) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) training.step(1 + step * 7 % 5, step % 2 == 0);
  const auto snapshot = program.dump();
  EXPECT_EQ(to_json(diagnose(snapshot)).dump(), to_json(diagnose(snapshot)).dump());
}

TEST(Diff, a_block_of_a_state_that_no_version_writes_counts_as_in_use) {
  Program program;
  program.alloc(Program::line(16), 640);
  const auto before = program.dump();
  program.alloc(Program::line(17), 4096);
  auto after = program.dump();
  for (auto& block : after.blocks) block.state = BlockState::other;
  const auto changes = diff(before, after);
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes.front().site.line, 17);
  EXPECT_EQ(diagnose(after).live_bytes, 640 + 4096);
}

TEST(Diff, what_lives_in_the_second_only_is_told_by_line) {
  Program program;
  Training training(program);
  training.step();
  const auto before = program.dump();
  for (int step = 0; step < 5; ++step) {
    training.step();
    program.alloc(Program::line(16), 640);
  }
  auto later = program.dump();
  later.traces.clear();
  const auto changes = diff(before, later);
  ASSERT_THAT(changes, SizeIs(1));
  EXPECT_EQ(changes[0].site.line, 16);
  EXPECT_EQ(changes[0].bytes, 5 * 640);
  EXPECT_EQ(changes[0].allocations, 5);
  EXPECT_THAT(diff(before, before), IsEmpty());
}

}  // namespace
}  // namespace leaklab

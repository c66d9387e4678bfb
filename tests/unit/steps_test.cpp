// Which of the loops that lie within each other goes round steps.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "expect_diagnosis.h"
#include "leaklab/diagnosis.h"
#include "made_snapshot.h"

namespace leaklab {
namespace {

using made::after;
using made::expect_leak;
using made::Program;
using made::Training;
using testing::HasSubstr;
using testing::SizeIs;

// A leak on that line, in so many steps.
void expect_steps(Program& program, std::int64_t steps, std::int64_t line) {
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.steps.count, steps);
  ASSERT_THAT(found.findings, SizeIs(1)) << found.summary;
  EXPECT_EQ(found.findings.front().site.line, line);
}

TEST(Steps, a_data_set_put_on_the_device_is_set_up_though_it_is_larger_than_all_steps) {
  Program program;
  for (int sample = 0; sample < 1000; ++sample) {
    program.alloc(Program::line(5), 4096);
    program.alloc(Program::line(6), 8);
  }
  Training training(program);
  for (int step = 0; step < 24; ++step) {
    training.step();
    program.alloc(Program::line(16), 1000);
  }
  expect_steps(program, 24, 16);
}

// Searches of seven rounds with a backward pass each, in a function that a line of the loop calls;
// after each, `train`.
void search_attacks(Program& program, int searches, const std::function<void()>& train) {
  for (int search = 0; search < searches; ++search) {
    const auto clean = program.alloc(Program::line(9), 4096);
    for (int round = 0; round < 7; ++round) {
      const auto out = program.alloc(Program::module(Program::called("attack", 52, 11)), 4096);
      const auto gradient = program.alloc({}, 4096);
      program.free(out);
      program.free(program.alloc(Program::called("attack", 55, 11), 4096),
                   Program::called("attack", 56, 11));
      program.free(gradient, Program::called("attack", 56, 11));
    }
    train();
    program.alloc(Program::line(16), 1000);
    program.free(clean, Program::line(17));
  }
}

TEST(Steps, the_search_of_an_attack_with_backward_passes_of_its_own_is_a_part_of_a_step) {
  Program program;
  Training training(program);
  search_attacks(program, 24, [&] { training.step(); });
  expect_steps(program, 24, 16);
}

TEST(Steps, rounds_with_backward_passes_are_steps_where_what_goes_round_them_has_none_besides) {
  Program program;
  search_attacks(program, 8, [] {});
  expect_steps(program, 56, 16);
}

TEST(Steps, a_request_that_fails_and_is_served_again_in_pieces_is_one_step) {
  Program program;
  for (int request = 0; request < 24; ++request) {
    const auto x = program.alloc(Program::line(10), 8192);
    const auto serve = [&](std::int64_t bytes) {
      const auto out = program.alloc(Program::module(Program::called("serve", 30, 11)), bytes);
      program.free(out, Program::called("serve", 31, 11));
    };
    if (request % 8 == 5) {
      program.fail(1 << 30, 4096, Program::module(Program::called("serve", 30, 11)));
      for (int piece = 0; piece < 8; ++piece) serve(512);
    } else {
      serve(4096);
    }
    program.free(x, Program::line(12));
    program.alloc(Program::line(13), 640);
  }
  expect_steps(program, 24, 13);
}

TEST(Steps, what_goes_round_a_loop_that_goes_round_another_one_is_a_step) {
  Program program;
  for (int request = 0; request < 20; ++request) {
    const auto prompt = program.alloc(Program::line(10), 8192);
    for (int sentence = 0; sentence < 3 + request % 4; ++sentence) {
      const auto state = program.alloc(Program::called("write", 30, 11), 4096);
      for (int word = 0; word < 4 + (request + sentence) % 5; ++word) {
        const auto out = program.alloc(Program::module(Program::called("write", 32, 11)), 2048);
        program.free(program.alloc(Program::called("write", 33, 11), 8),
                     Program::called("write", 33, 11));
        program.free(out, Program::called("write", 34, 11));
      }
      program.free(state, Program::called("write", 35, 11));
    }
    program.free(prompt, Program::line(12));
    program.alloc(Program::line(13), 640);
  }
  expect_steps(program, 20, 13);
}

TEST(Steps, parts_of_one_step_that_keep_something_till_its_end_are_undecided) {
  for (const int steps : {1, 3}) {
    Program program;
    for (int step = 0; step < steps; ++step) {
      std::vector<std::uint64_t> kept;
      for (int part = 0; part < 12; ++part) {
        const auto out = program.alloc(Program::module(11), 4096);
        kept.push_back(program.alloc(Program::line(12), 512));
        program.free(out, Program::line(13));
      }
      for (const auto each : kept) program.free(each, Program::line(15));
    }
    const auto found = after(program);
    EXPECT_EQ(found.verdict, steps == 1 ? Verdict::undecided : Verdict::clean) << found.summary;
  }
}

TEST(Steps, a_short_evaluation_after_the_last_step_of_a_training_hides_no_leak) {
  Program program;
  Training training(program);
  for (int step = 0; step < 60; ++step) {
    training.step();
    if (step % 2 == 1) program.alloc(Program::line(16), 640);
  }
  for (int batch = 0; batch < 4; ++batch) training.evaluation_step();
  const auto found = after(program);
  EXPECT_EQ(found.steps.kinds, (std::vector<std::int64_t>{60, 4}));
  expect_steps(program, 64, 16);
}

TEST(Steps, what_a_training_keeps_till_its_end_makes_it_no_part_of_one_step) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> kept;
  for (int step = 0; step < 24; ++step) {
    training.step();
    kept.push_back(program.alloc(Program::line(16), 512));
  }
  training.end();
  for (const auto each : kept) program.free(each, Program::line(18));
  EXPECT_EQ(after(program).steps.count, 24);
}

TEST(Steps, a_leak_every_eighth_step_is_told_though_evaluations_lie_between) {
  Program program;
  Training training(program);
  for (int step = 0; step < 40; ++step) {
    training.step();
    if (step % 8 == 2 && step > 2) program.alloc(Program::line(16), 4096);
    for (int batch = 0; batch < 4 && step % 10 == 9; ++batch) training.evaluation_step();
  }
  expect_steps(program, 56, 16);
}

TEST(Steps, three_forward_passes_for_one_backward_pass_are_parts_of_a_step) {
  Program program;
  for (int step = 0; step < 24; ++step) {
    const auto batch = program.alloc(Program::line(10), 8192);
    std::vector<std::uint64_t> saved;
    for (int view = 0; view < 3; ++view) {
      saved.push_back(program.alloc(Program::line(12), 4096));
      saved.push_back(program.alloc(Program::module(13), 4096));
    }
    for (const auto each : saved) {
      program.free(program.alloc({}, 4096));
      program.free(each);
    }
    program.alloc(Program::line(16), 640);
    program.free(batch, Program::line(17));
  }
  expect_steps(program, 24, 16);
}

TEST(Steps, marked_steps_that_free_nothing_at_all_leak) {
  Program program;
  for (int step = 0; step < 30; ++step) {
    program.marked("## step " + std::to_string(step) + " ##", [&] {
      for (int tensor = 0; tensor < 2; ++tensor) program.alloc(Program::line(10), 4096);
    });
  }
  expect_steps(program, 30, 10);
}

// A training that keeps something in each of its steps, then that many batches of an evaluation.
Diagnosis evaluated_at_the_end(int batches, int steps_that_keep) {
  Program program;
  Training training(program);
  for (int step = 0; step < 24; ++step) {
    training.step();
    if (step < steps_that_keep) program.alloc(Program::line(16), 1000);
  }
  for (int batch = 0; batch < batches; ++batch) training.evaluation_step();
  return after(program);
}

TEST(Steps, an_evaluation_of_any_length_at_the_end_hides_no_leak_of_the_training) {
  for (const int batches : {0, 2, 8, 20}) {
    EXPECT_EQ(evaluated_at_the_end(batches, 24).verdict, Verdict::leak) << batches;
    EXPECT_EQ(evaluated_at_the_end(batches, 12).verdict, Verdict::clean) << batches;
  }
}

TEST(Steps, what_requests_kept_is_undecided_where_fewer_of_another_kind_come_last) {
  struct Requests {
    int that_keep;
    int others;
    Verdict verdict;
  };
  for (const auto& requests :
       {Requests{30, 12, Verdict::undecided}, Requests{30, 40, Verdict::clean},
        Requests{15, 12, Verdict::clean}}) {
    Program program;
    const auto serve = [&](std::uint64_t line) {
      const auto x = program.alloc(Program::line(line), 8192);
      const auto out = program.alloc(Program::module(line + 1), 4096);
      program.free(x, Program::line(line + 2));
      program.free(out, Program::line(line + 2));
    };
    for (int request = 0; request < 30; ++request) {
      serve(10);
      if (request < requests.that_keep) program.alloc(Program::line(13), 640);
    }
    for (int request = 0; request < requests.others; ++request) serve(20);
    const auto found = after(program);
    EXPECT_EQ(found.verdict, requests.verdict) << found.summary;
  }
}

TEST(Steps, what_is_prepared_for_a_training_is_no_leak) {
  Program program;
  for (int sample = 0; sample < 30; ++sample) {
    const auto x = program.alloc(Program::line(5), 8192);
    const auto out = program.alloc(Program::module(6), 4096);
    program.alloc(Program::line(7), 640);
    program.free(x, Program::line(8));
    program.free(out, Program::line(8));
  }
  Training training(program);
  for (int step = 0; step < 24; ++step) training.step();
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

// Episodes of that many steps each, of which each second one learns.
TEST(Steps, what_learns_several_times_on_its_way_is_no_step) {
  for (const int moves : {2, 10}) {
    Program program;
    for (int episode = 0; episode < 8; ++episode) {
      const auto world = program.alloc(Program::line(9), 8192);
      for (int move = 0; move < moves; ++move) {
        const auto state = program.alloc(Program::called("play", 30, 11), 2048);
        const auto out = program.alloc(Program::module(Program::called("play", 31, 11)), 4096);
        if (move % 2 == 1) program.free(program.alloc({}, 4096));
        program.free(out, Program::called("play", 33, 11));
        program.free(state, Program::called("play", 34, 11));
      }
      program.alloc(Program::line(16), 640);
      program.free(world, Program::line(17));
    }
    // Of two moves the backward pass is that of the whole.
    expect_steps(program, moves == 2 ? 8 : 80, 16);
  }
}

TEST(Steps, batches_are_steps_however_many_epochs_train_and_evaluate_in_one_function) {
  for (const int epochs : {4, 5, 8}) {
    Program program;
    const auto batch = [&](std::uint64_t from, bool trains) {
      const auto x = program.alloc(Program::called("run", 30, from), 8192);
      const auto out = program.alloc(Program::module(Program::called("run", 31, from)), 4096);
      if (trains) program.free(program.alloc({}, 4096));
      program.free(out, Program::called("run", 34, from));
      program.free(x, Program::called("run", 35, from));
    };
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const auto order = program.alloc(Program::line(9), 512);
      for (int step = 0; step < 6; ++step) {
        batch(11, true);
        program.alloc(Program::called("run", 36, 11), 640);
      }
      for (int step = 0; step < 6; ++step) batch(13, false);
      program.free(order, Program::line(15));
    }
    expect_steps(program, 12 * epochs, 36);
  }
}

TEST(Steps, micro_batches_before_the_only_step_of_an_optimizer_are_undecided) {
  struct Batches {
    bool updates_each;
    bool keep;
    Verdict verdict;
  };
  for (const auto& batches :
       {Batches{false, true, Verdict::undecided}, Batches{false, false, Verdict::undecided},
        Batches{true, true, Verdict::leak}, Batches{true, false, Verdict::clean}}) {
    Program program;
    for (int micro = 0; micro < 8; ++micro) {
      const auto x = program.alloc(Program::line(10), 8192);
      const auto out = program.alloc(Program::module(11), 4096);
      const auto gradient = program.alloc({}, 4096);
      program.free(out);
      program.free(x, Program::line(13));
      if (batches.keep) program.alloc(Program::line(14), 4);
      if (batches.updates_each) program.free(program.alloc(Program::optimizer(15), 4096));
      program.free(gradient, Program::line(16));
    }
    if (!batches.updates_each) program.alloc(Program::optimizer(18), 65536);
    const auto found = after(program);
    EXPECT_EQ(found.verdict, batches.verdict) << found.summary;
  }
}

// A buffer of that many of the last batches.
TEST(Steps, an_evaluation_after_a_training_makes_no_leak_of_its_full_buffer) {
  Program program;
  Training training(program);
  std::vector<std::uint64_t> buffer;
  for (int step = 0; step < 30; ++step) {
    training.step();
    buffer.push_back(program.alloc(Program::line(16), 512 * (1 + step % 3)));
    if (buffer.size() <= 12) continue;
    program.free(buffer.front(), Program::line(17));
    buffer.erase(buffer.begin());
  }
  for (int batch = 0; batch < 15; ++batch) training.evaluation_step();
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

TEST(Steps, a_line_that_frees_most_leaks_what_it_keeps_of_sizes_that_come_seldom) {
  for (const bool keeps : {false, true}) {
    Program program;
    Training training(program);
    std::uint64_t best = 0;
    for (int step = 0; step < 40; ++step) {
      training.step();
      for (int trial = 0; trial < 6; ++trial) {
        const auto size = 512 * (1 + step * 5 % 9);
        const auto tensor = program.alloc(Program::line(16), size);
        if (keeps && step >= 15 && step % 5 == 2) continue;
        if (trial != 3) {
          program.free(tensor, Program::line(17));
          continue;
        }
        if (best != 0) program.free(best, Program::line(18));
        best = tensor;
      }
    }
    const auto found = after(program);
    EXPECT_EQ(found.verdict, keeps ? Verdict::leak : Verdict::clean) << found.summary;
  }
}

TEST(Steps, an_attack_in_the_function_of_the_step_itself_is_a_part_of_it) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) {
    const auto clean = program.alloc(Program::line(9), 4096);
    for (int round = 0; round < 7; ++round) {
      const auto out = program.alloc(Program::module(11), 4096);
      program.free(program.alloc({}, 4096));
      program.free(out, Program::line(12));
    }
    training.step();
    program.alloc(Program::line(16), 640);
    program.free(clean, Program::line(17));
  }
  expect_steps(program, 20, 16);
}

TEST(Steps, short_epochs_are_no_steps) {
  Program program;
  Training training(program);
  for (int epoch = 0; epoch < 7; ++epoch) {
    const auto order = program.alloc(Program::line(9), 512);
    for (int step = 0; step < 3; ++step) {
      training.step();
      program.alloc(Program::line(16), 640);
    }
    for (int batch = 0; batch < 4; ++batch) training.evaluation_step();
    program.free(order, Program::line(24));
  }
  expect_steps(program, 21, 16);
}

TEST(Steps, requests_of_very_different_length_are_steps) {
  Program program;
  for (int request = 0; request < 14; ++request) {
    const auto prompt = program.alloc(Program::line(10), 512 * (2 + request * 5 % 9));
    const int tokens = request % 3 == 0 ? 2 : 3 + request * 7 % 12;
    std::uint64_t cache = 0;
    for (int token = 0; token < tokens; ++token) {
      const auto out = program.alloc(Program::module(Program::called("generate", 30, 11)), 4096);
      const auto longer = program.alloc(Program::called("generate", 31, 11), 1024 * (token + 2));
      if (cache != 0) program.free(cache, Program::called("generate", 31, 11));
      cache = longer;
      program.free(out, Program::called("generate", 32, 11));
    }
    program.free(cache, Program::line(11));
    program.free(prompt, Program::line(12));
    program.alloc(Program::line(13), 640);
  }
  expect_steps(program, 14, 13);
}

// Requests with a cache that each token replaces by a larger one, after which something is kept;
// the first one is the longest. Prompts of three sizes come in turn.
Diagnosis after_requests(int requests, bool prompts) {
  Program program;
  for (int layer = 0; layer < 4; ++layer) program.alloc(Program::to_device(3), 65536);
  for (int request = 0; request < requests; ++request) {
    std::vector<std::uint64_t> held;
    if (prompts) held.push_back(program.alloc(Program::line(10), 512 * (1 + request % 3)));
    const int tokens = request == 0 ? 34 : 20 + request * 7 % 11;
    std::uint64_t cache = 0;
    for (int token = 0; token < tokens; ++token) {
      const auto from = Program::called("generate", 30, 11);
      const auto longer = program.alloc(Program::module(from), 256 * (token + 8));
      if (cache != 0) program.free(cache, from);
      cache = longer;
      program.free(program.alloc(Program::called("generate", 31, 11), 128'000), from);
    }
    program.alloc(Program::line(12), 2048);
    held.push_back(cache);
    for (const auto each : held) program.free(each, Program::line(12));
  }
  return after(program);
}

TEST(Steps, requests_whose_caches_grow_with_their_tokens_are_steps) {
  for (const int requests : {8, 12, 20}) {
    const auto found = after_requests(requests, true);
    EXPECT_EQ(found.steps.count, requests);
    expect_leak(found, 12, 2048, 0);
  }
}

TEST(Steps, what_comes_before_a_line_behind_the_tokens_is_the_first_request) {
  const auto found = after_requests(20, false);
  EXPECT_EQ(found.steps.count, 20);
  expect_leak(found, 12, 2048, 0);
}

TEST(Steps, a_request_that_fails_behind_the_last_whole_step_takes_nothing_away_from_it) {
  for (const bool within : {false, true}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 20; ++step) {
      training.step();
      program.alloc(Program::line(16), 640);
    }
    if (within) {
      program.alloc(Program::line(10), 4096);
      program.fail(1 << 30, 4096, Program::module(11));
    } else {
      program.fail(1 << 30, 4096, Program::line(18));
    }
    expect_steps(program, 20, 16);
  }
}

TEST(Steps, four_rounds_of_a_critic_before_a_longer_pass_of_a_generator_are_parts_of_a_step) {
  Program program;
  Training generator(program, 12);
  auto update = Program::optimizer(9);
  update.insert(update.begin() + 1, {"/home/me/train.py", "critic", 55});
  for (int step = 0; step < 24; ++step) {
    for (int round = 0; round < 4; ++round) {
      const auto out = program.alloc(Program::module(Program::called("critic", 52, 9)), 4096);
      program.free(program.alloc({}, 4096));
      program.free(program.alloc(update, 4096), update);
      program.free(out, Program::called("critic", 56, 9));
    }
    generator.step();
    program.alloc(Program::line(16), 640);
  }
  expect_steps(program, 24, 16);
}

TEST(Steps, requests_that_grow_and_a_short_one_at_the_end_are_no_parts_of_one_step) {
  Program program;
  std::uint64_t last = 0;
  for (int request = 0; request < 16; ++request) {
    const auto bytes = request == 15 ? 512 : 4096 * (request + 1);
    const auto out = program.alloc(Program::module(11), bytes);
    const auto answer = program.alloc(Program::line(12), bytes);
    program.free(out, Program::line(13));
    if (last != 0) program.free(last, Program::line(12));
    last = answer;
  }
  EXPECT_EQ(after(program).verdict, Verdict::clean);
}

TEST(Steps, a_few_events_without_frames_after_the_last_request_are_no_training) {
  Program program;
  for (int request = 0; request < 24; ++request) {
    const auto x = program.alloc(Program::line(10), 8192);
    const auto out = program.alloc(Program::module(11), 4096);
    program.free(x, Program::line(12));
    program.free(out, Program::line(12));
    program.alloc(Program::line(13), 640);
  }
  program.free(program.alloc({}, 512));
  expect_steps(program, 24, 13);
}

TEST(Steps, epochs_that_train_something_else_besides_are_no_steps) {
  Program program;
  Training training(program);
  Training second(program, 6);
  for (int epoch = 0; epoch < 6; ++epoch) {
    const auto order = program.alloc(Program::line(9), 512);
    for (int step = 0; step < 6; ++step) {
      const auto x = program.alloc(Program::called("train_one", 52, 11), 4096);
      const auto out = program.alloc(Program::module(Program::called("train_one", 53, 11)), 4096);
      const auto gradient = program.alloc({}, 4096);
      auto update = Program::optimizer(11);
      update.insert(update.begin() + 1, {"/home/me/train.py", "train_one", 55});
      program.free(program.alloc(update, 4096), update);
      program.free(gradient, Program::called("train_one", 56, 11));
      program.free(out, Program::called("train_one", 57, 11));
      program.free(x, Program::called("train_one", 57, 11));
      program.alloc(Program::called("train_one", 58, 11), 640);
    }
    second.step();
    program.free(order, Program::line(15));
  }
  const auto found = after(program);
  EXPECT_GE(found.steps.count, 36);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
}

TEST(Steps, late_entries_tell_a_leak_from_a_cache_only_where_they_come_at_regular_gaps) {
  for (const bool regular : {false, true}) {
    Program program;
    Training training(program);
    const std::vector<int> entries =
        regular ? std::vector<int>{11, 19, 27, 35} : std::vector<int>{2, 3, 5, 30};
    for (int step = 0; step < 40; ++step) {
      training.step();
      if (std::ranges::find(entries, step) != entries.end()) program.alloc(Program::line(16), 640);
    }
    const auto found = after(program);
    EXPECT_EQ(found.verdict == Verdict::leak, regular) << found.summary;
  }
}

TEST(Steps, as_many_iterations_as_layers_are_undecided_and_the_caller_can_tell) {
  Program program;
  for (int layer = 0; layer < 12; ++layer) program.alloc(Program::to_device(3), 65536);
  for (int step = 0; step < 12; ++step) {
    const auto x = program.alloc(Program::line(10), 4096);
    for (int layer = 0; layer < 12; ++layer) program.alloc(Program::module(11), 4096);
    program.free(x, Program::line(12));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::undecided);
  EXPECT_THAT(found.summary, HasSubstr("say --steps 12"));
  DiagnoseOptions told;
  told.steps = 12;
  EXPECT_EQ(after(program, told).verdict, Verdict::leak);
}

TEST(Steps, that_are_not_alike_are_counted_by_the_line_that_the_caller_says) {
  Program program;
  std::uint64_t state = 5;
  const auto random = [&state](std::uint64_t end) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33U) % end;
  };
  for (int step = 0; step < 60; ++step) {
    const auto x = program.alloc(Program::line(10), 4096);
    for (int helper = 0; helper < 8; ++helper) {
      const auto line = Program::called(fmt::format("helper_{}", random(400)), 100 + random(4), 12);
      program.free(program.alloc(line, 512 * static_cast<std::int64_t>(1 + random(20))), line);
    }
    program.alloc(Program::line(14), 777);
    program.free(x, Program::line(15));
  }
  DiagnoseOptions by_line;
  by_line.step_file = "train.py";
  by_line.step_line = 10;
  DiagnoseOptions by_number;
  by_number.steps = 60;
  for (const auto& options : {by_line, by_number}) {
    const auto found = after(program, options);
    expect_leak(found, 14, 777, 0);
    EXPECT_EQ(found.steps.count, 60);
  }
}

// A request of so many tokens, made by a function that the loop calls on line 10, and what it
// leaves behind in bytes.
void serve(Program& program, int tokens, std::int64_t left = 0) {
  const auto ids = program.alloc(Program::called("serve", 40, 10), 256);
  for (int token = 0; token < tokens; ++token) {
    const auto logits = program.alloc(Program::module(Program::called("serve", 42, 10)), 4096);
    const auto next = program.alloc(Program::called("serve", 43, 10), 8);
    program.free(logits, Program::called("serve", 43, 10));
    program.free(next, Program::called("serve", 43, 10));
  }
  if (left > 0) program.alloc(Program::called("serve", 45, 10), left);
  program.free(ids, Program::line(10));
}

TEST(Steps, a_request_is_a_step_though_all_have_as_many_tokens) {
  Program program;
  for (int request = 0; request < 20; ++request) serve(program, 4, 640);
  const auto found = after(program);
  expect_leak(found, 45, 640, 0);
  EXPECT_EQ(found.steps.count, 20);
}

TEST(Steps, what_an_inference_keeps_each_fourth_time_makes_no_requests_of_four) {
  Program program;
  for (int step = 0; step < 48; ++step) {
    const auto x = program.alloc(Program::line(10), 4096);
    const auto out = program.alloc(Program::module(11), 4096);
    if (step % 4 == 3) program.alloc(Program::line(12), 640);
    program.free(out, Program::line(13));
    program.free(x, Program::line(13));
  }
  const auto found = after(program);
  expect_leak(found, 12, 160, 3);
  EXPECT_EQ(found.steps.count, 48);
  EXPECT_EQ(found.period, 4);
}

TEST(Steps, a_batch_with_its_own_backward_pass_is_a_step_though_tasks_differ_in_length) {
  Program program;
  Training training(program);
  for (int task = 0; task < 7; ++task) {
    program.alloc(Program::line(8), 640);
    for (int batch = 0; batch < (task % 3 == 0 ? 9 : 8); ++batch) training.step();
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.steps.count, 59);
}

TEST(Steps, what_each_third_step_does_besides_is_a_part_of_it) {
  Program program;
  Training training(program, 8);
  for (int step = 0; step < 36; ++step) {
    training.step();
    if (step % 3 != 2) continue;
    auto image = program.alloc(Program::called("sample", 50, 18), 4096);
    for (int round = 0; round < 3; ++round) {
      const auto hidden = program.alloc(Program::module(Program::called("sample", 52, 18)), 8192);
      const auto next = program.alloc(Program::called("sample", 52, 18), 4096);
      program.free(hidden, Program::called("sample", 52, 18));
      program.free(image, Program::called("sample", 52, 18));
      image = next;
    }
    program.free(image, Program::line(18));
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::clean) << found.summary;
  EXPECT_EQ(found.steps.count, 36);
}

TEST(Steps, the_step_whose_first_request_fails_does_not_hide_the_one_before) {
  Program program;
  for (int request = 0; request < 12; ++request) {
    program.alloc(Program::called("serve", 39, 10), 1 << 20);
    serve(program, 4);
  }
  program.fail(1 << 20, 4096, Program::called("serve", 39, 10));
  const auto found = after(program);
  expect_leak(found, 39, 1 << 20, 0);
  EXPECT_EQ(found.steps.count, 12);
}

TEST(Steps, terms_of_a_loss_added_up_in_a_comprehension_are_none) {
  Program program;
  const auto term = [](std::uint64_t line) {
    auto stack = Program::line(line);
    stack.insert(stack.begin(), {"/home/me/train.py", "<genexpr>", line});
    return stack;
  };
  program.alloc(Program::to_device(3), 65536);
  for (int round = 0; round < 20; ++round) {
    program.alloc(Program::module(Program::called("forward", 60, 11)), 4096);
    program.alloc(Program::called("forward", 61, 11), 4096);
  }
  std::uint64_t sum = 0;
  for (int round = 0; round < 20; ++round) {
    const auto part = program.alloc(term(12), 1024);
    const auto mean = program.alloc(term(12), 4);
    program.free(part, term(12));
    const auto larger = program.alloc(Program::line(12), 4);
    if (sum != 0) program.free(sum, Program::line(12));
    program.free(mean, Program::line(12));
    sum = larger;
  }
  const auto found = after(program);
  EXPECT_EQ(found.verdict, Verdict::undecided) << found.summary;
  EXPECT_EQ(found.steps.count, 0);
}

TEST(Steps, an_evaluation_that_adds_up_in_a_comprehension_has_no_more_steps_for_it) {
  Program program;
  Training training(program);
  auto term = Program::line(24);
  term.insert(term.begin(), {"/home/me/train.py", "<genexpr>", 24});
  int kept = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int step = 0; step < 10; ++step) training.step();
    for (int step = 0; step < 3; ++step, ++kept) {
      training.evaluation_step();
      program.alloc(Program::line(23), 2320);
    }
    for (int each = 0; each < kept; ++each) {
      const auto equal = program.alloc(term, 290);
      program.free(program.alloc(term, 8), term);
      program.free(equal, term);
    }
  }
  const auto found = after(program);
  expect_leak(found, 23, 2320 * 3 / 13.0, 10);
  EXPECT_EQ(found.steps.count, 39);
}

TEST(Steps, what_an_optimizer_calls_back_belongs_to_the_loop_around_it) {
  const std::string optim = "/usr/lib/python3.11/site-packages/torch/optim/";
  const auto closure = [&](std::uint64_t line) {
    auto stack = Program::line(14);
    const made::MadeStack inner = {{"/home/me/train.py", "closure", line},
                                   {optim + "lbfgs.py", "step", 330},
                                   {optim + "optimizer.py", "wrapper", 493}};
    stack.insert(stack.begin(), inner.begin(), inner.end());
    return stack;
  };
  Program program;
  for (int step = 0; step < 20; ++step) {
    const auto out = program.alloc(Program::module(closure(30)), 4096);
    program.alloc(closure(31), 4);
    program.free(program.alloc({}, 65536), closure(32));
    program.free(out, closure(32));
  }
  const auto found = after(program);
  expect_leak(found, 31, 4, 0);
  EXPECT_EQ(found.steps.count, 20);
}

TEST(Steps, a_loop_over_parameters_in_an_optimizer_of_the_program_is_a_part_of_a_step) {
  const std::string optim = "/usr/lib/python3.11/site-packages/torch/optim/";
  auto update = Program::line(14);
  const made::MadeStack inner = {{"/home/me/sam.py", "step", 20},
                                 {optim + "optimizer.py", "wrapper", 493}};
  update.insert(update.begin(), inner.begin(), inner.end());
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    for (int parameter = 0; parameter < 6; ++parameter) {
      program.free(program.alloc(update, 4096), update);
    }
  }
  EXPECT_EQ(after(program).steps.count, 12);
}

TEST(Steps, a_line_that_operates_many_times_is_no_loop_where_several_lines_are_one) {
  Program program;
  for (int request = 0; request < 40; ++request) {
    const auto ids = program.alloc(Program::line(10), 1024);
    const auto out = program.alloc(Program::module(11), 4096);
    // Not before there is something to compare with.
    for (int each = 0; each < (request < 15 ? 0 : 25); ++each) {
      program.free(program.alloc(Program::line(12), 256), Program::line(12));
    }
    program.alloc(Program::line(13), 640);
    program.free(out, Program::line(13));
    program.free(ids, Program::line(13));
  }
  const auto found = after(program);
  expect_leak(found, 13, 640, 0);
  EXPECT_EQ(found.steps.count, 40);
}

TEST(Steps, sizes_that_vary_by_chance_make_no_requests_of_steps) {
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    auto random = seed;
    Program program;
    for (int step = 0; step < 300; ++step) {
      std::vector<std::uint64_t> alive;
      for (std::uint64_t line = 10; line < 14; ++line) {
        random = random * 1664525 + 1013904223;
        alive.push_back(program.alloc(Program::line(line), 512 * (1 + (random >> 16) % 40)));
      }
      program.alloc(Program::line(20), 1024);
      for (const auto tensor : alive) program.free(tensor, Program::line(21));
    }
    const auto found = after(program);
    expect_leak(found, 20, 1024, 0);
    EXPECT_EQ(found.steps.count, 300) << seed;
  }
}

TEST(Steps, lines_of_a_script_that_run_once_are_none) {
  Program program;
  for (std::uint64_t line = 3; line < 20; ++line) program.alloc(Program::line(line), 4096);
  for (int inside = 0; inside < 12; ++inside) {
    program.free(program.alloc(Program::line(20), 512), Program::line(20));
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided) << after(program).summary;
}

TEST(Steps, a_program_that_does_nothing_but_keep_tensors_of_one_line_leaks) {
  Program program;
  for (int step = 0; step < 40; ++step) program.alloc(Program::line(10), 4096);
  expect_leak(after(program), 10, 4096, 0);
}

TEST(Steps, replays_of_a_graph_come_after_its_capture_and_are_steps) {
  Program program;
  Training training(program, 24);
  for (int warmup = 0; warmup < 4; ++warmup) training.step();
  training.end();
  for (int step = 0; step < 50; ++step) {
    const auto x = program.alloc(Program::line(43), 9600);
    const auto mean = program.alloc(Program::line(44), 800);
    program.alloc(Program::line(45), 800);
    program.free(mean, Program::line(46));
    program.free(x, Program::line(46));
  }
  const auto found = after(program);
  expect_leak(found, 45, 800, 0);
}

TEST(Steps, epochs_of_differing_length_are_few_and_no_steps) {
  Program program;
  const std::vector<int> batches = {8, 13, 11, 6, 12, 9};
  for (const auto count : batches) {
    for (int batch = 0; batch < count; ++batch) {
      const auto x = program.alloc(Program::line(10), 4096);
      const auto out = program.alloc(Program::module(11), 4096);
      program.alloc(Program::line(12), 640);
      program.free(out, Program::line(13));
      program.free(x, Program::line(13));
    }
    program.free(program.alloc(Program::line(16), 64), Program::line(16));
  }
  const auto found = after(program);
  expect_leak(found, 12, 640, 0);
  EXPECT_EQ(found.steps.count, 59);
}

TEST(Steps, a_last_step_that_does_what_an_earlier_one_did_is_whole) {
  Program program;
  Training training(program);
  for (int step = 0; step < 15; ++step) {
    training.step();
    if (step % 3 != 1) continue;
    for (std::uint64_t line = 30; line < 36; ++line) {
      program.free(program.alloc(Program::line(line), 512), Program::line(line));
    }
  }
  EXPECT_EQ(after(program).steps.count, 15);
}

// What is drawn at random in each step outweighs what all of them do.
TEST(Steps, that_call_helpers_at_random_are_those_whose_lines_come_one_after_the_other) {
  for (const std::uint64_t helpers : {5U, 40U, 400U}) {
    Program program;
    Training training(program);
    std::uint64_t random = 5;
    for (int step = 0; step < 60; ++step) {
      training.step();
      for (int call = 0; call < 10; ++call) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const auto helper = Program::called(fmt::format("helper{}", (random >> 33) % helpers),
                                            100 + (random >> 60), 18);
        program.free(program.alloc(helper, 1 + static_cast<std::int64_t>(random >> 50)), helper);
      }
      program.alloc(Program::line(19), 777);
    }
    expect_leak(after(program), 19, 777, 0);
    expect_steps(program, 60, 19);
  }
}

TEST(Steps, are_none_that_a_branch_taken_at_random_makes) {
  // Six branches of two lines each, of which each iteration takes one, and nothing that all do.
  Program program;
  std::uint64_t random = 9;
  for (int iteration = 0; iteration < 90; ++iteration) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    const auto line = 20 + 2 * ((random >> 33) % 6);
    for (std::uint64_t call = 0; call < 1 + (random >> 61); ++call) {
      const auto helper =
          Program::called(fmt::format("helper{}", (random >> (40 + call)) % 50), 100 + call, line);
      program.free(program.alloc(helper, 4096), helper);
    }
    if (line == 30) program.alloc(Program::line(31), 640);
    program.free(program.alloc(Program::line(line + 1), 512), Program::line(line + 1));
  }
  EXPECT_EQ(after(program).verdict, Verdict::undecided);
}

TEST(Steps, are_none_of_an_inner_function_that_calls_helpers_at_random) {
  Program program;
  Training training(program);
  std::uint64_t random = 5;
  for (int step = 0; step < 40; ++step) {
    training.step();
    random = random * 6364136223846793005u + 1442695040888963407u;
    for (std::uint64_t round = 0; round < 1 + (random >> 62); ++round) {
      program.free(program.alloc(Program::called("augment", 30, 18), 2048), Program::line(18));
      for (std::uint64_t call = 0; call < 6; ++call) {
        auto helper = Program::called("augment", 31, 18);
        const auto drawn = (random >> (9 * round + 3 * call)) % 400;
        helper.insert(helper.begin(), {"/home/me/train.py", fmt::format("helper{}", drawn), 70});
        program.free(program.alloc(helper, 4096), helper);
      }
      program.free(program.alloc(Program::called("augment", 32, 18), 2048), Program::line(18));
    }
    program.alloc(Program::line(19), 777);
  }
  expect_leak(after(program), 19, 777, 0);
  expect_steps(program, 40, 19);
}

}  // namespace
}  // namespace leaklab

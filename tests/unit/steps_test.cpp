// Which of the loops that lie within each other goes round steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "leaklab/diagnosis.h"
#include "made_snapshot.h"

namespace leaklab {
namespace {

using made::Program;
using made::Training;
using testing::HasSubstr;

void expect_steps(Program& program, std::int64_t steps, std::int64_t leaking_line) {
  const auto found = diagnose(program.dump(), {});
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  EXPECT_EQ(found.steps.count, steps);
  ASSERT_EQ(found.findings.size(), 1U);
  EXPECT_EQ(found.findings.front().site.line, leaking_line);
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
    const auto found = diagnose(program.dump(), {});
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
  const auto found = diagnose(program.dump(), {});
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
  EXPECT_EQ(diagnose(program.dump(), {}).verdict, Verdict::clean);
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
    const auto name = "## step " + std::to_string(step) + " ##";
    program.mark("START", name);
    for (int tensor = 0; tensor < 2; ++tensor) program.alloc(Program::line(10), 4096);
    program.mark("END", name);
  }
  expect_steps(program, 30, 10);
}

TEST(Steps, as_many_iterations_as_layers_are_undecided_and_the_caller_can_tell) {
  Program program;
  for (int layer = 0; layer < 12; ++layer) program.alloc(Program::to_device(3), 65536);
  for (int step = 0; step < 12; ++step) {
    const auto x = program.alloc(Program::line(10), 4096);
    for (int layer = 0; layer < 12; ++layer) program.alloc(Program::module(11), 4096);
    program.free(x, Program::line(12));
  }
  const auto found = diagnose(program.dump(), {});
  EXPECT_EQ(found.verdict, Verdict::undecided);
  EXPECT_THAT(found.summary, HasSubstr("say --steps 12"));
  DiagnoseOptions told;
  told.steps = 12;
  EXPECT_EQ(diagnose(program.dump(), told).verdict, Verdict::leak);
}

}  // namespace
}  // namespace leaklab

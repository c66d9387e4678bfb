// Steps that the program, its profiler, its optimizer or the caller tells of.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

std::string step_name(int step) { return "## step " + std::to_string(step) + " ##"; }

TEST(Marks, marks_of_one_device_tell_the_steps_of_another) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    program.marked(step_name(step), [&] {
      training.step();
      program.alloc({}, 640);
    });
  }
  auto snapshot = program.dump();
  snapshot.traces.insert(snapshot.traces.begin(), Trace());
  for (auto& segment : snapshot.segments) segment.device = 1;
  const auto found = diagnose(snapshot);
  EXPECT_EQ(found.steps.source, "annotations");
  expect_leak(found, 0, 640, 0);
}

TEST(Marks, marks_of_steps_among_the_annotations_are_taken) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    program.marked(step_name(step), [&] {
      program.marked("forward", [&] { training.step(); });
      program.alloc(Program::line(16), 640);
    });
  }
  const auto found = after(program);
  expect_leak(found, 16, 640, 0);
  EXPECT_EQ(found.steps.source, "annotations");
  EXPECT_EQ(found.steps.count, 12);
}

TEST(Marks, what_follows_the_mark_of_a_step_belongs_to_it_in_the_last_step_too) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    program.marked(step_name(step), [&] { training.step(); });
    program.alloc(Program::line(17), 4096);
    if (step % 4 == 1) program.free(program.alloc(Program::line(18), 64), Program::line(18));
  }
  // After the loop, where nothing of the kind came before.
  program.free(program.alloc(Program::line(30), 65536), Program::line(30));
  const auto found = after(program);
  expect_leak(found, 17, 4096, 0);
  EXPECT_EQ(found.steps.source, "annotations");
  EXPECT_EQ(found.steps.count, 12);
}

TEST(Marks, marks_of_training_and_evaluation_are_steps_of_two_kinds) {
  Program program;
  Training training(program);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int step = 0; step < 10; ++step) {
      program.marked("train step " + std::to_string(step), [&] {
        training.step();
        program.alloc(Program::line(16), 4096);
      });
    }
    for (int step = 0; step < 6; ++step) {
      program.marked("eval batch " + std::to_string(step), [&] { training.evaluation_step(); });
    }
  }
  const auto found = after(program);
  expect_leak(found, 16, 4096 * 10 / 16.0, 0);
  EXPECT_EQ(found.steps.source, "annotations");
  EXPECT_EQ(found.steps.kinds, (std::vector<std::int64_t>{30, 18}));
}

TEST(Marks, marks_of_the_parts_of_a_step_make_no_steps_of_their_own) {
  Program program;
  Training training(program);
  for (int step = 0; step < 20; ++step) {
    const auto number = " " + std::to_string(step);
    program.marked("batch" + number, [&] {
      program.alloc(Program::line(16), 1024);
      training.step();
    });
    program.marked("optimizer_step" + number,
                   [&] { program.free(program.alloc(Program::line(18), 64), Program::line(18)); });
  }
  const auto found = after(program);
  expect_leak(found, 16, 1024, 0);
  EXPECT_EQ(found.steps.count, 20);
}

TEST(Marks, marks_of_epochs_around_marks_of_steps_are_none) {
  Program program;
  Training training(program);
  for (int epoch = 0; epoch < 6; ++epoch) {
    program.marked("epoch " + std::to_string(epoch) + ": batches", [&] {
      for (int step = 0; step < 5; ++step) {
        program.marked(step_name(epoch * 5 + step), [&] {
          training.step();
          program.alloc(Program::line(16), 640);
        });
      }
    });
  }
  const auto found = after(program);
  expect_leak(found, 16, 640, 0);
  EXPECT_EQ(found.steps.count, 30);
}

TEST(Marks, of_marks_within_marks_the_outer_ones_are_steps) {
  Program program;
  Training training(program);
  for (int request = 0; request < 8; ++request) {
    program.marked("request " + std::to_string(request), [&] {
      for (int part = 0; part < 4; ++part) {
        program.marked("micro-batch " + std::to_string(part), [&] { training.step(); });
      }
      program.alloc(Program::line(16), 640);
    });
  }
  const auto found = after(program);
  expect_leak(found, 16, 640, 0);
  EXPECT_EQ(found.steps.source, "annotations");
  EXPECT_EQ(found.steps.count, 8);
}

TEST(Marks, an_end_without_a_start_and_doubled_starts_do_no_harm) {
  Program program;
  Training training(program);
  program.mark("END", "ProfilerStep#7");
  for (int step = 0; step < 12; ++step) {
    const auto name = "ProfilerStep#" + std::to_string(step);
    program.mark("START", name);
    program.mark("START", name);
    training.step();
    program.mark("END", name);
  }
  const auto found = after(program);
  EXPECT_EQ(found.steps.source, "annotations");
  EXPECT_EQ(found.steps.count, 12);
  EXPECT_EQ(found.verdict, Verdict::clean);
}

TEST(Marks, marks_of_the_compiler_are_no_steps) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    for (int graph = 0; graph < 5; ++graph) {
      const auto name = "Torch-Compiled Region: " + std::to_string(step * 5 + graph) + "/0 step";
      program.mark("START", name);
      program.mark("END", name);
    }
    training.step();
  }
  const auto found = after(program);
  EXPECT_EQ(found.steps.source, "call stacks");
  EXPECT_EQ(found.steps.count, 12);
}

TEST(Marks, steps_in_the_metadata_are_taken) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 8; ++step) {
    program.metadata("step=" + std::to_string(step));
    training.step();
    program.alloc({}, 640);
  }
  const auto found = after(program);
  expect_leak(found, 0, 640, 0);
  EXPECT_EQ(found.steps.source, "metadata");
}

TEST(Marks, metadata_of_training_and_evaluation_are_steps_of_two_kinds) {
  Program program;
  Training training(program);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int step = 0; step < 10; ++step) {
      program.metadata("train step " + std::to_string(step));
      training.step();
      program.alloc(Program::line(16), 4096);
    }
    for (int step = 0; step < 2; ++step) {
      program.metadata("eval step " + std::to_string(step));
      training.evaluation_step();
    }
  }
  const auto found = after(program);
  expect_leak(found, 16, 4096 * 10 / 12.0, 0);
  EXPECT_EQ(found.steps.source, "metadata");
  EXPECT_EQ(found.steps.kinds, (std::vector<std::int64_t>{30, 6}));
}

TEST(Marks, snapshots_taken_in_a_loop_mark_its_steps) {
  Program program({.frames = false});
  for (int step = 0; step < 9; ++step) {
    const auto x = program.alloc({}, 4096 * (step % 3 + 1));
    const auto y = program.alloc({}, 512 * (step * 7 % 5 + 1));
    program.free(x);
    program.free(y);
    program.alloc({}, 640);
    program.take_snapshot();
  }
  const auto found = after(program);
  EXPECT_EQ(found.steps.source, "snapshots");
  EXPECT_EQ(found.steps.count, 9);
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
}

TEST(Marks, steps_of_an_optimizer_serve_where_there_are_no_frames) {
  Program program({.frames = false});
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step(1 + step * 7 % 5);
    program.mark("START", "Optimizer.step#SGD.step");
    program.mark("END", "Optimizer.step#SGD.step");
    program.alloc({}, 640);
  }
  const auto found = after(program);
  expect_leak(found, 0, 640, 0);
  EXPECT_EQ(found.steps.source, "optimizer");
  EXPECT_EQ(found.steps.count, 12);
}

TEST(Marks, two_optimizers_that_take_turns_make_one_step) {
  Program program({.frames = false});
  Training generator(program, 2, 4096);
  Training critic(program, 4, 1024);
  for (int step = 0; step < 10; ++step) {
    for (auto* training : {&critic, &generator}) {
      training->step(1 + step % 4);
      program.mark("START", "Optimizer.step#Adam.step");
      program.mark("END", "Optimizer.step#Adam.step");
    }
    program.alloc({}, 640);
  }
  const auto found = after(program);
  EXPECT_EQ(found.steps.count, 10);
  expect_leak(found, 0, 640, 0);
}

TEST(Marks, the_number_of_steps_that_the_caller_knows_is_taken) {
  Program program;
  Training training(program);
  for (int step = 0; step < 30; ++step) {
    training.step();
    if (step % 3 == 0) program.alloc(Program::line(16), 300);
  }
  DiagnoseOptions options;
  options.steps = 10;
  const auto found = after(program, options);
  EXPECT_EQ(found.steps.source, "given");
  EXPECT_EQ(found.steps.count, 10);
  expect_leak(found, 16, 300, 0);
}

TEST(Marks, the_line_of_a_step_that_the_caller_knows_is_taken) {
  Program program;
  Training training(program);
  for (int step = 0; step < 30; ++step) training.step();
  DiagnoseOptions options;
  options.step_file = "train.py";
  options.step_line = 12;
  EXPECT_EQ(after(program, options).steps.count, 30);
  options.step_file = "me/train.py";
  EXPECT_EQ(after(program, options).steps.count, 30);
  options.step_file = "rain.py";
  EXPECT_EQ(after(program, options).verdict, Verdict::undecided);
  options.step_file = "train.py";
  options.step_line = 77;
  const auto found = after(program, options);
  EXPECT_EQ(found.verdict, Verdict::undecided);
  EXPECT_THAT(found.limits, Contains(HasSubstr("train.py:77")));
}

TEST(Marks, of_the_numbers_in_a_mark_the_one_of_steps_counts) {
  const auto name = [](int form, int step) {
    const auto of_epoch = std::to_string(step % 8);
    switch (form) {
      case 0:
        return "epoch " + std::to_string(step / 8) + " iter " + of_epoch;
      case 1:
        return "rank 0 step " + std::to_string(step);
      case 2:
        return "batch_size=32 step=" + std::to_string(step);
      default:
        return "step " + std::to_string(step) + "/24";
    }
  };
  for (int form = 0; form < 4; ++form) {
    for (const bool metadata : {false, true}) {
      Program program;
      Training training(program);
      for (int step = 0; step < 24; ++step) {
        if (metadata) program.metadata(name(form, step));
        if (!metadata) program.mark("START", name(form, step));
        // Halves of a step, which alone would look like steps.
        for (int half = 0; half < 2; ++half) {
          if (!metadata) program.mark("START", "micro batch");
          training.step();
          if (!metadata) program.mark("END", "micro batch");
        }
        program.alloc(Program::line(16), 1000);
        if (!metadata) program.mark("END", name(form, step));
      }
      const auto found = after(program);
      EXPECT_EQ(found.steps.source, metadata ? "metadata" : "annotations") << name(form, 1);
      expect_leak(found, 16, 1000, 0);
      EXPECT_EQ(found.steps.count, 24);
    }
  }
}

// Without frames, from step 12 on; an evaluation comes behind each eighth step.
TEST(Marks, an_evaluation_behind_the_last_step_of_an_optimizer_moves_no_beginnings) {
  for (const int steps : {24, 28}) {
    Program program({.frames = false});
    Training training(program);
    for (int step = 0; step < steps; ++step) {
      training.step();
      program.marked("Optimizer.step#Adam.step",
                     [&] { program.free(program.alloc({}, 512 * 1024)); });
      if (step >= 12) program.alloc({}, 640);
      for (int batch = 0; batch < 5 && step % 8 == 7; ++batch) training.evaluation_step();
    }
    const auto found = after(program);
    EXPECT_EQ(found.steps.source, "optimizer") << steps;
    EXPECT_EQ(found.steps.count, steps);
    expect_leak(found, 0, 640, 12);
  }
}

// Steps of an optimizer that each call a closure three times, which keeps its loss.
Diagnosis after_closures(int steps, int calls) {
  Program program;
  for (int step = 0; step < steps; ++step) {
    program.marked("Optimizer.step#LBFGS.step", [&] {
      for (int call = 0; call < calls; ++call) {
        const auto out = program.alloc(Program::module(Program::called("closure", 31, 11)), 4096);
        program.alloc(Program::called("closure", 32, 11), 640);
        const auto gradient = program.alloc({}, 4096);
        program.free(out);
        program.free(program.alloc(Program::optimizer(11), 8192), Program::optimizer(11));
        program.free(gradient, Program::called("closure", 30, 11));
      }
    });
  }
  return after(program);
}

TEST(Marks, closures_that_an_optimizer_calls_in_one_step_are_parts_of_it) {
  const auto found = after_closures(12, 3);
  EXPECT_EQ(found.steps.source, "optimizer");
  EXPECT_EQ(found.steps.count, 12);
  expect_leak(found, 32, 3 * 640, 0);
  const auto only = after_closures(1, 16);
  EXPECT_EQ(only.verdict, Verdict::undecided) << only.summary;
  EXPECT_THAT(only.summary, HasSubstr("parts of one or two steps"));
}

TEST(Marks, an_optimizers_step_that_calls_a_closure_begins_with_its_own_step) {
  // A tensor from before the trace, freed in the first step, makes that step look cut.
  Program program;
  const auto earlier = program.forgotten(4096);
  for (int step = 0; step < 12; ++step) {
    program.marked("Optimizer.step#LBFGS.step", [&] {
      if (step == 0) {
        program.free(earlier);
        return;
      }
      const auto out = program.alloc(Program::module(Program::called("closure", 31, 11)), 4096);
      program.alloc(Program::called("closure", 32, 11), 640);
      program.free(program.alloc({}, 4096));
      program.free(out);
    });
  }
  const auto found = after(program);
  EXPECT_EQ(found.steps.source, "optimizer");
  EXPECT_EQ(found.steps.seen, 11);
  EXPECT_EQ(found.steps.count, 12);
}

TEST(Marks, a_step_that_fails_is_none_although_its_mark_ends_with_it) {
  for (const bool goes_on : {false, true}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 12; ++step) {
      program.marked(fmt::format("step {}", step), [&] {
        training.step();
        program.alloc(Program::line(16), 4096);
        if (step == 11) {
          program.fail(std::int64_t{1} << 33, 1 << 20, Program::line(17));
          if (goes_on) program.free(program.alloc(Program::line(18), 512));
        }
        if (step < 11) program.free(program.alloc(Program::line(17), 2048));
      });
    }
    // What the exception held.
    training.end();
    EXPECT_EQ(after(program).steps.count, goes_on ? 12 : 11);
  }
}

TEST(Marks, iterations_of_which_an_optimizer_made_one_or_two_steps_are_parts_of_these) {
  for (const int each : {6, 4}) {
    Program program;
    Training training(program, 1);
    for (int micro = 1; micro <= 12; ++micro) {
      const auto x = program.alloc(Program::line(10), 8192);
      training.backward({program.alloc(Program::module(11), 4096)});
      program.free(x, Program::line(13));
      program.alloc(Program::line(14), 640);
      if (micro % each == 0) {
        program.marked("Optimizer.step#SGD.step", [&] { training.optimizer(); });
      }
    }
    EXPECT_EQ(after(program).verdict, each == 6 ? Verdict::undecided : Verdict::leak) << each;
  }
}

TEST(Marks, iterations_in_an_only_marked_step_are_parts_of_it) {
  struct Mark {
    const char* name;
    Verdict verdict;
  };
  for (const auto& mark :
       {Mark{"iteration 0", Verdict::undecided}, Mark{"request 7", Verdict::undecided},
        Mark{"steps of epoch 0", Verdict::leak}, Mark{"ProfilerStep#0", Verdict::leak}}) {
    Program program;
    program.mark("START", mark.name);
    for (int step = 0; step < 20; ++step) {
      const auto out = program.alloc(Program::module(11), 4096);
      program.alloc(Program::line(12), 640);
      program.free(program.alloc(Program::line(13), 8), Program::line(13));
      program.free(out, Program::line(14));
    }
    EXPECT_EQ(after(program).verdict, mark.verdict) << mark.name << after(program).summary;
  }
}

}  // namespace
}  // namespace leaklab

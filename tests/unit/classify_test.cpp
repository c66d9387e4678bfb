// Which class of the taxonomy a diagnosis gives to a leak.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>

#include "expect_diagnosis.h"
#include "made_snapshot.h"

namespace leaklab {
namespace {

using made::MadeStack;
using made::Program;
using made::Training;

const std::string packages = "/usr/lib/python3.11/site-packages/";

// What `outer` calls on the way to an allocation, innermost last.
MadeStack with(MadeStack outer, const std::string& file, const std::string& function,
               std::uint64_t line) {
  outer.insert(outer.begin(), {file, function, line});
  return outer;
}

// A line of the forward pass of the program's own module, which line 11 of the loop calls.
MadeStack forward(std::uint64_t line) {
  auto stack = with(Program::line(11), packages + "torch/nn/modules/module.py", "_call_impl", 1790);
  return with(std::move(stack), "/home/me/train.py", "forward", line);
}

// The class of each line that leaks.
std::map<std::int64_t, std::string> classes(const Snapshot& snapshot) {
  std::map<std::int64_t, std::string> found;
  for (const auto& finding : diagnose(snapshot).findings) {
    found[finding.site.line] = finding.taxonomy;
  }
  return found;
}

using Classes = std::map<std::int64_t, std::string>;

// Of a training that keeps one such allocation of each step.
Classes classes_of(const MadeStack& kept, std::int64_t size = 640) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(kept, size);
  }
  return classes(program.dump());
}

TEST(Classes, an_output_that_a_layer_gives_to_the_line_or_makes_on_it_is_a_layers) {
  EXPECT_EQ(classes_of(Program::module(16)), (Classes{{16, "L09"}}));
  EXPECT_EQ(classes_of(forward(40)), (Classes{{40, "L09"}}));
}

TEST(Classes, what_a_function_that_a_layer_calls_makes_is_no_output_of_the_layer) {
  EXPECT_EQ(classes_of(with(forward(40), "/home/me/train.py", "mask", 50)), (Classes{{50, "L17"}}));
}

TEST(Classes, what_a_library_that_is_no_layer_makes_is_no_output_of_a_layer) {
  EXPECT_EQ(classes_of(with(Program::line(16), packages + "torch/functional.py", "stft", 700)),
            (Classes{{16, "L17"}}));
}

TEST(Classes, losses_are_known_by_what_computes_them_whatever_their_size) {
  const auto function = packages + "torch/nn/functional.py";
  const auto module =
      with(Program::line(16), packages + "torch/nn/modules/loss.py", "forward", 619);
  EXPECT_EQ(classes_of(module, 192), (Classes{{16, "L23"}}));
  EXPECT_EQ(classes_of(with(Program::line(16), function, "mse_loss", 3900), 192),
            (Classes{{16, "L23"}}));
  // Of that name and the program's own.
  EXPECT_EQ(classes_of(Program::called("mse_loss", 30, 16), 192), (Classes{{30, "L17"}}));
}

TEST(Classes, copies_of_a_model_that_are_kept_are_told_as_copies) {
  const auto copied = with(Program::line(16), "/usr/lib/python3.11/copy.py", "deepcopy", 150);
  EXPECT_EQ(classes_of(with(copied, packages + "torch/nn/parameter.py", "__deepcopy__", 68)),
            (Classes{{16, "L16"}}));
}

TEST(Classes, one_output_of_a_recurrent_layer_is_no_state_carried_on_and_several_are) {
  const auto recurrent =
      with(Program::line(16), packages + "torch/nn/modules/rnn.py", "forward", 1150);
  for (const int each_step : {1, 2}) {
    Program program;
    Training training(program);
    for (int step = 0; step < 12; ++step) {
      training.step();
      for (int each = 0; each < each_step; ++each) program.alloc(recurrent, 640 << each);
    }
    EXPECT_EQ(classes(program.dump()), (Classes{{16, each_step == 1 ? "L09" : "L03"}}));
  }
}

TEST(Classes, what_several_layers_make_in_one_step_is_kept_by_a_graph_and_so_is_its_input) {
  for (const bool one_line : {false, true}) {
    Program program;
    for (int step = 0; step < 12; ++step) {
      program.alloc(Program::line(10), 4096);
      for (std::uint64_t layer = 0; layer < 3; ++layer) {
        program.alloc(forward(one_line ? 40 : 40 + layer), 1024);
      }
      program.free(program.alloc(Program::line(12), 64), Program::line(13));
    }
    EXPECT_EQ(classes(program.dump()),
              (one_line ? Classes{{10, "L02"}, {40, "L02"}}
                        : Classes{{10, "L02"}, {40, "L02"}, {41, "L02"}, {42, "L02"}}));
  }
}

TEST(Classes, one_larger_tensor_in_each_step_is_no_hook_that_is_added_again) {
  Program program;
  Training training(program);
  for (int step = 0; step < 12; ++step) {
    training.step();
    program.alloc(Program::line(16), 640 + 64 * step);
  }
  EXPECT_EQ(classes(program.dump()), (Classes{{16, "L17"}}));
}

TEST(Classes, what_one_step_of_three_leaves_and_the_others_free_is_told_as_such) {
  Program program;
  Training training(program);
  for (int step = 0; step < 30; ++step) {
    training.step();
    const auto request = program.alloc(Program::line(16), 640);
    if (step % 3 != 1) program.free(request, Program::line(17));
  }
  EXPECT_EQ(classes(program.dump()), (Classes{{16, "L11"}}));
}

TEST(Classes, parameters_that_stay_with_the_state_of_their_optimizer_have_its_class) {
  Program program;
  Training training(program);
  for (int step = 0; step < 36; ++step) {
    training.step();
    if (step % 6 == 0) {
      // Those of the first optimizer are older than the loop.
      if (step > 0) program.alloc(Program::called("__init__", 50, 16), 640);
      program.alloc(Program::optimizer(17), 1280);
    }
    // Of other steps.
    if (step % 6 == 3) program.alloc(Program::line(18), 640);
  }
  EXPECT_EQ(classes(program.dump()), (Classes{{50, "L13"}, {17, "L13"}, {18, "L17"}}));
}

TEST(Classes, a_graph_kept_is_known_by_the_pool_of_the_segment_and_so_is_its_input) {
  Program program;
  Training training(program);
  for (int step = 0; step < 24; ++step) {
    training.step();
    if (step % 2 == 0) {
      program.alloc(Program::line(16), 640);
      program.alloc(Program::line(17), 2048);
    } else {
      program.alloc(Program::line(18), 320);
    }
  }
  auto snapshot = program.dump();
  snapshot.pools.emplace_back(1, 0);
  // One segment for each block.
  snapshot.segments.clear();
  for (std::uint32_t at = 0; at < snapshot.blocks.size(); ++at) {
    const auto& block = snapshot.blocks[at];
    Segment segment;
    segment.address = block.address;
    segment.total_size = block.size;
    segment.pool = block.requested == 2048 ? 1 : 0;
    segment.first_block = at;
    segment.blocks = 1;
    snapshot.segments.push_back(segment);
  }
  EXPECT_EQ(classes(snapshot), (Classes{{16, "L30"}, {17, "L30"}, {18, "L17"}}));
}

}  // namespace
}  // namespace leaklab

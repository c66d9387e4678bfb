// What the stacks of a snapshot say about the loop that they were taken in.
#include "analysis/sites.h"

#include <gtest/gtest.h>

#include "made_snapshot.h"

namespace leaklab {
namespace {

using made::MadeStack;
using made::Program;

// Of one allocation from that stack.
StackTraits traits_of(const MadeStack& stack, std::uint32_t& depth) {
  Program program;
  program.alloc(stack, 640);
  const auto snapshot = program.dump();
  const Sites sites(snapshot);
  const auto traits = sites.stack(snapshot.traces[0].front().stack);
  depth = sites.depth(traits.path);
  return traits;
}

TEST(Sites, a_function_that_calls_itself_ends_the_path_and_one_in_between_does_not) {
  const auto frame = [](std::string function, std::uint64_t line) {
    return made::MadeFrame{"/home/me/train.py", std::move(function), line};
  };
  std::uint32_t depth = 0;
  auto traits = traits_of({frame("encode", 26), frame("encode", 26), frame("main", 34)}, depth);
  EXPECT_EQ(depth, 2u);
  EXPECT_NE(traits.callee, no_frame);
  traits = traits_of({frame("train", 20), frame("timed", 5), frame("main", 30), frame("timed", 5)},
                     depth);
  EXPECT_EQ(depth, 4u);
  EXPECT_EQ(traits.callee, no_frame);
}

TEST(Sites, a_path_ends_where_only_recursion_goes_so_deep) {
  MadeStack stack;
  for (std::uint64_t line = 1; line <= 1000; ++line) {
    stack.push_back({"/home/me/train.py", line % 2 == 0 ? "even" : "odd", line});
  }
  std::uint32_t depth = 0;
  traits_of(stack, depth);
  EXPECT_EQ(depth, 200u);
}

}  // namespace
}  // namespace leaklab

// Patterns of allocations: their text, what repeats, and what they predict.
#include "leaklab/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "leaklab/error.h"

namespace leaklab {
namespace {

using Kind = Pattern::Op::Kind;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::string refusal(std::string_view text) {
  try {
    parse_pattern(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no refusal";
}

TEST(Pattern, a_text_is_one_line_a_step_after_the_number_of_steps_that_repeat) {
  const auto pattern = parse_pattern("1\n512\n64 64! -0.0 -1.0\n");
  EXPECT_EQ(pattern.period, 1);
  EXPECT_EQ(pattern.warmup(), 1);
  ASSERT_THAT(pattern.steps, SizeIs(2));
  EXPECT_EQ(pattern.steps[1][0], (Pattern::Op{Kind::alloc, 64, 0, 0}));
  EXPECT_EQ(pattern.steps[1][1], (Pattern::Op{Kind::leak, 64, 0, 0}));
  EXPECT_EQ(pattern.steps[1][2], (Pattern::Op{Kind::free, 0, 0, 0}));
  EXPECT_EQ(pattern.steps[1][3], (Pattern::Op{Kind::free, 0, 1, 0}));
}

TEST(Pattern, its_text_is_read_back_as_it_was) {
  for (const std::string text :
       {"1\n64!\n", "1\n8\n64+8 -1.0\n", "2\n8 8! -0.0\n\n16 -1.1\n", "3\n\n\n\n1!\n"}) {
    EXPECT_EQ(to_text(parse_pattern(text)), text);
  }
}

TEST(Pattern, the_last_period_repeats_for_as_long_as_the_run_lasts) {
  const auto pattern = parse_pattern("2\n1\n2\n3\n");
  const auto bytes = [&](std::int64_t step) { return pattern.at(step).front().bytes; };
  EXPECT_EQ(bytes(0), 1);
  for (std::int64_t step = 1; step < 9; step += 2) {
    EXPECT_EQ(bytes(step), 2) << step;
    EXPECT_EQ(bytes(step + 1), 3) << step;
  }
}

TEST(Pattern, its_levels_are_what_is_live_after_each_step) {
  const auto pattern = parse_pattern("1\n100 8 -0.1 3!\n50 -1.0 7!\n");
  EXPECT_THAT(pattern.levels(4, true), ElementsAre(103, 60, 67, 74));
  EXPECT_THAT(pattern.levels(4, false), ElementsAre(100, 50, 50, 50));
  EXPECT_EQ(pattern.reach(), 1);
  EXPECT_EQ(pattern.settled(), 3);
}

TEST(Pattern, a_tensor_that_is_replaced_by_a_larger_one_grows_with_each_repetition) {
  // One grows and is replaced, another one grows and is freed at once.
  const auto pattern = parse_pattern("2\n100\n100 -1.0\n110+20 -1.0 50+7 -0.1\n100 -1.0 3!\n");
  EXPECT_THAT(pattern.levels(7, true), ElementsAre(100, 100, 110, 103, 133, 106, 156));
  EXPECT_THAT(pattern.levels(7, false), ElementsAre(100, 100, 110, 100, 110, 100, 110));
  const auto cat = parse_pattern("1\n100\n110+10 -1.0\n");
  EXPECT_THAT(cat.levels(4, true), ElementsAre(100, 110, 120, 130));
  EXPECT_EQ(cat.growth().per_period("requested"), 10);
  EXPECT_EQ(cat.growth().per_period("live_allocations"), 0);
  EXPECT_FALSE(cat.growth().predicts("peak"));
  EXPECT_FALSE(cat.growth().predicts("allocated"));
}

TEST(Pattern, it_predicts_the_leaks_of_one_period) {
  const auto growth = parse_pattern("2\n512!\n100! 7\n600!\n").growth();
  EXPECT_EQ(growth.per_period("requested"), 700);
  EXPECT_EQ(growth.per_period("live_allocations"), 2);
  EXPECT_EQ(growth.per_period("allocated"), 512 + 1024);
  EXPECT_EQ(growth.period(), 2);
}

TEST(Pattern, the_rounding_of_sizes_that_the_allocator_may_not_split_is_not_predicted) {
  EXPECT_TRUE(parse_pattern("1\n1048576!\n").growth().predicts("allocated"));
  EXPECT_FALSE(parse_pattern("1\n1048577!\n").growth().predicts("allocated"));
  EXPECT_TRUE(parse_pattern("1\n12582912!\n").growth().predicts("allocated"));
  EXPECT_TRUE(parse_pattern("1\n1048577!\n").growth().predicts("requested"));
}

TEST(Pattern, a_text_that_is_none_is_refused_by_word_and_line) {
  EXPECT_THAT(refusal("1\n64 6x4\n"), HasSubstr("line 2 of the pattern has '6x4'"));
  EXPECT_THAT(refusal("1\n64+x\n"), HasSubstr("'64+x'"));
  EXPECT_THAT(refusal("1\n64+8!\n"), HasSubstr("'64+8!'"));
  EXPECT_THAT(refusal("1\n64+0\n"), HasSubstr("'64+0'"));
  EXPECT_THAT(refusal("1\n64 -1\n"), HasSubstr("'-1'"));
  EXPECT_THAT(refusal("1\n64 -1.\n"), HasSubstr("'-1.'"));
  EXPECT_THAT(refusal("1\n99999999999999999999\n"), HasSubstr("'99999999999999999999'"));
  EXPECT_THAT(refusal("x\n"), HasSubstr("line 1 of the pattern has 'x'"));
  EXPECT_THAT(refusal("2\n64\n"), HasSubstr("repeats its last 2 steps and has 1"));
  EXPECT_THAT(refusal(""), HasSubstr("and has 0"));
}

}  // namespace
}  // namespace leaklab

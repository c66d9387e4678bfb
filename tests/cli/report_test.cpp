#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../harness/core/size_text.h"
#include "../../harness/report/check_text.h"
#include "../../harness/report/diagnose_text.h"
#include "../../harness/report/movement.h"
#include "../../harness/report/replay_text.h"
#include "../../harness/report/sparkline.h"
#include "../../harness/report/style.h"
#include "../../harness/report/table.h"
#include "../unit/made.h"

namespace leaklab {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Style, numbers_are_grouped_by_thousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(-999), "-999");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Style, bytes_below_none_have_a_sign) {
  EXPECT_EQ(size_text(std::int64_t{-2048}), "-2,048 B");
  EXPECT_EQ(size_text(std::int64_t{-2 << 20}), "-2.0 MiB");
}

TEST(Style, bytes_are_told_in_the_units_of_messages_of_pytorch) {
  EXPECT_EQ(size_text(std::int64_t{10'239}), "10,239 B");
  EXPECT_EQ(size_text(std::int64_t{10'240}), "10.0 KiB");
  EXPECT_EQ(size_text(std::int64_t{20 << 20}), "20.0 MiB");
  EXPECT_EQ(size_text(std::int64_t{80} << 30), "80.0 GiB");
  EXPECT_EQ(size_text((std::int64_t{1} << 30) - 1), "1.0 GiB") << "no 1024.0 MiB";
  EXPECT_EQ(size_text(std::int64_t{1} << 50), "1.0 PiB");
}

TEST(Style, exact_bytes_are_grouped_and_told_to_a_thousandth) {
  EXPECT_EQ(bytes_text(147456), "147,456 B");
  EXPECT_EQ(bytes_text(76288 / 3.0), "25,429.333 B");
  EXPECT_EQ(bytes_text(1999.9999), "2,000 B");
  EXPECT_EQ(size_text(2 / 3.0), "0.667 B");
}

TEST(Style, long_sentences_are_wrapped_at_words) {
  EXPECT_EQ(wrapped("one two three", 2, 9), "  one two\n  three");
  EXPECT_EQ(wrapped("unbreakable", 1, 4), " unbreakable");
}

TEST(Style, no_line_ends_between_a_number_and_its_unit) {
  EXPECT_EQ(wrapped("it held 1.5 MiB", 0, 11), "it held\n1.5 MiB");
  EXPECT_EQ(wrapped("it held (-1.5 MiB), more", 0, 13), "it held\n(-1.5 MiB),\nmore");
  EXPECT_EQ(wrapped("sure by 90 %.", 0, 11), "sure by\n90 %.");
  EXPECT_EQ(wrapped("until step 12, or", 0, 11), "until\nstep 12, or");
  EXPECT_EQ(wrapped("each 1,200 steps take", 0, 11), "each\n1,200 steps\ntake");
  EXPECT_EQ(wrapped("of 2 MiB at line 7", 0, 14), "of 2 MiB at\nline 7");
}

TEST(Style, a_line_ends_between_a_number_and_a_word_that_is_no_unit) {
  EXPECT_EQ(wrapped("two of 3, MiB", 0, 10), "two of 3,\nMiB");
  EXPECT_EQ(wrapped("train.py:12 in step", 0, 15), "train.py:12 in\nstep");
  EXPECT_EQ(wrapped("with 12 others", 0, 8), "with 12\nothers");
}

TEST(Style, a_line_too_narrow_for_a_number_with_its_unit_has_one_of_them) {
  EXPECT_EQ(wrapped("1,234.5 MiB", 0, 8), "1,234.5\nMiB");
  EXPECT_EQ(wrapped("step 123456", 2, 8), "  step\n  123456");
}

TEST(Style, a_label_stands_before_a_text_that_is_wrapped_beside_it_or_below) {
  EXPECT_EQ(labelled("  a  ", "one two three", 5, {.width = 12}), "  a  one two\n     three");
  EXPECT_EQ(labelled("  label", "one", 4, {.width = 12}), "  label\n    one");
  EXPECT_EQ(counted(1, "step") + ", " + counted(2000, "step"), "1 step, 2,000 steps");
}

TEST(Table, columns_line_up_by_characters_and_empty_ones_are_left_out) {
  Table table({{"name"}, {"none"}, {"n", Align::right}, {"last"}});
  table.add({{"▁▂"}, {""}, {"1"}, {"x"}});
  table.add({{"a"}, {""}, {"1000"}});
  EXPECT_EQ(table.text({}),
            "name     n  last\n"
            "▁▂       1  x\n"
            "a     1000\n");
}

TEST(Table, names_are_cut_where_the_terminal_is_narrow_and_numbers_never) {
  Table table({{"scenario", Align::left, Fit::cut}, {"bytes", Align::right}, {"outcome"}});
  table.add({{"retained_gräph_loss_list"}, {"1,234,567"}, {"REGRESSION"}});
  table.add({{"short"}, {"1"}, {"PASS"}});
  EXPECT_EQ(table.text({.width = 47}), table.text({})) << "just wide enough";
  EXPECT_EQ(table.text({.width = 36}),
            "scenario           bytes  outcome\n"
            "retained_g...  1,234,567  REGRESSION\n"
            "short                  1  PASS\n");
  EXPECT_EQ(table.text({.unicode = true, .width = 36}),
            "scenario           bytes  outcome\n"
            "retained_grä…  1,234,567  REGRESSION\n"
            "short                  1  PASS\n");
  EXPECT_EQ(table.text({.width = 1}),
            "scenario      bytes  outcome\n"
            "retai...  1,234,567  REGRESSION\n"
            "short             1  PASS\n")
      << "something is left of a name";
}

TEST(Table, a_plot_is_left_out_before_names_are_cut) {
  Table table({{"channel", Align::left, Fit::cut},
               {"series", Align::left, Fit::left_out},
               {"last", Align::right}});
  table.add({{"live_allocations"}, {"+14 +6 x19"}, {"128"}});
  EXPECT_EQ(table.text({.width = 34}),
            "channel           series      last\n"
            "live_allocations  +14 +6 x19   128\n");
  EXPECT_EQ(table.text({.width = 33}),
            "channel           last\n"
            "live_allocations   128\n");
  EXPECT_EQ(table.text({.width = 18}),
            "channel       last\n"
            "live_allo...   128\n");
}

TEST(Sparkline, rises_from_the_lowest_to_the_highest_block) {
  EXPECT_EQ(sparkline(std::vector<std::int64_t>{0, 1, 7}), "▁▂█");
  EXPECT_EQ(sparkline(std::vector<std::int64_t>{5, 5}), "▁▁");
  EXPECT_EQ(sparkline(std::vector<std::int64_t>{0, 9, 0, 0}, 2), "█▁") << "a peak stays visible";
  EXPECT_EQ(sparkline({}), "");
}

TEST(Sparkline, gains_are_run_length_coded_and_cut_where_they_are_long) {
  EXPECT_EQ(gains(10, std::vector<std::int64_t>{10, 10, 522, 1034}), "+0 x2 +512 x2");
  EXPECT_EQ(gains(0, std::vector<std::int64_t>{1, 3, 6, 10, 15, 21}, 12), "+1 +2 +3 ...");
}

CheckResult result(const std::string& id, Recording recording, Outcome outcome) {
  CheckResult result;
  result.id = id;
  result.twin = recording.twin;
  result.outcome = outcome;
  recording.scenario = id;
  result.recording = std::move(recording);
  result.repeat = "leaklab check " + id + " --env cpu";
  return result;
}

void register_made(const std::string& id, Growth growth) {
  Scenario scenario;
  scenario.id = id;
  scenario.file = id + ".cpp";
  scenario.taxonomy = "L02";
  scenario.expect = [growth](const Setting&) { return growth; };
  const Registration kept_by_the_registry(scenario);
}

TEST(CheckText, is_a_table_then_what_did_not_pass_then_the_counts) {
  register_made("made_list", Growth().tensor(512));
  register_made("made_nodes", Growth().nodes(8));
  auto nodes = made::recording(Twin::leaky, 0);
  nodes.channels["graph_nodes"].unit = "count";
  nodes.channels["graph_nodes"].values = made::line(7, 8, 20);
  CheckReport report;
  report.environment = made::cpu();
  report.controls = 4;
  report.results = {result("made_list", made::recording(Twin::fixed, 0), Outcome::pass),
                    result("made_list", made::recording(Twin::leaky, 1024), Outcome::regression),
                    result("made_nodes", made::recording(Twin::fixed, 0), Outcome::pass),
                    result("made_nodes", nodes, Outcome::pass),
                    result("pinned_a", {}, Outcome::skipped),
                    result("pinned_b", {}, Outcome::skipped)};
  auto& regression = report.results[1];
  regression.differences = {{"requested", "B", "baseline", "+512 B per step",
                             "+1024 B per step (512 B too much)", "0", 4,
                             Difference::Direction::more}};
  regression.reason = to_string(regression.differences.front());
  regression.sites = {{"aten::linear > aten::addmm", 16384, 16}};
  for (std::size_t i : {4U, 5U}) report.results[i].reason = "needs CUDA";
  EXPECT_EQ(check_text(report, {}),
            R"(scenario          leaky/step  predicted  fixed  baseline  outcome
made_list           +1,024 B        512      0  differs   REGRESSION
made_nodes                +8          8      0  equal     PASS
  on graph_nodes
pinned_a                   -          -      -  -         SKIPPED
pinned_b                   -          -      -  -         SKIPPED

SKIPPED  2 scenarios
  needs CUDA
    pinned_a, pinned_b

REGRESSION  made_list, leaky twin
  requested (baseline)
    expected    +512 B per step
    got         +1024 B per step (512 B too much)
    allowed     0
    from step   4
  not freed since the warm-up, by operator
    16,384 B in 16  aten::linear > aten::addmm
  repeat: leaklab check made_list --env cpu

6 runs on the CPU, LibTorch 2.11.0: 3 PASS, 1 REGRESSION, 2 SKIPPED; 4 runs of controls held
)");
}

TEST(CheckText, shows_the_end_of_a_crashed_childs_output) {
  CheckReport report;
  report.environment = made::cpu();
  auto crashed = result("made_crash", {}, Outcome::crashed);
  crashed.reason = "killed by SIGSEGV";
  for (int line = 0; line < 30; ++line) crashed.log += "line " + std::to_string(line) + "\n";
  report.results = {crashed};
  EXPECT_THAT(check_text(report, {}),
              HasSubstr("  killed by SIGSEGV\n  the end of its output\n    ...\n    line 18\n"));
  EXPECT_THAT(check_text(report, {}), HasSubstr("    line 29\n  repeat: "));
}

TEST(CheckText, colours_outcomes_where_it_may) {
  CheckReport report;
  report.environment = made::cpu();
  report.results = {result("made", made::recording(Twin::fixed, 0), Outcome::pass)};
  EXPECT_THAT(check_text(report, {true, true}), HasSubstr("\x1b[32mPASS\x1b[0m"));
}

TEST(DiagnoseText, shows_the_function_alone_where_its_file_is_not_known) {
  Diagnosis diagnosis;
  diagnosis.verdict = Verdict::leak;
  Finding finding;
  finding.site = {"??", 0, "aten::linear"};
  finding.frames = {"aten::linear", "a.cpp:7 step"};
  diagnosis.findings = {finding};
  const auto text = diagnose_text("run.pickle", diagnosis,
                                  {.frames = true, .device_memory = 0, .time_left = {}}, {});
  EXPECT_THAT(
      text, testing::AllOf(HasSubstr("allocated at aten::linear."), HasSubstr("\n  aten::linear\n"),
                           HasSubstr("      aten::linear\n      a.cpp:7 step\n"),
                           testing::Not(HasSubstr("??"))));
}

TEST(DiagnoseText, says_in_words_what_a_terminal_may_draw) {
  Diagnosis diagnosis;
  diagnosis.verdict = Verdict::clean;
  diagnosis.steps.seen = 10;
  diagnosis.steps.count = 110;
  diagnosis.steps.source = "annotations";
  diagnosis.steps.confidence = 0.9;
  diagnosis.steps.kinds = {7, 3};
  for (std::int64_t step = 0; step < 10; ++step) {
    diagnosis.steps.live_after.push_back(1000 + step * 1000);
  }
  const DiagnoseView view{.frames = false, .device_memory = 0, .time_left = {}};
  const auto text = diagnose_text("run.pickle", diagnosis, view, {});
  EXPECT_THAT(text,
              HasSubstr("10 steps of 110 are in the trace, found by marks of steps (90 % sure), "
                        "of 2 kinds, such as\n  training and evaluation: 7 and 3\n"));
  diagnosis.steps.source = "optimizer";
  EXPECT_THAT(diagnose_text("run.pickle", diagnosis, view, {}),
              HasSubstr(", found by the optimizer's marks (90 % sure)"));
  diagnosis.steps.kinds = {5, 3, 2};
  EXPECT_THAT(diagnose_text("run.pickle", diagnosis, view, {}),
              HasSubstr("of 3 kinds, such as\n  training and evaluation: 5, 3, 2\n"));
  EXPECT_THAT(text, HasSubstr("  live after each step   step 100: 1,000 B, step 103: 4,000 B, step "
                              "106: 7,000 B, step 109: 10,000 B\n"));
  EXPECT_THAT(diagnose_text("run.pickle", diagnosis, view, {.width = 40}),
              HasSubstr("  live after each step\n    step 100: 1,000 B, step 103:\n    4,000 B, "));
  EXPECT_THAT(diagnose_text("run.pickle", diagnosis, view, {.unicode = true, .width = 40}),
              HasSubstr("  live after each step\n    ▁▂▃▃▄▅▆▆▇█  1,000 B to 10,000 B\n"));
}

TEST(DiagnoseText, names_the_device_of_what_leaks_and_of_what_only_seems_to_if_there_are_several) {
  Diagnosis diagnosis;
  diagnosis.verdict = Verdict::leak;
  diagnosis.judged = {0};
  diagnosis.findings.resize(1);
  diagnosis.findings[0].site = {"a.py", 3, "f"};
  diagnosis.lookalikes = {{"N02", 0, {"b.py", 4, "g"}, 512, "once"}};
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}),
              AllOf(HasSubstr("\n  a.py:3 in f\n"), HasSubstr("512 B at b.py:4 in g: once")));
  diagnosis.lookalikes[0].device = 1;
  diagnosis.judged = {0, 1};
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}),
              AllOf(HasSubstr("\n  a.py:3 in f, on device 0\n"),
                    HasSubstr("512 B at b.py:4 in g, on device 1: once")));
}

TEST(DiagnoseText, says_about_how_much_leaks_a_step_where_it_has_no_period) {
  Diagnosis diagnosis;
  diagnosis.verdict = Verdict::leak;
  diagnosis.judged = {0};
  diagnosis.findings.resize(1);
  diagnosis.bytes_per_step = 1178.566;
  diagnosis.onset_step = 3;
  diagnosis.findings[0].bytes_per_step = 1178.566;
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}),
              AllOf(HasSubstr("About 1.2 KiB a step on average are left behind since step 3, "),
                    HasSubstr("\n    about 1.2 KiB a step on average, ")));
  diagnosis.rates = {{0, 1178.566, 0, 3, 0}};
  const auto any = [](double) { return std::string("exactly so much"); };
  EXPECT_EQ(rates_text(diagnosis, any), "about 1.2 KiB a step on average since step 3");
  diagnosis.rates[0].bytes_per_step = 640.4;
  EXPECT_EQ(rates_text(diagnosis, any), "about 640 B a step on average since step 3");
  diagnosis.findings[0].period = 7;
  EXPECT_EQ(rates_text(diagnosis, any), "exactly so much a step since step 3")
      << "one of several that repeat together after no period that was seen";
  diagnosis.period = 7;
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}),
              AllOf(HasSubstr("1,178.566 B a step are left behind since step 3, "),
                    HasSubstr("\n    1,178.566 B a step, ")));
}

TEST(DiagnoseText, says_which_other_devices_are_clean_and_that_what_is_live_is_of_all) {
  Diagnosis diagnosis;
  diagnosis.verdict = Verdict::leak;
  diagnosis.findings.resize(1);
  diagnosis.live_bytes = 512;
  diagnosis.cache.reserved = 1024;
  diagnosis.judged = {0};
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}),
              AllOf(HasSubstr("\nat the dump 512 B are live"), testing::Not(HasSubstr("clean"))));
  diagnosis.judged = {0, 1};
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}),
              AllOf(HasSubstr("\nat the dump, on 2 devices together, 512 B are live"),
                    HasSubstr(" Device 1 is clean.\n")));
  diagnosis.judged = {0, 1, 2};
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}), HasSubstr(" Devices 1 and 2 are clean.\n"));
  diagnosis.verdict = Verdict::undecided;
  diagnosis.judged = {0};
  diagnosis.unjudged = {1};
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}), HasSubstr(" Device 0 is clean.\n"));
}

TEST(DiagnoseText, says_of_memory_without_a_line_what_it_may_be) {
  Diagnosis diagnosis;
  diagnosis.verdict = Verdict::leak;
  diagnosis.findings.resize(1);
  diagnosis.peak_bytes = 512;
  diagnosis.peak_sites = {{{}, 512}};
  const std::string line = "an unknown line\n";
  const auto text = diagnose_text("s", diagnosis, {}, {});
  EXPECT_THAT(text, AllOf(HasSubstr("allocated at an unknown line."), HasSubstr("\n  " + line),
                          HasSubstr("       512 B  " + line),
                          HasSubstr("\nwhat the recording can't tell\n  an unknown line is of a "
                                    "backward pass or a library, or recorded without frames\n")));
  diagnosis.findings[0].site = diagnosis.peak_sites[0].first = {"a.py", 3, "f"};
  EXPECT_THAT(diagnose_text("s", diagnosis, {}, {}), testing::Not(HasSubstr("unknown")));
}

TEST(DiagnoseText, says_each_thing_once_and_one_of_a_thing_in_the_singular) {
  Diagnosis diagnosis;
  diagnosis.limits = {"first", "second"};
  diagnosis.findings.resize(1);
  diagnosis.findings[0].live_allocations = 1;
  const auto text = diagnose_text("run.pickle", diagnosis, {}, {});
  EXPECT_EQ(text.find("first"), text.rfind("first")) << text;
  EXPECT_THAT(text, HasSubstr("what the recording can't tell\n  second\n"));
  EXPECT_THAT(text, HasSubstr("live in 1 allocation\n"));
}

TEST(DiffText, keeps_the_number_of_a_line_and_its_function_on_a_narrow_terminal) {
  const std::vector<SiteChange> changes = {
      {{"/home/me/project/train.py", 120, "train_epoch"}, 147'456, 3, 147'456},
      {{"/home/me/project/cache.py", 7, "keep"}, -512, 1, 1024}};
  const auto text = [&](const Style& style) { return diff_text("a", "b", changes, false, style); };
  const std::string heading = "what lives in b beyond a\n\n";
  const auto whole =
      heading +
      "more memory  more allocations  live memory  line\n"
      "  144.0 KiB                 3    144.0 KiB  /home/me/project/train.py:120 in train_epoch\n"
      "     -512 B                 1      1,024 B  /home/me/project/cache.py:7 in keep\n";
  EXPECT_EQ(text({}), whole);
  EXPECT_EQ(text({.width = 88}), whole) << "just wide enough";
  EXPECT_EQ(text({.width = 80}),
            heading +
                "more memory  more allocations  live memory  line\n"
                "  144.0 KiB                 3    144.0 KiB  .../train.py:120 in train_epoch\n"
                "     -512 B                 1      1,024 B  .../cache.py:7 in keep\n");
  EXPECT_THAT(text({.unicode = true, .width = 80}), HasSubstr("  …/train.py:120 in train_epoch\n"));
  EXPECT_EQ(text({.width = 60}), heading +
                                     "/home/me/project/train.py:120 in train_epoch\n"
                                     "  144.0 KiB more, 3 more allocations, 144.0 KiB live\n"
                                     "/home/me/project/cache.py:7 in keep\n"
                                     "  -512 B more, 1 more allocation, 1,024 B live\n");
  EXPECT_THAT(diff_text("a", "b", changes, true, {.width = 60}),
              HasSubstr("  -512 B more, 1 more allocation, 1,024 B live, on device 0\n"));
}

// Of a file with that many steps, whose levels the allocator has as well.
Replay equal_replay(std::int64_t steps) {
  Replay replay;
  replay.filed.has_steps = true;
  for (std::int64_t level = 0; level <= steps; ++level) {
    replay.filed.levels.push_back({1000 * level, level});
    replay.filed.reserved.push_back(2'097'152);
    replay.got.push_back({replay.filed.levels.back(), 0});
  }
  replay.events = 2 * steps;
  replay.on = "cpu";
  return replay;
}

TEST(ReplayText, groups_digits_and_names_the_device_if_the_file_has_several) {
  auto replay = equal_replay(2);
  replay.has_rest = true;
  EXPECT_EQ(
      replay_text(replay, {.width = 200}),
      "after step  requested  replayed  live  replayed  reserved\n"
      "start             0 B       0 B     0         0   2.0 MiB\n"
      "0             1,000 B   1,000 B     1         1   2.0 MiB\n"
      "dump          2,000 B   2,000 B     2         2   2.0 MiB\n"
      "\n"
      "4 events on cpu: requested bytes and live allocations are equal at every step; reserved "
      "bytes are the file's alone, as memory of the CPU is taken from no segments\n");
  replay.device = 1;
  replay.segments = true;
  EXPECT_THAT(replay_text(replay, {}), HasSubstr("\n4 events of device 1 on cpu: requested"));
}

TEST(ReplayText, tells_memory_in_binary_units_and_what_differs_to_the_byte) {
  auto replay = equal_replay(3);
  for (std::size_t level = 0; level < replay.got.size(); ++level) {
    replay.filed.levels[level].requested = replay.got[level].live.requested = 3 << 20;
  }
  replay.got[2].live.requested += 1;
  replay.got[3].live.requested -= 4096;
  EXPECT_THAT(replay_text(replay, {}),
              AllOf(HasSubstr("\n0             3.0 MiB             3.0 MiB "),
                    HasSubstr(" 3.0 MiB      3.0 MiB (+1 B) "),
                    HasSubstr(" 3.0 MiB  3.0 MiB (-4,096 B) ")));
}

TEST(ReplayText, shows_of_many_steps_both_ends_and_what_differs) {
  auto replay = equal_replay(60'000);
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  auto text = replay_text(replay, {});
  EXPECT_THAT(text, AllOf(HasSubstr("\n8 "), testing::Not(HasSubstr("\n9 ")),
                          HasSubstr("\n...\n59,990 "), HasSubstr("\n59,999 "),
                          HasSubstr("\n59,981 levels left out, equal in both\n120,000 events")));
  EXPECT_LT(lines(text), 30);
  replay.got[500].live.requested += 512;
  text = replay_text(replay, {});
  EXPECT_THAT(text, AllOf(HasSubstr("\n...\n499 "), HasSubstr("\n59,980 levels left out, equal"),
                          HasSubstr("differ at 1 of 60,001 levels")));
  for (std::size_t level = 1000; level < 1030; ++level) ++replay.got[level].live.allocations;
  text = replay_text(replay, {});
  EXPECT_THAT(text, AllOf(HasSubstr("\n1,017 "), testing::Not(HasSubstr("\n1,018 ")),
                          HasSubstr("\n11 more levels left out, not equal\n"),
                          HasSubstr("differ at 31 of 60,001 levels")));
  EXPECT_LT(lines(text), 55);
}

TEST(Movement, tells_the_channel_that_moved_when_requested_did_not) {
  auto recording = made::recording(Twin::leaky, 0);
  EXPECT_FALSE(movement_of(recording, Growth()));
  auto norm = made::tolerant(made::line(0, 1500, 20));
  norm.unit = "1/1000";
  recording.channels["gauge.norm"] = norm;
  EXPECT_FALSE(movement_of(recording, Growth())) << "a tolerant one that nothing predicts";
  const auto growth = Growth().on("gauge.norm", 1500);
  const auto movement = movement_of(recording, growth);
  ASSERT_TRUE(movement);
  EXPECT_EQ(to_text(*movement), "+1.500");
  EXPECT_EQ(predicted_text(growth, recording, movement), "1.500");
  EXPECT_EQ(predicted_text(Growth().unpredicted("gauge.norm"), recording, movement), "stored");
}

TEST(Movement, tells_the_period_of_stairs_and_the_whole_of_a_plateau) {
  const auto text = [](Signature signature) { return to_text({"requested", "B", signature}); };
  EXPECT_EQ(text({Shape::stairs, 4096, 3, 5}), "+4,096 B per 3");
  EXPECT_EQ(text({Shape::sawtooth, 0, 4, 5}), "sawtooth");
  EXPECT_EQ(text({Shape::plateau, 2048, 4, 5}), "plateau +2,048 B");
  const Movement stairs{"requested", "B", {Shape::stairs, 512, 3, 4}};
  EXPECT_EQ(predicted_text(Growth().tensor(512).every(3), made::recording(Twin::leaky, 0), stairs),
            "512");
  EXPECT_EQ(predicted_text(Growth().tensor(512).every(4), made::recording(Twin::leaky, 0), stairs),
            "512 per 4");
  const Movement plateau{"requested", "B", {Shape::plateau, 2048, 4, 4}};
  EXPECT_EQ(predicted_text(Growth().tensor(512).until(8), made::recording(Twin::leaky, 0), plateau),
            "2,048");
}

}  // namespace
}  // namespace leaklab

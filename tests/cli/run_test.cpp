// Commands that run scenarios; they need LibTorch.
#include <gmock/gmock.h>

#include "program.h"

namespace leaklab {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  const auto at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), by);
}

TEST_F(Runs, run_shows_each_channel_and_its_document_holds_the_series) {
  const auto ran = leaklab("run retained_graph_loss_list --env cpu");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(StartsWith("retained_graph_loss_list, leaky twin: 20 steps"),
                             HasSubstr("requested"), HasSubstr("linear +655,364")));
  const auto run = document("run retained_graph_loss_list --env cpu --steps 9 --param batch=2");
  EXPECT_EQ(run["channels"]["requested"]["series"].size(), 9);
  EXPECT_EQ(run["channels"]["requested"]["signature"]["kind"], "linear");
  EXPECT_EQ(run["params"]["batch"], 2);
  EXPECT_EQ(run["event_hash"].get<std::string>().size(), 16);
  EXPECT_EQ(run["environment"]["backend"], "cpu");
}

TEST_F(Runs, run_takes_the_other_twin_one_channel_and_sites) {
  const auto fixed =
      leaklab("run retained_graph_loss_list --env cpu --twin fixed --channel requested");
  EXPECT_THAT(fixed.out,
              AllOf(HasSubstr("fixed twin"), HasSubstr("flat"), Not(HasSubstr("graph_nodes"))));
  EXPECT_THAT(leaklab("run retained_graph_loss_list --env cpu --sites").out,
              HasSubstr("never freed\n  "));
}

TEST_F(Runs, run_refuses_what_is_not_there_and_offers_what_is_near) {
  const auto run = [&](const std::string& more) { return refused("run --env cpu " + more, 2); };
  EXPECT_THAT(run("retained_graph_los_list"), HasSubstr("'retained_graph_loss_list'"));
  EXPECT_THAT(run("retained_graph_loss_list --param bach=2"),
              AllOf(HasSubstr("'bach'"), HasSubstr("'batch'")));
  EXPECT_THAT(run("retained_graph_loss_list --param batch=0"), HasSubstr("outside 1 to 256"));
  EXPECT_THAT(run("retained_graph_loss_list --param batch=many"), HasSubstr("NAME=INTEGER"));
  EXPECT_THAT(run("retained_graph_loss_list --channel gauge.nothing"), HasSubstr("requested"));
  EXPECT_THAT(run("retained_graph_loss_list --steps 5"), HasSubstr("5 steps are too few"));
  EXPECT_THAT(run("retained_graph_loss_list --steps 1"),
              AllOf(HasSubstr("1 step is too few"), HasSubstr("7 or more")));
}

TEST_F(Runs, run_refuses_a_twin_that_a_lookalike_does_not_have) {
  for (const auto& scenario : document("list --kind lookalike")["scenarios"]) {
    const auto lookalike = scenario["id"].get<std::string>();
    EXPECT_THAT(refused("run " + lookalike + " --twin leaky", 2), HasSubstr("no leaky twin"));
  }
}

TEST_F(Runs, run_that_lasts_too_long_says_how_to_give_it_more) {
  const auto error = refused(
      "run retained_graph_loss_list --env cpu --twin fixed --steps 1000000 --time-limit 1", 1);
  EXPECT_THAT(error, AllOf(HasSubstr("time limit of 1 s"), HasSubstr("--time-limit")));
}

TEST_F(Runs, a_machine_without_a_gpu_can_not_run_cuda_and_says_why) {
  if (document("doctor")["environments"]["cuda"]["usable"].get<bool>()) {
    GTEST_SKIP() << "there is a GPU";
  }
  for (const auto* call : {"check", "record", "run retained_graph_loss_list"}) {
    EXPECT_GT(refused(std::string(call) + " --env cuda", 3).size(), 20) << call;
  }
}

TEST_F(Runs, check_passes_against_what_was_recorded_and_is_the_same_twice) {
  record();
  const auto ran = leaklab(check("--strict --json -"));
  EXPECT_EQ(ran.code, 0) << ran.out;
  const auto report = nlohmann::json::parse(ran.out);
  EXPECT_EQ(report["counts"]["PASS"], 2);
  EXPECT_EQ(report["results"][1]["twin"], "leaky");
  EXPECT_EQ(ran.out, leaklab(check("--strict --json -")).out);
  EXPECT_THAT(leaklab(check()).out, HasSubstr("+655,364 B    655,364      0  equal     PASS"));
}

TEST_F(Runs, check_of_a_leak_that_grew_is_the_diagnosis) {
  record();
  // As if one tensor of 512 bytes a step less had been stored.
  const auto text = read_file(baseline());
  write_file(baseline(), replaced(text, "[655364, ", "[654852, "));
  auto ran = leaklab(check());
  if (ran.code != 1) FAIL() << text;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("REGRESSION"), HasSubstr("(baseline)"), HasSubstr("512 B"),
                             HasSubstr("allowed     0"), HasSubstr("from step"),
                             HasSubstr("by operator"), HasSubstr("repeat: leaklab check ")));
}

TEST_F(Runs, check_holds_a_baseline_of_another_libtorch_for_ambiguous) {
  record();
  const auto here = document("doctor")["environments"]["cpu"]["environment"]["libtorch"];
  write_file(baseline(),
             replaced(read_file(baseline()), "\"libtorch\": \"" + here.get<std::string>() + "\"",
                      "\"libtorch\": \"1.0.0\""));
  const auto ran = leaklab(check());
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("AMBIGUOUS"), HasSubstr("1.0.0")));
  EXPECT_EQ(leaklab(check("--strict")).code, 1);
}

TEST_F(Runs, check_refuses_a_baseline_that_it_can_not_read) {
  record();
  const auto text = read_file(baseline());
  for (const auto& broken : {text.substr(0, text.size() / 2), std::string("hello"), std::string(),
                             replaced(text, "\"schema\": 1", "\"schema\": 99")}) {
    write_file(baseline(), broken);
    EXPECT_THAT(refused(check(), 2),
                AllOf(HasSubstr("baselines/cpu/"), HasSubstr("leaklab record")));
  }
}

TEST_F(Runs, check_tells_no_command_that_would_be_skipped_again) {
  const auto ran = leaklab("check --env cpu 'pinned_*' --no-controls");
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("SKIPPED  "), Not(HasSubstr("repeat:"))));
}

TEST_F(Runs, list_tells_where_a_need_holds) {
  const auto listed = leaklab("list").out;
  EXPECT_THAT(listed, AllOf(HasSubstr("\nddp_no_sync_correct  N12 lookalike, needs nccl on cuda\n"),
                            HasSubstr(" leak, needs page-locked memory, so cuda\n")));
}

TEST_F(Runs, check_selects_by_pattern_and_says_when_none_matched) {
  EXPECT_THAT(refused("check --env cpu 'no_such_*'", 2), HasSubstr("zero scenarios matched"));
  EXPECT_THAT(refused("check --env cpu retained_graph_los_list", 2),
              HasSubstr("'retained_graph_loss_list'"));
  const auto report = document("check --env cpu 'retained_graph_loss_list_a*' --no-controls");
  EXPECT_EQ(report["results"].size(), 2);
}

TEST_F(Runs, what_can_not_be_stored_is_told_and_what_was_there_stays) {
  record();
  const auto before = read_file(baseline());
  auto ran = shell(
      "ulimit -f 0; $leaklab record retained_graph_loss_list --env cpu "
      "--baselines baselines >/dev/null 2>/dev/null");
  EXPECT_EQ(ran.code, 4);
  EXPECT_EQ(read_file(baseline()), before);
  write_file(folder_ / "taken", "a file");
  ran = leaklab("record retained_graph_loss_list --env cpu --baselines taken");
  EXPECT_EQ(ran.code, 2) << "no file can be there";
  EXPECT_THAT(ran.out, HasSubstr("can't write taken/cpu/"));
  EXPECT_THAT(ran.out, HasSubstr("1 failed"));
}

TEST_F(Runs, the_table_of_the_readme_is_what_check_prints) {
  const auto ran = leaklab("check --env cpu");
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(read_file(LEAKLAB_SOURCE_DIR "/README.md").find("```\n" + ran.out + "```"),
            std::string::npos)
      << ran.out;
}

}  // namespace
}  // namespace leaklab

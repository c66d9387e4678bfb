// check() and record() over an engine that is told what each run measures.
#include "leaklab/suite.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "leaklab/error.h"
#include "leaklab/file.h"
#include "made.h"

namespace leaklab {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

using Behaviour = std::function<Recording(const RunConfig&)>;

class FakeEngine final : public Engine {
 public:
  std::map<std::string, Behaviour> behaviours;
  std::string libtorch = "2.11.0";
  bool has_gpu = false;

 protected:
  Environment do_describe(const std::string& backend) override {
    auto environment = made::cpu();
    environment.libtorch = libtorch;
    if (backend == "cpu") return environment;
    if (!has_gpu) throw UnavailableError("no GPU is visible; plug one in");
    environment.backend = "cuda";
    environment.device = "NVIDIA H200";
    environment.devices = 4;
    return environment;
  }
  Recording do_execute(const Scenario& scenario, const RunConfig& config) override {
    auto recording = behaviours.at(scenario.id)(config);
    recording.scenario = scenario.id;
    recording.environment = do_describe(config.backend);
    if (!config.sites) recording.sites.clear();
    return recording;
  }
  std::vector<ProbeStatus> do_probe_statuses(const std::string&) override { return {}; }
  std::vector<ReplayedLevel> do_replay(const History&, const std::string&) override { return {}; }
};

Scenario leak(const std::string& id) {
  Scenario scenario;
  scenario.id = id;
  scenario.file = id + ".cpp";
  scenario.taxonomy = "L02";
  scenario.summary = "a made leak";
  scenario.fix = "keep nothing";
  scenario.expect = [](const Setting&) { return Growth().tensor(512); };
  return scenario;
}

Scenario planted_control() {
  auto scenario = leak("control_made");
  scenario.taxonomy = "C01";
  return scenario;
}

// What the leaky twin gains; the fixed one gains nothing.
Behaviour gains(std::int64_t bytes) {
  return [bytes](const RunConfig& config) {
    return made::recording(config.twin, config.twin == Twin::leaky ? bytes : 0);
  };
}

class Suite : public testing::Test {
 protected:
  void SetUp() override {
    auto folder = (std::filesystem::temp_directory_path() / "leaklab_suite_XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
    options_.env = "cpu";
    options_.baselines = folder_ / "baselines";
    options_.time_limit = std::chrono::seconds(60);
    // A registered control runs whatever was selected.
    static const Registration registered(planted_control());
    engine_.behaviours["control_made"] = gains(512);
    set_engine(&engine_);
  }
  void TearDown() override {
    set_engine(nullptr);
    fs::remove_all(folder_);
  }

  // Adds a scenario with what its runs measure.
  const Scenario* add(Scenario scenario, Behaviour behaviour) {
    engine_.behaviours[scenario.id] = std::move(behaviour);
    scenarios_.push_back(std::make_unique<Scenario>(std::move(scenario)));
    return scenarios_.back().get();
  }
  std::vector<const Scenario*> all() const {
    std::vector<const Scenario*> pointers;
    for (const auto& scenario : scenarios_) pointers.push_back(scenario.get());
    return pointers;
  }
  CheckReport checked() const { return check(all(), options_); }
  std::vector<RecordResult> recorded() const { return record(all(), options_, "leaklab record"); }

  FakeEngine engine_;
  SuiteOptions options_;
  fs::path folder_;
  std::vector<std::unique_ptr<Scenario>> scenarios_;
};

const CheckResult& of(const CheckReport& report, const std::string& id, Twin twin) {
  const auto found = std::ranges::find_if(
      report.results, [&](const auto& result) { return result.id == id && result.twin == twin; });
  EXPECT_NE(found, report.results.end()) << id;
  return *found;
}

auto has(Outcome outcome) { return Field("outcome", &CheckResult::outcome, outcome); }

TEST_F(Suite, what_was_recorded_passes) {
  add(leak("a"), gains(512));
  const auto results = recorded();
  ASSERT_THAT(results, SizeIs(1));
  EXPECT_TRUE(results[0].written) << results[0].reason;
  EXPECT_EQ(results[0].file, options_.baselines / "cpu" / "a.json");
  const auto report = checked();
  EXPECT_THAT(report.results, AllOf(SizeIs(2), Each(has(Outcome::pass))));
  EXPECT_EQ(report.exit_code(true), Exit::ok);
  EXPECT_EQ(load_baseline(results[0].file)->command, "leaklab record a --env cpu");
}

TEST_F(Suite, without_a_baseline_the_prediction_judges_and_strictness_alone_fails) {
  add(leak("a"), gains(512));
  const auto report = checked();
  EXPECT_THAT(report.results, Each(has(Outcome::missing)));
  EXPECT_EQ(report.exit_code(), Exit::ok);
  EXPECT_EQ(report.exit_code(true), Exit::finding);
}

TEST_F(Suite, half_a_kibibyte_more_per_step_is_a_regression_that_names_channel_bytes_and_site) {
  add(leak("a"), gains(512));
  recorded();
  engine_.behaviours["a"] = [](const RunConfig& config) {
    auto recording = gains(1024)(config);
    recording.sites = {{"aten::linear > aten::addmm", 8192, 16}};
    return recording;
  };
  const auto report = checked();
  const auto& leaky = of(report, "a", Twin::leaky);
  EXPECT_EQ(leaky.outcome, Outcome::regression);
  EXPECT_THAT(leaky.reason, AllOf(HasSubstr("512"), HasSubstr("too much")));
  for (const auto* source : {"oracle", "baseline"}) {
    EXPECT_THAT(
        leaky.differences,
        Contains(AllOf(Field(&Difference::channel, "requested"), Field(&Difference::source, source),
                       Field(&Difference::first_step, 4),
                       Field(&Difference::direction, Difference::Direction::more))));
  }
  EXPECT_THAT(leaky.sites, ElementsAre(Field(&Site::where, "aten::linear > aten::addmm")));
  EXPECT_EQ(leaky.repeat, "leaklab check a --env cpu");
  EXPECT_EQ(of(report, "a", Twin::fixed).outcome, Outcome::pass);
  EXPECT_THAT(of(report, "a", Twin::fixed).sites, IsEmpty());
  EXPECT_EQ(report.exit_code(), Exit::finding);
}

TEST_F(Suite, less_growth_is_a_win_that_fails) {
  add(leak("a"), gains(512));
  recorded();
  engine_.behaviours["a"] = gains(256);
  const auto report = checked();
  EXPECT_EQ(of(report, "a", Twin::leaky).outcome, Outcome::win);
  EXPECT_EQ(report.exit_code(), Exit::finding);
}

TEST_F(Suite, a_baseline_of_another_libtorch_is_ambiguous_and_the_prediction_still_judges) {
  add(leak("a"), gains(512));
  recorded();
  engine_.libtorch = "2.12.0";
  const auto report = checked();
  EXPECT_THAT(report.results, Each(has(Outcome::ambiguous)));
  EXPECT_THAT(report.results[0].reason, AllOf(HasSubstr("2.11.0"), HasSubstr("2.12.0")));
  EXPECT_EQ(report.exit_code(), Exit::ok);
  engine_.behaviours["a"] = gains(1024);
  EXPECT_EQ(of(checked(), "a", Twin::leaky).outcome, Outcome::regression);
}

TEST_F(Suite, what_crashes_hangs_floods_or_runs_out_of_memory_takes_nothing_with_it) {
  options_.time_limit = std::chrono::milliseconds(1500);
  options_.jobs = 2;
  const auto in_leaky = [](auto disaster) {
    return [disaster](const RunConfig& config) {
      if (config.twin == Twin::leaky) disaster();
      return gains(512)(config);
    };
  };
  add(leak("crash"), in_leaky([] {
        fmt::print("last words\n");
        std::raise(SIGSEGV);
      }));
  add(leak("exit"), in_leaky([] { ::_exit(0); }));
  add(leak("flood"), in_leaky([] {
        for (int i = 0; i < 50'000; ++i) fmt::print("{:100}\n", i);
      }));
  add(leak("hang"), in_leaky([] {
        for (;;) ::pause();
      }));
  add(leak("oom"), in_leaky([] { throw OutOfMemory("CUDA out of memory"); }));
  add(leak("throw"), in_leaky([] { throw std::runtime_error("shapes do not match"); }));
  add(leak("well"), gains(512));
  const auto report = checked();
  const auto outcome = [&](const char* id) { return of(report, id, Twin::leaky).outcome; };
  EXPECT_EQ(outcome("crash"), Outcome::crashed);
  EXPECT_EQ(outcome("exit"), Outcome::crashed);
  EXPECT_EQ(outcome("flood"), Outcome::missing);
  EXPECT_EQ(outcome("hang"), Outcome::timeout);
  EXPECT_EQ(outcome("oom"), Outcome::oom);
  EXPECT_EQ(outcome("throw"), Outcome::crashed);
  EXPECT_EQ(outcome("well"), Outcome::missing);
  EXPECT_THAT(of(report, "crash", Twin::leaky).reason, HasSubstr("SIGSEGV"));
  EXPECT_EQ(of(report, "crash", Twin::leaky).log, "last words\n");
  EXPECT_EQ(of(report, "oom", Twin::leaky).reason, "CUDA out of memory");
  EXPECT_THAT(of(report, "throw", Twin::leaky).reason, HasSubstr("shapes do not match"));
  for (const auto& scenario : scenarios_) {
    EXPECT_EQ(of(report, scenario->id, Twin::fixed).outcome, Outcome::missing) << scenario->id;
  }
  EXPECT_EQ(report.exit_code(), Exit::finding);
}

TEST_F(Suite, each_outcome_that_fails_a_check_gives_exit_code_1) {
  for (const auto outcome : {Outcome::regression, Outcome::win, Outcome::invalid, Outcome::crashed,
                             Outcome::timeout, Outcome::oom}) {
    CheckReport report;
    report.results.resize(2);
    report.results[1].outcome = outcome;
    EXPECT_EQ(report.exit_code(), Exit::finding) << to_string(outcome);
  }
}

TEST_F(Suite, what_can_not_run_here_is_skipped_with_its_reason_and_never_run) {
  auto needs_cuda = leak("a");
  needs_cuda.needs = {"cuda"};
  add(needs_cuda, [](const RunConfig&) -> Recording { std::abort(); });
  const auto report = checked();
  EXPECT_THAT(report.results, AllOf(SizeIs(2), Each(has(Outcome::skipped))));
  EXPECT_EQ(report.results[0].reason, "needs CUDA");
  EXPECT_EQ(report.exit_code(), Exit::nothing_ran);
  add(leak("b"), gains(512));
  EXPECT_EQ(checked().exit_code(), Exit::ok);
}

TEST_F(Suite, a_scenario_that_leaves_with_a_reason_is_skipped) {
  add(leak("a"), [](const RunConfig&) {
    Recording recording;
    recording.skipped = "the GPU has no peer";
    return recording;
  });
  const auto report = checked();
  EXPECT_THAT(report.results, Each(has(Outcome::skipped)));
  EXPECT_EQ(report.results[0].reason, "the GPU has no peer");
  EXPECT_EQ(report.exit_code(), Exit::nothing_ran);
}

TEST_F(Suite, where_the_planted_leak_is_missed_every_result_is_invalid_and_names_the_control) {
  add(leak("a"), gains(512));
  add(leak("b"), gains(0));
  recorded();
  engine_.behaviours["control_made"] = gains(0);
  const auto report = checked();
  EXPECT_THAT(report.results, SizeIs(5)) << "the run of the control that failed is shown unasked";
  for (const auto* id : {"a", "b"}) {
    EXPECT_EQ(of(report, id, Twin::leaky).outcome, Outcome::invalid);
    EXPECT_THAT(of(report, id, Twin::leaky).reason, HasSubstr("'control_made'"));
  }
  EXPECT_THAT(of(report, "b", Twin::leaky).reason, HasSubstr("by itself"));
  EXPECT_EQ(report.exit_code(), Exit::finding);
  EXPECT_EQ(report.controls, 1) << "its fixed twin";
}

TEST_F(Suite, a_control_that_crashes_invalidates_too) {
  add(leak("a"), gains(512));
  engine_.behaviours["control_made"] = [](const RunConfig&) -> Recording { std::abort(); };
  EXPECT_EQ(of(checked(), "a", Twin::fixed).outcome, Outcome::invalid);
}

TEST_F(Suite, a_control_that_meets_its_prediction_holds_whatever_its_baseline_says) {
  add(leak("a"), gains(512));
  auto control = planted_control();
  const auto* pointer = add(control, [](const RunConfig& config) {
    auto recording = gains(512)(config);
    recording.event_hash = 1;
    return recording;
  });
  recorded();
  engine_.behaviours["control_made"] = gains(512);
  const auto report = checked();
  EXPECT_EQ(of(report, "a", Twin::leaky).outcome, Outcome::pass);
  EXPECT_EQ(of(report, pointer->id, Twin::leaky).outcome, Outcome::regression);
}

TEST_F(Suite, controls_that_hold_are_counted_and_can_be_left_out) {
  add(leak("a"), gains(512));
  EXPECT_EQ(checked().controls, 2);
  options_.controls = false;
  engine_.behaviours["control_made"] = gains(0);
  const auto report = checked();
  EXPECT_EQ(report.controls, 0);
  EXPECT_THAT(report.results, Each(has(Outcome::missing)));
}

TEST_F(Suite, results_are_sorted_by_id_with_the_fixed_twin_first) {
  options_.jobs = 3;
  for (const auto* id : {"c", "a", "b", "a"}) add(leak(id), gains(512));
  std::vector<std::string> order;
  for (const auto& result : checked().results) {
    order.push_back(fmt::format("{} {}", result.id, to_string(result.twin)));
  }
  EXPECT_THAT(order, ElementsAre("a fixed", "a leaky", "b fixed", "b leaky", "c fixed", "c leaky"));
}

TEST_F(Suite, the_document_has_the_promised_keys_and_is_the_same_twice) {
  add(leak("a"), gains(1024));
  const auto document = to_json(checked());
  EXPECT_EQ(document["environment"]["backend"], "cpu");
  EXPECT_EQ(document["counts"]["MISSING"], 1);
  EXPECT_EQ(document["counts"]["REGRESSION"], 1);
  EXPECT_EQ(document["counts"]["PASS"], 0);
  const auto& leaky = document["results"][1];
  EXPECT_EQ(leaky["id"], "a");
  EXPECT_EQ(leaky["twin"], "leaky");
  EXPECT_EQ(leaky["outcome"], "REGRESSION");
  EXPECT_EQ(leaky["differences"].size(), 2);
  for (const auto* key : {"reason", "repeat", "sites"}) EXPECT_TRUE(leaky.contains(key)) << key;
  EXPECT_EQ(to_text(document), to_text(to_json(checked())));
}

TEST_F(Suite, progress_ends_with_all_that_was_to_do) {
  add(leak("a"), gains(1024));
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  options_.progress = [&](std::size_t done, std::size_t all, const std::string&) {
    seen.emplace_back(done, all);
  };
  checked();
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(seen.back(), std::pair(std::size_t{5}, std::size_t{5}))
      << "two runs, two of the control, one again for its sites";
}

TEST_F(Suite, a_baseline_that_is_cut_off_stops_the_check_before_anything_runs) {
  const auto* scenario = add(leak("a"), gains(512));
  recorded();
  const auto path = baseline_path(options_.baselines, made::cpu(), "a");
  write_file(path, read_file(path).substr(0, 100));
  const auto trace = folder_ / "ran";
  engine_.behaviours["a"] = [trace](const RunConfig& config) {
    write_file(trace, "");
    return gains(512)(config);
  };
  EXPECT_THAT([&] { check({scenario}, options_); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr(path.string()), HasSubstr("leaklab record"))));
  EXPECT_FALSE(fs::exists(trace));
}

TEST_F(Suite, wrong_calls_are_told_in_a_sentence_before_anything_runs) {
  auto scenario = leak("a");
  scenario.params = {{"batch", 8, 1, 64, "samples"}};
  add(scenario, gains(512));
  options_.steps = 6;
  EXPECT_THAT([&] { checked(); }, testing::ThrowsMessage<UsageError>(HasSubstr("7 or more")));
  options_.steps = 0;
  options_.params = {{"batch", 65}};
  EXPECT_THAT([&] { checked(); }, testing::ThrowsMessage<UsageError>(HasSubstr("1 to 64")));
  options_.params = {{"bach", 8}};
  EXPECT_THAT([&] { checked(); }, testing::ThrowsMessage<UsageError>(HasSubstr("'batch'")));
  options_.params = {};
  options_.env = "gpu";
  EXPECT_THAT([&] { checked(); }, testing::ThrowsMessage<UsageError>(HasSubstr("'gpu'")));
}

TEST_F(Suite, an_environment_that_can_not_be_used_is_told_by_its_own_sentence) {
  EXPECT_THAT([] { resolve_environment("cuda"); },
              testing::ThrowsMessage<UnavailableError>("no GPU is visible; plug one in"));
  EXPECT_EQ(resolve_environment("auto").backend, "cpu");
  engine_.has_gpu = true;
  EXPECT_EQ(resolve_environment("auto").backend, "cuda");
  set_engine(nullptr);
  EXPECT_THAT([] { resolve_environment("auto"); },
              testing::ThrowsMessage<UnavailableError>(HasSubstr("no LibTorch")));
}

TEST_F(Suite, ranks_are_the_gpus_there_and_two_on_the_cpu) {
  const auto scenario = leak("a");
  Environment environment = made::cpu();
  EXPECT_EQ(make_config(scenario, environment, Twin::leaky, {}).setting.ranks(), 2);
  environment.backend = "cuda";
  environment.devices = 4;
  const auto config = make_config(scenario, environment, Twin::leaky, {});
  EXPECT_EQ(config.setting.ranks(), 4);
  EXPECT_TRUE(config.setting.on_cuda());
  EXPECT_EQ(config.steps, 20);
}

TEST_F(Suite, needs_are_held_against_the_environment) {
  auto scenario = leak("a");
  Environment gpu = made::cpu();
  gpu.backend = "cuda";
  gpu.devices = 2;
  scenario.needs = {"nccl"};
  EXPECT_EQ(why_skipped(scenario, made::cpu()), "");
  scenario.needs = {"pinned"};
  EXPECT_THAT(why_skipped(scenario, made::cpu()), HasSubstr("page-locked"));
  EXPECT_EQ(why_skipped(scenario, gpu), "");
  scenario.needs = {"gpus:4"};
  EXPECT_EQ(why_skipped(scenario, gpu), "needs 4 GPUs, there are 2");
}

TEST_F(Suite, one_run_in_a_process_of_its_own_gives_its_recording) {
  const auto* scenario = add(leak("a"), gains(512));
  const auto config = make_config(*scenario, made::cpu(), Twin::leaky, options_);
  const auto child = run_once(*scenario, config, std::chrono::seconds(60));
  ASSERT_EQ(child.ending, Ending::finished) << child.detail;
  EXPECT_EQ(nlohmann::json::parse(child.payload)["channels"]["requested"]["signature"]["rate"],
            512);
}

TEST_F(Suite, two_runs_that_differ_make_no_baseline_and_the_channel_is_named) {
  add(leak("a"), [](const RunConfig& config) {
    auto recording = gains(512)(config);
    recording.channels["graph_nodes"].values.back() = ::getpid();
    return recording;
  });
  const auto results = recorded();
  EXPECT_FALSE(results[0].written);
  EXPECT_THAT(results[0].reason, AllOf(HasSubstr("two runs"), HasSubstr("graph_nodes")));
  EXPECT_FALSE(fs::exists(options_.baselines));
}

TEST_F(Suite, another_event_hash_in_each_run_is_not_recorded) {
  add(leak("a"), [](const RunConfig& config) {
    auto recording = gains(512)(config);
    recording.event_hash = static_cast<std::uint64_t>(::getpid());
    return recording;
  });
  const auto results = recorded();
  EXPECT_FALSE(results[0].written);
  EXPECT_THAT(results[0].reason, HasSubstr("event_hash"));
}

TEST_F(Suite, what_misses_its_prediction_or_can_not_run_is_not_recorded) {
  add(leak("a"), gains(1024));
  add(leak("b"), [](const RunConfig&) -> Recording { std::abort(); });
  auto needs_cuda = leak("c");
  needs_cuda.needs = {"cuda"};
  add(needs_cuda, gains(512));
  const auto results = recorded();
  ASSERT_THAT(results, SizeIs(3));
  EXPECT_THAT(results[0].reason, AllOf(StartsWith("a (leaky)"), HasSubstr("oracle")));
  EXPECT_THAT(results[1].reason, AllOf(HasSubstr("CRASHED"), HasSubstr("SIGABRT")));
  EXPECT_TRUE(results[2].skipped);
  EXPECT_EQ(results[2].reason, "needs CUDA");
  EXPECT_FALSE(fs::exists(options_.baselines));
}

TEST_F(Suite, a_folder_that_can_not_be_written_is_named) {
  add(leak("a"), gains(512));
  write_file(folder_ / "taken", "a file");
  options_.baselines = folder_ / "taken";
  const auto results = recorded();
  EXPECT_TRUE(results[0].failed);
  EXPECT_EQ(results[0].code, Exit::usage) << "no file can be there";
  EXPECT_THAT(results[0].reason, HasSubstr("taken"));
}

}  // namespace
}  // namespace leaklab

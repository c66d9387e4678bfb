#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "leaklab/baseline.h"
#include "leaklab/error.h"
#include "leaklab/file.h"
#include "leaklab/suite.h"
#include "made.h"

namespace leaklab {

// How GoogleTest shows one that it did not expect.
static void PrintTo(const Difference& difference, std::ostream* out) {
  *out << to_string(difference);
}

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Direction = Difference::Direction;

auto on(const std::string& channel) { return Field(&Difference::channel, channel); }

Baseline stored(const Recording& fixed, const Recording& leaky) {
  Baseline baseline;
  baseline.scenario = fixed.scenario;
  baseline.environment = fixed.environment;
  baseline.command = "leaklab record made";
  baseline.steps = fixed.steps;
  baseline.warmup = fixed.warmup;
  baseline.twins[Twin::fixed] = baseline_of(fixed);
  baseline.twins[Twin::leaky] = baseline_of(leaky);
  return baseline;
}

Scenario made_scenario(std::int64_t bytes) {
  Scenario scenario;
  scenario.id = "made";
  scenario.taxonomy = "L02";
  scenario.expect = [bytes](const Setting&) { return Growth().tensor(bytes); };
  return scenario;
}

CheckResult judged(const Recording& recording, const std::optional<Baseline>& baseline,
                   std::int64_t expected = 512) {
  RunConfig config;
  config.twin = recording.twin;
  config.steps = recording.steps;
  config.warmup = recording.warmup;
  return judge(made_scenario(expected), config, recording, baseline);
}

const Recording fixed = made::recording(Twin::fixed, 0);
const Recording leaky = made::recording(Twin::leaky, 512);

TEST(Compare, the_same_recording_has_no_difference_from_its_own_baseline) {
  EXPECT_THAT(compare(baseline_of(leaky), leaky), IsEmpty());
}

TEST(Compare, a_surplus_names_the_channel_the_bytes_and_the_first_step) {
  auto more = leaky;
  for (std::size_t step = 9; step < 20; ++step) {
    more.channels["requested"].values[step] += 512 * (static_cast<std::int64_t>(step) - 8);
  }
  const auto differences = compare(baseline_of(leaky), more);
  ASSERT_THAT(differences, ElementsAre(on("requested")));
  EXPECT_EQ(differences[0].first_step, 9);
  EXPECT_EQ(differences[0].direction, Direction::more);
  EXPECT_THAT(differences[0].got, HasSubstr("+1024 B"));
}

TEST(Compare, another_level_after_the_same_growth_is_told_as_a_level) {
  auto shifted = leaky;
  for (auto& value : shifted.channels["requested"].values) value += 64;
  const auto differences = compare(baseline_of(leaky), shifted);
  ASSERT_THAT(differences, ElementsAre(on("requested")));
  EXPECT_THAT(differences[0].expected, HasSubstr("after the warm-up"));
}

TEST(Compare, what_happens_inside_the_warm_up_is_not_judged) {
  auto other = leaky;
  other.channels["requested"].values[1] += 4096;
  EXPECT_THAT(compare(baseline_of(leaky), other), IsEmpty());
}

TEST(Compare, memory_held_after_the_caches_were_emptied_is_a_difference) {
  auto held = leaky;
  held.channels["requested"].settled = 512;
  EXPECT_THAT(compare(baseline_of(leaky), held),
              ElementsAre(AllOf(on("requested"),
                                Field(&Difference::expected, HasSubstr("caches were emptied")))));
}

TEST(Compare, a_tolerant_channel_may_move_within_its_tolerance_and_no_further) {
  auto noisy = leaky;
  noisy.channels["host_rss"].values.back() += 15 * 1024 * 1024;
  EXPECT_THAT(compare(baseline_of(leaky), noisy), IsEmpty());
  noisy.channels["host_rss"].values.back() += 2 * 1024 * 1024;
  EXPECT_THAT(compare(baseline_of(leaky), noisy), ElementsAre(on("host_rss")));
}

TEST(Compare, a_channel_that_is_absent_now_but_was_measured_is_a_difference) {
  auto blind = leaky;
  blind.channels["graph_nodes"] = made::absent("no engine");
  EXPECT_THAT(compare(baseline_of(leaky), blind), ElementsAre(on("graph_nodes")));
}

TEST(Compare, a_channel_that_is_measured_now_but_was_absent_is_a_difference) {
  auto blind = baseline_of(leaky);
  blind.channels["requested"] = {};
  blind.channels["requested"].absent = "no allocator";
  EXPECT_THAT(compare(blind, leaky), ElementsAre(on("requested")));
}

TEST(Compare, a_channel_that_was_stored_as_tolerant_can_not_be_compared_as_exact) {
  auto stored = baseline_of(leaky);
  stored.channels["requested"].exact = false;
  stored.channels["requested"].values.clear();
  EXPECT_THAT(compare(stored, leaky), ElementsAre(on("requested")));
}

TEST(Compare, two_recordings_differ_by_what_happened_inside_the_warm_up_or_before_it) {
  auto other = leaky;
  other.channels["graph_nodes"].values[1] += 1;
  const auto differences = compare(leaky, other);
  ASSERT_THAT(differences, ElementsAre(on("graph_nodes")));
  EXPECT_EQ(differences[0].first_step, 1);
  auto shifted = leaky;
  shifted.channels["requested"].start += 512;
  EXPECT_THAT(compare(leaky, shifted), ElementsAre(on("requested")));
  EXPECT_THAT(compare(leaky, leaky), IsEmpty());
}

TEST(Compare, another_order_of_steps_shows_in_the_event_hash_alone) {
  auto reordered = leaky;
  reordered.event_hash = 0x9999;
  EXPECT_THAT(compare(baseline_of(leaky), reordered), ElementsAre(on("event_hash")));
}

TEST(Compare, a_channel_that_lies_is_never_judged) {
  auto first = leaky;
  first.channels["pinned_active"] = made::tolerant(made::line(0, 2 << 20, 20));
  first.channels["pinned_active"].trusted = false;
  auto second = first;
  second.channels["pinned_active"].values = made::line(0, 0, 20);
  EXPECT_THAT(compare(baseline_of(first), second), IsEmpty());
}

TEST(Oracle, the_predicted_growth_is_met_to_the_byte) {
  EXPECT_THAT(compare(Growth().tensor(512), leaky), IsEmpty());
  EXPECT_THAT(compare(Growth().tensor(511), leaky), ElementsAre(on("peak"), on("requested")));
}

TEST(Oracle, a_channel_that_is_not_named_must_not_move) {
  auto nodes = leaky;
  nodes.channels["graph_nodes"].values = made::line(7, 1, 20);
  EXPECT_THAT(compare(Growth().tensor(512), nodes), ElementsAre(on("graph_nodes")));
}

TEST(Oracle, growth_once_a_period_may_fall_on_any_step_of_the_period) {
  auto stairs = leaky;
  for (auto* name : {"requested", "peak", "live_allocations"}) {
    auto& values = stairs.channels[name].values;
    const auto gain = std::string(name) == "live_allocations" ? 1 : 300;
    for (std::size_t step = 0; step < 20; ++step) {
      values[step] = 100 + gain * static_cast<std::int64_t>((step + 1) / 3);
    }
  }
  EXPECT_THAT(compare(Growth().tensor(300).every(3), stairs), IsEmpty());
  EXPECT_THAT(compare(Growth().tensor(300).every(4), stairs), testing::Not(IsEmpty()));
}

TEST(Oracle, where_nothing_leaks_tolerant_channels_may_not_grow_either) {
  auto growing = fixed;
  growing.channels.at("host_rss").values.back() += 100 << 20;
  EXPECT_THAT(compare(Growth(), growing), ElementsAre(on("host_rss")));
  growing.channels.at("host_rss").values.back() -= 200 << 20;
  EXPECT_THAT(compare(Growth(), growing), IsEmpty());
}

TEST(Oracle, a_period_that_the_run_cuts_off_may_hold_a_rise_or_not) {
  constexpr std::int64_t rise = 100 << 20;
  const auto predicted = Growth().on("host_rss", rise).every(5);  // 16 judged steps: 3 or 4 times
  for (const auto rises : {2, 3, 4, 5}) {
    auto stairs = made::recording(Twin::leaky, 0);
    auto& values = stairs.channels.at("host_rss").values;
    std::ranges::fill(values, 0);
    values.back() = rise * rises;
    EXPECT_EQ(compare(predicted, stairs).empty(), rises == 3 || rises == 4) << rises;
  }
}

TEST(Oracle, growth_stops_at_the_stated_step) {
  auto bounded = leaky;
  for (auto* name : {"requested", "peak", "live_allocations"}) {
    auto& values = bounded.channels[name].values;
    for (std::size_t step = 10; step < 20; ++step) values[step] = values[9];
  }
  EXPECT_THAT(compare(Growth().tensor(512).until(10), bounded), IsEmpty());
  EXPECT_THAT(compare(Growth().tensor(512).until(11), bounded), SizeIs(3));
}

TEST(Oracle, a_leak_that_stays_after_its_scope_must_have_been_announced) {
  auto outliving = leaky;
  for (auto* name : {"requested", "live_allocations"}) {
    outliving.channels[name].settled = outliving.channels[name].values.back();
  }
  EXPECT_THAT(compare(Growth().tensor(512), outliving),
              ElementsAre(on("live_allocations"), on("requested")));
  EXPECT_THAT(compare(Growth().tensor(512).outlives_scope(), outliving), IsEmpty());
  EXPECT_THAT(compare(Growth().tensor(512).outlives_scope(), leaky), SizeIs(2));
}

TEST(Judge, a_run_that_meets_oracle_and_baseline_passes) {
  const auto baseline = stored(fixed, leaky);
  EXPECT_EQ(judged(leaky, baseline).outcome, Outcome::pass);
  EXPECT_EQ(judged(fixed, baseline).outcome, Outcome::pass);
}

TEST(Judge, half_a_kibibyte_more_per_step_is_a_regression_that_says_so) {
  const auto result = judged(made::recording(Twin::leaky, 1024), stored(fixed, leaky));
  EXPECT_EQ(result.outcome, Outcome::regression);
  EXPECT_THAT(result.differences,
              testing::Contains(AllOf(on("requested"), Field(&Difference::source, "baseline"),
                                      Field(&Difference::got, HasSubstr("512 B more")))));
}

TEST(Judge, less_growth_is_a_win) {
  EXPECT_EQ(judged(made::recording(Twin::leaky, 256), stored(fixed, leaky)).outcome, Outcome::win);
}

TEST(Judge, a_leaky_twin_that_does_not_leak_is_invalid) {
  EXPECT_EQ(judged(made::recording(Twin::leaky, 0), stored(fixed, leaky)).outcome,
            Outcome::invalid);
}

TEST(Judge, a_fixed_twin_that_grows_is_a_regression) {
  EXPECT_EQ(judged(made::recording(Twin::fixed, 8), stored(fixed, leaky)).outcome,
            Outcome::regression);
}

TEST(Judge, no_baseline_leaves_the_oracle_as_the_only_judge) {
  EXPECT_EQ(judged(leaky, std::nullopt).outcome, Outcome::missing);
  EXPECT_EQ(judged(made::recording(Twin::leaky, 1024), std::nullopt).outcome, Outcome::regression);
}

TEST(Judge, a_baseline_of_another_libtorch_is_ambiguous_and_the_oracle_still_judges) {
  auto baseline = stored(fixed, leaky);
  baseline.environment.libtorch = "2.9.0";
  const auto result = judged(leaky, baseline);
  EXPECT_EQ(result.outcome, Outcome::ambiguous);
  EXPECT_THAT(result.reason, AllOf(HasSubstr("2.9.0"), HasSubstr("2.11.0")));
  EXPECT_EQ(judged(made::recording(Twin::leaky, 1024), baseline).outcome, Outcome::regression);
}

TEST(Judge, ranks_are_gpus_so_another_number_of_them_is_another_environment) {
  auto scenario = made_scenario(512);
  scenario.needs = {"nccl"};
  auto baseline = stored(fixed, leaky);
  baseline.environment.devices = 2;
  RunConfig config;
  config.twin = Twin::leaky;
  config.steps = leaky.steps;
  config.warmup = leaky.warmup;
  EXPECT_EQ(judge(scenario, config, leaky, baseline).outcome, Outcome::ambiguous);
  scenario.needs = {};
  EXPECT_EQ(judge(scenario, config, leaky, baseline).outcome, Outcome::pass);
}

TEST(Judge, a_baseline_of_other_steps_is_no_baseline) {
  auto baseline = stored(fixed, leaky);
  baseline.steps = 30;
  EXPECT_EQ(judged(leaky, baseline).outcome, Outcome::missing);
}

TEST(BaselineFile, what_was_written_is_read_back_the_same) {
  const auto baseline = stored(fixed, leaky);
  const auto text = to_text(to_json(baseline));
  EXPECT_EQ(to_text(to_json(baseline_from_text(text, "made.json"))), text);
}

TEST(BaselineFile, gains_are_run_length_coded) {
  EXPECT_EQ(to_json(stored(fixed, leaky))["twins"]["leaky"]["channels"]["requested"]["gains"],
            nlohmann::json::parse("[[1512,1],[512,19]]"));
}

std::string failure(const std::string& text) {
  try {
    baseline_from_text(text, "baselines/cpu/made.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing failed";
}

TEST(BaselineFile, a_file_that_is_cut_off_anywhere_says_where) {
  const auto text = to_text(to_json(stored(fixed, leaky)));
  for (std::size_t length = 0; length + 2 < text.size(); length += 37) {
    EXPECT_THAT(failure(text.substr(0, length)),
                AllOf(HasSubstr("baselines/cpu/made.json is cut off"), HasSubstr("record")));
  }
}

TEST(BaselineFile, a_text_that_is_no_json_says_at_which_of_its_bytes) {
  EXPECT_THAT(failure("{]"), HasSubstr("baselines/cpu/made.json is not JSON at byte 2 of 2;"));
  EXPECT_THAT(failure("{}"), HasSubstr("has no key 'schema'"));
  EXPECT_THAT(failure("{ "), HasSubstr("is cut off after 2 bytes;"));
  EXPECT_THAT(failure(""), HasSubstr("is cut off after 0 bytes;"));
}

TEST(BaselineFile, another_schema_version_is_refused) {
  auto document = to_json(stored(fixed, leaky));
  document["schema"] = 2;
  EXPECT_THAT(failure(document.dump()), HasSubstr("schema version 2, this leaklab reads 1"));
}

TEST(BaselineFile, a_key_that_is_missing_is_named) {
  auto document = to_json(stored(fixed, leaky));
  document["twins"]["leaky"].erase("event_hash");
  EXPECT_THAT(failure(document.dump()), HasSubstr("leaky has no key 'event_hash'"));
}

TEST(BaselineFile, numbers_and_words_that_can_not_be_are_refused_with_the_place) {
  EXPECT_THAT(failure("{\"schema\": 1e999}"), HasSubstr("baselines/cpu/made.json can't be read"));
  const auto with = [](const char* key, const nlohmann::json& value) {
    auto document = to_json(stored(fixed, leaky));
    document["twins"]["leaky"]["channels"]["requested"][key] = value;
    return failure(document.dump());
  };
  EXPECT_THAT(with("signature", {{"kind", "upwards"}}),
              AllOf(HasSubstr("leaky.requested"), HasSubstr("upwards"), HasSubstr("record")));
  EXPECT_THAT(with("gains", {{INT64_MAX, 20}}), HasSubstr("64 bits"));
  EXPECT_THAT(with("absent", ""), HasSubstr("no reason"));
}

TEST(BaselineFile, of_another_scenario_is_refused) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("leaklab_{}", ::getpid()) / "other.json";
  save_baseline(path, stored(fixed, leaky));
  EXPECT_THAT([&] { load_baseline(path); },
              testing::ThrowsMessage<UsageError>(HasSubstr("is a baseline of 'made'")));
  std::filesystem::remove_all(path.parent_path());
}

TEST(BaselineFile, gains_that_claim_a_billion_steps_are_refused) {
  auto document = to_json(stored(fixed, leaky));
  document["twins"]["leaky"]["channels"]["requested"]["gains"] = {{512, 1'000'000'000}};
  EXPECT_THAT(failure(document.dump()), HasSubstr("more than its 20 steps"));
}

TEST(Environment, folders_follow_the_device) {
  Environment environment;
  environment.backend = "cuda";
  environment.device = "NVIDIA H200";
  EXPECT_EQ(environment.folder(), "cuda-h200");
  environment.device = "NVIDIA GeForce RTX 4090";
  EXPECT_EQ(environment.folder(), "cuda-geforce-rtx-4090");
  EXPECT_EQ(made::cpu().folder(), "cpu");
}

TEST(Recording, survives_its_own_json) {
  const auto json = to_json(leaky);
  EXPECT_EQ(to_json(recording_from_json(json, "made")), json);
}

}  // namespace
}  // namespace leaklab

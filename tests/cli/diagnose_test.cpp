// leaklab diagnose and leaklab diff, on stored snapshots.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "../unit/made_snapshot.h"
#include "program.h"

namespace leaklab {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::Gt;
using testing::HasSubstr;
using testing::Le;
using testing::StartsWith;

TEST_F(Program, diagnose_tells_a_leak_by_its_exit_code_and_its_first_lines) {
  const auto ran = leaklab("diagnose " + stored("d09_two_leaks"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("d09_two_leaks.pickle: LEAK\n"), HasSubstr("since step 0"),
                             HasSubstr("d09.py:401 in step"), HasSubstr("fix: ")));
}

TEST_F(Program, diagnose_tells_a_clean_file_by_exit_code_0) {
  const auto ran = leaklab("diagnose " + stored("bounded_cache_clean"));
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("bounded_cache_clean.pickle: CLEAN\n"));
}

TEST_F(Program, diagnose_of_a_file_without_a_leak_says_at_once_that_memory_ran_out) {
  const auto clean = "diagnose " + stored("d06_oom_one_large_request_clean");
  const auto ran = leaklab(clean);
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("clean.pickle: CLEAN, but out of memory\n"));
  const auto told = document(clean);
  EXPECT_EQ(told["verdict"], "clean");
  EXPECT_THAT(told["summary"].get<std::string>(),
              AllOf(StartsWith("No leak: "),
                    HasSubstr(". Out of memory in step 18: a request of 1.0 TiB failed, as the "
                              "request alone is larger than all")));
  made::Program program;
  program.alloc(made::Program::line(3), 4096);
  program.fail(1 << 20, 0, made::Program::line(4));
  write_snapshot(program.dump(), folder_ / "short.pickle");
  EXPECT_THAT(leaklab("diagnose short.pickle").out,
              StartsWith("short.pickle: UNDECIDED, and out of memory\n"));
  EXPECT_THAT(
      document("diagnose short.pickle")["summary"].get<std::string>(),
      AllOf(StartsWith("Undecided: "),
            HasSubstr(". Out of memory: a request of 1.0 MiB failed, as the device has 0 B free")));
  EXPECT_THAT(leaklab("diagnose " + stored("d05_oom_leak")).out, HasSubstr("leak.pickle: LEAK\n"));
  auto two = program.dump();
  two.traces.push_back(two.traces[0]);
  write_snapshot(two, folder_ / "two.pickle");
  EXPECT_THAT(leaklab("diagnose two.pickle").out,
              AllOf(StartsWith("two.pickle: UNDECIDED on device "),
                    HasSubstr(", and out of memory on device ")));
  EXPECT_THAT(document("diagnose two.pickle")["summary"].get<std::string>(),
              HasSubstr(". Out of memory on device "));
}

TEST_F(Program, diagnose_says_how_many_allocations_failed) {
  made::Program program;
  program.alloc(made::Program::line(3), 4096);
  program.fail(1 << 20, 0, made::Program::line(4));
  write_snapshot(program.dump(), folder_ / "once.pickle");
  for (int more = 0; more < 1199; ++more) program.fail(2 << 20, 0, {});
  write_snapshot(program.dump(), folder_ / "often.pickle");
  EXPECT_THAT(leaklab("diagnose once.pickle").out,
              HasSubstr("\nout of memory: 1.0 MiB asked for\n"));
  EXPECT_EQ(document("diagnose once.pickle")["oom"]["count"], 1);
  EXPECT_THAT(leaklab("diagnose often.pickle").out,
              HasSubstr("\nout of memory: 2.0 MiB asked for, the last of 1,200 failed "
                        "allocations\n"));
  const auto told = document("diagnose often.pickle");
  EXPECT_EQ(told["oom"]["count"], 1200);
  EXPECT_THAT(told["summary"].get<std::string>(),
              HasSubstr(" Out of memory, the last of 1,200 failed allocations: a request of 2.0"));
}

TEST_F(Program, diagnose_of_a_loop_in_which_every_allocation_fails_is_undecided) {
  const auto diagnosed = [&](bool allocates, int failures) {
    made::Program program;
    if (allocates) program.alloc(made::Program::line(3), 4096);
    for (int each = 0; each < failures; ++each) program.fail(2 << 20, 0, made::Program::line(5));
    write_snapshot(program.dump(), folder_ / "s.pickle");
    EXPECT_THAT(leaklab("diagnose s.pickle").out, StartsWith("s.pickle: UNDECIDED, and out of"));
    return document("diagnose s.pickle")["summary"].get<std::string>();
  };
  const std::string then = " failed, so none could stay; where memory suffices, record ten steps";
  EXPECT_THAT(diagnosed(true, 50),
              StartsWith("Undecided: every allocation of the steps seen" + then));
  for (const int failures : {1, 2, 50}) {
    EXPECT_THAT(diagnosed(false, failures),
                StartsWith("Undecided: every allocation of the trace" + then));
  }
}

TEST_F(Program, diagnose_says_why_no_steps_were_found_in_one_sentence_with_one_colon) {
  made::Program program;
  program.alloc(made::Program::line(3), 4096);
  program.alloc(made::Program::line(4), 4096);
  write_snapshot(program.dump(), folder_ / "short.pickle");
  const auto summary = document("diagnose short.pickle")["summary"].get<std::string>();
  const auto sentence = summary.substr(0, summary.find(';'));
  EXPECT_THAT(sentence, StartsWith("Undecided: no steps were found, as nothing comes again"));
  EXPECT_EQ(std::ranges::count(sentence, ':'), 1);
}

TEST_F(Program, diagnose_tells_an_undecided_file_by_exit_code_5_and_how_to_record) {
  const auto ran = leaklab("diagnose " + stored("d17_no_history_leak"));
  EXPECT_EQ(ran.code, 5);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("UNDECIDED"), HasSubstr("_record_memory_history")));
  EXPECT_THAT(document("diagnose " + stored("d17_no_history_leak"))["limits"][0].get<std::string>(),
              HasSubstr("second snapshot from later, `leaklab diff BEFORE AFTER` shows what grew"));
}

TEST_F(Program, diagnose_writes_one_document_a_file_and_a_leak_counts_most) {
  const auto one = document("diagnose " + stored("d05_oom_leak"));
  EXPECT_EQ(one["verdict"], "leak");
  EXPECT_EQ(one["bytes_per_step"], 4194304);
  EXPECT_EQ(one["steps"]["count"], 21);
  EXPECT_EQ(one["oom"]["request"], 8388608);
  const auto files = stored("d17_no_history_leak") + " " + stored("d05_oom_leak");
  const auto both = document("diagnose " + files);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[1]["file"], stored("d05_oom_leak"));
  EXPECT_EQ(leaklab("diagnose " + files).code, 1);
}

TEST_F(Program, diagnose_tells_the_file_that_it_can_not_read_and_goes_on_with_the_others) {
  const auto files = stored("d09_two_leaks") + " none.pickle . " + stored("bounded_cache_clean");
  const auto ran = leaklab("diagnose " + files);
  EXPECT_EQ(ran.code, 2) << "more urgent than the leak: not all was looked at";
  EXPECT_EQ(ran.err,
            "leaklab: can't read none.pickle: No such file or directory; check the path\n"
            "leaklab: can't read .: Is a directory; check the path\n");
  EXPECT_THAT(ran.out, AllOf(HasSubstr("d09_two_leaks.pickle: LEAK\n"),
                             HasSubstr("bounded_cache_clean.pickle: CLEAN\n")));
  const auto told = document("diagnose " + files);
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[0]["verdict"], "leak");
  EXPECT_EQ(told[1], nlohmann::json({{"file", "none.pickle"},
                                     {"error",
                                      "can't read none.pickle: No such file or "
                                      "directory; check the path"}}));
  EXPECT_EQ(told[2]["file"], ".");
  EXPECT_EQ(told[3]["verdict"], "clean");
  EXPECT_THAT(leaklab("diagnose --help").out,
              AllOf(HasSubstr("of 2, 1, 5 and 0"), HasSubstr("an object for one file, a list")));
}

TEST_F(Program, a_snapshot_comes_from_standard_input_too) {
  const auto file = stored("d09_two_leaks");
  const auto ran = shell("$leaklab diagnose - <" + file);
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("standard input: LEAK\n"));
  const auto cut = shell("head -c 1000 " + file + " | $leaklab diagnose -");
  EXPECT_EQ(cut.code, 2);
  EXPECT_THAT(cut.err, StartsWith("leaklab: standard input: "));
  EXPECT_THAT(shell("$leaklab diagnose - - <" + file).err, HasSubstr("can be read once"));
  EXPECT_EQ(shell("$leaklab diff " + file + " - <" + file).out,
            "nothing lives in standard input beyond " + file + "\n");
}

TEST_F(Program, diagnose_tells_after_how_many_steps_a_device_of_that_size_is_full) {
  const auto file = stored("d09_two_leaks");
  EXPECT_THAT(leaklab("diagnose " + file).out, HasSubstr("--device-memory 80GiB"));
  EXPECT_TRUE(document("diagnose " + file)["steps_until_full"].is_null());
  const auto told = document("diagnose --device-memory 80GiB " + file);
  const auto needed = told["rates"][0]["needed_bytes"].get<std::int64_t>();
  EXPECT_LT(needed, told["reserved_bytes"].get<std::int64_t>()) << "the cache is there to be used";
  const auto room = (std::int64_t{80} << 30) - needed;
  EXPECT_NEAR(told["steps_until_full"].get<double>(),
              static_cast<double>(room) / told["bytes_per_step"].get<double>(), 10)
      << "the rate is to a thousandth";
  EXPECT_THAT(leaklab("diagnose --device-memory 80GiB " + file).out,
              AllOf(HasSubstr("80 GiB is full after "), HasSubstr("more steps")));
  EXPECT_EQ(document("diagnose --device-memory 1MiB " + file)["steps_until_full"], 0);
  EXPECT_EQ(document("diagnose " + stored("d05_oom_leak"))["steps_until_full"], 0)
      << "it ran out of memory";
}

TEST_F(Program, diagnose_takes_a_size_of_the_device_with_a_fraction_and_refuses_what_is_none) {
  const auto file = stored("d09_two_leaks");
  const auto steps = [&](const std::string& size) {
    return document("diagnose --device-memory " + size + " " + file)["steps_until_full"];
  };
  EXPECT_THAT(leaklab("diagnose --device-memory 79.25GiB " + file).out,
              HasSubstr("79.25 GiB is full after"));
  EXPECT_THAT(leaklab("diagnose --device-memory 1PiB " + file).out,
              HasSubstr("A device of 1.0 PiB is full after"));
  EXPECT_EQ(steps("79.25GiB"), steps("85094039552"));
  EXPECT_EQ(steps("80GB"), steps("80000000000"));
  EXPECT_EQ(steps("'80 gib'"), steps("80GiB"));
  for (const auto* size : {"80", "79.25", "80foo", "GiB", "-80GiB", "1e3GiB", "80i", "0x50GiB",
                           "99999999GiB", ".5GiB", "79,25GiB", "nan"}) {
    EXPECT_THAT(refused("diagnose --device-memory=" + std::string(size) + " " + file, 2),
                AllOf(StartsWith("leaklab: --device-memory takes the size of the device, such as "
                                 "80GiB, 79.25GiB"),
                      HasSubstr(std::string("not '") + size + "'\n")));
  }
}

TEST_F(Program, diagnose_says_that_a_memory_that_was_full_needs_no_size) {
  const auto file = stored("d05_oom_leak");
  EXPECT_THAT(leaklab("diagnose " + file).out, HasSubstr("The\n  memory was full in step 21.\n"));
  EXPECT_THAT(leaklab("diagnose --device-memory 80GiB " + file).out,
              HasSubstr("was full in step 21, whatever --device-memory says.\n"));
}

TEST_F(Program, diagnose_refuses_two_ways_to_tell_the_steps) {
  for (const std::string call : {"diagnose ", "import "}) {
    EXPECT_EQ(refused(call + "--steps 30 --step-site d09.py:394 " + stored("d09_two_leaks"), 2),
              "leaklab: --steps and --step-site both tell the steps; give one of them\n");
  }
}

TEST_F(Program, diagnose_and_import_say_of_steps_that_are_not_there_that_they_can_be_left_out) {
  const auto file = stored("d09_two_leaks");
  const std::pair<std::string, std::string> calls[] = {
      {"--steps 1 ", "shows no loop of 1 step, as --steps says: leave --steps out"},
      {"--steps 7777 ", "shows no loop of 7777 steps, as --steps says: leave --steps out"},
      {"--step-site d09.py:1 ", "from d09.py:1, as --step-site says: leave --step-site out"}};
  for (const auto& [told, why] : calls) {
    const auto limits = document(fmt::format("diagnose {}{}", told, file))["limits"];
    EXPECT_THAT(limits[0].get<std::string>(),
                AllOf(HasSubstr(why), EndsWith("looked for: 30 are found by call stacks")));
    EXPECT_EQ(leaklab(fmt::format("diagnose {}{}", told, file)).code, 5);
    EXPECT_THAT(refused(fmt::format("import --dir new {}{}", told, file), 5), HasSubstr(why));
  }
}

TEST_F(Program, diagnose_says_of_steps_that_are_not_there_when_none_are_found_without_them) {
  made::Program program;
  program.alloc(made::Program::line(3), 4096);
  program.alloc(made::Program::line(4), 4096);
  auto snapshot = program.dump();
  write_snapshot(snapshot, folder_ / "short.pickle");
  const std::string mark = "or mark them with torch.profiler.record_function(f\"## step {i} ##\")";
  const auto why = [&](const std::string& call) {
    return document("diagnose " + call + " short.pickle")["limits"][0].get<std::string>();
  };
  EXPECT_EQ(why("--steps 7"),
            "the trace shows no loop of 7 steps, as --steps says, and no other loop either; record "
            "ten steps or more, " +
                mark);
  EXPECT_THAT(why(""), EndsWith(mark + ", or say --steps N or --step-site FILE:LINE"));
  made::change(snapshot.traces[0], [](TraceEvent& event) { event.stack = 0; });
  write_snapshot(snapshot, folder_ / "short.pickle");
  const auto record =
      "; record ten steps or more with their frames, by "
      "torch.cuda.memory._record_memory_history(max_entries=1000000, stacks=\"python\"), " +
      mark;
  for (const std::string call : {"", "--steps 7"}) {
    EXPECT_THAT(why(call), EndsWith(record)) << "no option helps without frames";
  }
}

TEST_F(Program, diagnose_says_which_of_several_devices_it_means_and_which_it_can_not_judge) {
  const auto looped = [](bool leaks) {
    made::Program program;
    for (int step = 0; step < 12; ++step) {
      program.mark("START", "step " + std::to_string(step));
      program.free(program.alloc(made::Program::line(10), 4096), made::Program::line(12));
      if (leaks) program.alloc(made::Program::line(16), 640);
      program.mark("END", "step " + std::to_string(step));
    }
    program.alloc(made::Program::line(20), 1 << 20);
    return program.dump();
  };
  // The same blocks live on another device, with or without the trace.
  const auto with_device = [](Snapshot snapshot, std::int32_t device, bool traced) {
    auto segment = snapshot.segments[0];
    segment.device = device;
    segment.first_block = segment.blocks;
    snapshot.segments.push_back(segment);
    const auto blocks = snapshot.blocks;
    snapshot.blocks.insert(snapshot.blocks.end(), blocks.begin(), blocks.end());
    snapshot.traces.resize(static_cast<std::size_t>(device) + 1);
    if (traced) snapshot.traces.back() = snapshot.traces[0];
    return snapshot;
  };
  const auto text = [&](const Snapshot& snapshot) {
    write_snapshot(snapshot, folder_ / "s.pickle");
    return leaklab("diagnose s.pickle").out;
  };
  EXPECT_THAT(text(looped(true)), StartsWith("s.pickle: LEAK\n"));
  EXPECT_THAT(text(looped(false)), StartsWith("s.pickle: CLEAN\n"));
  EXPECT_THAT(text(with_device(looped(true), 1, true)),
              StartsWith("s.pickle: LEAK on devices 0 and 1\n"));
  EXPECT_THAT(text(with_device(looped(false), 1, true)),
              StartsWith("s.pickle: CLEAN on devices 0 and 1\n"));
  EXPECT_THAT(text(with_device(looped(true), 3, false)),
              AllOf(StartsWith("s.pickle: LEAK on device 0\n"),
                    HasSubstr("Device 3 could not be judged.")));
  EXPECT_THAT(text(with_device(looped(false), 1, false)),
              AllOf(StartsWith("s.pickle: CLEAN on device 0\n"),
                    HasSubstr("Device 1 could not be\n  judged.\n"),
                    HasSubstr("12 steps on device 0, found by"), HasSubstr("MiB on device 0, of"),
                    HasSubstr("no trace of device 1, on which 1.0 MiB are live")));
  EXPECT_EQ(leaklab("diagnose s.pickle").code, 0);
  auto help = leaklab("diagnose --help").out;
  std::ranges::replace(help, '\n', ' ');
  EXPECT_THAT(help, AllOf(HasSubstr("Exit codes: 0 clean, as far as it can be judged, 1 a leak"),
                          HasSubstr("those are judged whose history is in the file")));
  const auto told = document("diagnose s.pickle");
  EXPECT_EQ(told["judged_devices"].dump(), "[0]");
  EXPECT_EQ(told["unjudged_devices"].dump(), "[1]");
  EXPECT_THAT(told["summary"].get<std::string>(),
              HasSubstr("behind; device 1 could not be judged."));
}

TEST_F(Program, what_is_packed_is_refused_with_the_command_that_unpacks_it) {
  const std::pair<std::string, std::string> packed[] = {{"\x1f\x8b\x08", "gzip"},
                                                        {"BZh91AY", "bzip2"},
                                                        {"\xfd\x37zXZ", "xz"},
                                                        {"\x28\xb5\x2f\xfd", "zstd"},
                                                        {"\x04\x22\x4d\x18", "lz4"}};
  for (const auto& [magic, program] : packed) {
    write_file(folder_ / "a b", magic + "...");
    const auto why = fmt::format("packed by {0}; unpack it with `{0} -dc ", program);
    for (const auto* call : {"diagnose 'a b'", "import 'a b'", "diff 'a b' 'a b'"}) {
      EXPECT_EQ(refused(call, 2), "leaklab: a b is " + why + "'a b' >snapshot.pickle`\n");
    }
    EXPECT_EQ(refused("diagnose - <'a b'", 2),
              "leaklab: standard input is " + why + "FILE >snapshot.pickle`\n");
  }
  write_file(folder_ / "saved.pt", "PK\x03\x04...");
  EXPECT_THAT(refused("diagnose saved.pt", 2),
              AllOf(HasSubstr("saved.pt is a zip archive"), HasSubstr("`unzip saved.pt`")));
}

TEST_F(Program, an_entry_without_an_address_is_refused) {
  write_file(folder_ / "s.json", R"({"segments": [], "device_traces": [[
      {"action": "alloc", "addr": 4096, "size": 512, "stream": 0},
      {"action": "free_completed", "size": 512, "stream": 0}]]})");
  EXPECT_EQ(
      refused("diagnose s.json", 2),
      "leaklab: s.json: `addr` of device_traces[0][1] is missing; record the snapshot again\n");
}

TEST_F(Program, the_confidence_is_of_the_steps_and_told_in_hundredths) {
  const auto file = stored("d09_two_leaks");
  const auto text = leaklab("diagnose " + file).out;
  EXPECT_THAT(text, HasSubstr("30 steps, found by call stacks (89 % sure)\n"));
  EXPECT_EQ(text.find("sure)"), text.rfind("sure)"));
  const auto told = document("diagnose " + file);
  EXPECT_EQ(told["steps"]["confidence"].dump(), "0.89");
  EXPECT_EQ(told["findings"][0]["confidence"].dump(), "0.89");
  EXPECT_TRUE(told["steps"]["asked"].is_null());
}

TEST_F(Program, diagnose_tells_how_many_steps_it_found_where_others_were_told) {
  const auto file = stored("d12_expandable_leak");
  const auto found = document("diagnose " + file)["steps"]["seen"].get<int>();
  const auto told = std::to_string(found - 1);
  const auto ran = leaklab("diagnose --steps " + told + " " + file);
  EXPECT_THAT(ran.out, HasSubstr(std::to_string(found) + " steps, where --steps says " + told));
  EXPECT_EQ(document("diagnose --steps " + told + " " + file)["steps"]["asked"], found - 1);
  EXPECT_THAT(leaklab("diagnose --steps " + std::to_string(found) + " " + file).out,
              HasSubstr(", as given"));
}

TEST_F(Program, diff_warns_of_two_files_that_are_not_comparable) {
  const auto warnings = [&](const std::string& before, const std::string& after) {
    const auto ran = leaklab("diff " + stored(before) + " " + stored(after));
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.err;
  };
  EXPECT_EQ(warnings("d09_two_leaks", "d09_two_leaks"), "");
  EXPECT_THAT(warnings("d09_two_leaks", "d05_oom_leak"), HasSubstr("no line of code in common"));
  EXPECT_THAT(warnings("d09_two_leaks", "d16_no_frames_leak"),
              HasSubstr("record both with frames"));
  EXPECT_THAT(warnings("d16_no_frames_leak", "d16_no_frames_leak"),
              AllOf(HasSubstr("have frames, so no line can be named: record both with"),
                    HasSubstr("_record_memory_history(max_entries=1000000, stacks=\"python\")")));
}

TEST_F(Program, diff_warns_of_a_device_that_the_second_file_lacks) {
  made::Program program;
  program.alloc(made::Program::line(3), 4096);
  auto one = program.dump();
  write_snapshot(one, folder_ / "one.pickle");
  one.segments.push_back(one.segments[0]);
  one.segments.back().device = 1;
  one.segments.back().first_block = 1;
  one.blocks.push_back(one.blocks[0]);
  write_snapshot(one, folder_ / "two.pickle");
  EXPECT_EQ(leaklab("diff one.pickle two.pickle").err, "");
  EXPECT_THAT(leaklab("diff two.pickle one.pickle").err,
              StartsWith("leaklab: nothing in one.pickle lives on device 1, where two.pickle has "
                         "something: compare two snapshots of the same devices\n"));
}

TEST_F(Program, diff_says_on_which_device_each_line_has_more_if_there_are_several) {
  const auto of_two = [&](const char* name, std::size_t on_first, std::size_t on_second) {
    made::Program program;
    for (std::size_t each = 0; each < on_first + on_second; ++each) {
      program.alloc(made::Program::line(3), 1 << 20);
    }
    auto snapshot = program.dump();
    auto& first = snapshot.segments[0];
    auto second = first;
    first.blocks = static_cast<std::uint32_t>(on_first);
    second.device = 1;
    second.first_block = first.blocks;
    second.blocks = static_cast<std::uint32_t>(on_second);
    snapshot.segments.push_back(second);
    write_snapshot(snapshot, folder_ / name);
  };
  of_two("before.pickle", 5, 1);
  of_two("after.pickle", 2, 3);
  EXPECT_THAT(leaklab("diff before.pickle after.pickle").out,
              EndsWith("more memory  more allocations  live memory  device  line\n"
                       "    2.0 MiB                 2      3.0 MiB       1  /home/me/train.py:3 in "
                       "train\n"))
      << "what device 0 has less hides nothing";
  const auto more = document("diff before.pickle after.pickle")["more"];
  ASSERT_EQ(more.size(), 1U);
  EXPECT_EQ(more[0]["device"], 1);
  EXPECT_EQ(more[0]["bytes"], 2 << 20);
}

TEST_F(Program, diff_warns_of_two_devices_and_of_files_in_the_wrong_order) {
  made::Program program;
  program.alloc(made::Program::line(3), 4096);
  const auto written = [&](const char* name, std::int32_t device, std::int64_t second) {
    auto snapshot = program.dump();
    snapshot.segments[0].device = device;
    auto event = snapshot.traces[0].back();
    event.time_us = second * 1'000'000;
    snapshot.traces[0].set(snapshot.traces[0].size() - 1, event);
    write_snapshot(snapshot, folder_ / name);
  };
  constexpr std::int64_t now = 1'700'000'000;
  written("early.pickle", 0, now);
  written("late.pickle", 0, now + 1);
  written("other.pickle", 1, now + 1);
  written("no_clock.pickle", 0, 1);
  EXPECT_EQ(leaklab("diff early.pickle late.pickle").err, "");
  EXPECT_EQ(leaklab("diff late.pickle no_clock.pickle").err, "");
  const auto turned = leaklab("diff late.pickle early.pickle --json -");
  EXPECT_EQ(turned.code, 0);
  EXPECT_EQ(turned.err,
            "leaklab: the recording in early.pickle ends before that in late.pickle: give the "
            "older file first\n");
  EXPECT_EQ(nlohmann::json::parse(turned.out)["warnings"].size(), 1U);
  EXPECT_EQ(leaklab("diff early.pickle other.pickle").err,
            "leaklab: what lives in early.pickle is on device 0 and what lives in other.pickle on "
            "device 1: compare two snapshots of one device\n");
}

TEST_F(Program, diagnose_fills_the_width_of_the_terminal_and_100_columns_of_a_log) {
  const auto widest = [](const std::string& text) {
    std::istringstream lines(text);
    std::size_t width = 0;
    std::string line;
    // The sentence after the verdict.
    for (std::getline(lines, line); std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty()) break;
      width = std::max(width, line.size());
    }
    return width;
  };
  const auto call = LEAKLAB_PROGRAM " diagnose " + stored("d09_two_leaks");
  const std::string plain = "env -u COLUMNS NO_COLOR=1 LC_ALL=C ";
  EXPECT_THAT(widest(shell("COLUMNS=60 " + call).out), AllOf(Gt(80U), Le(100U)));
  EXPECT_THAT(widest(on_terminal(plain + call, 60)), AllOf(Gt(40U), Le(60U)));
  EXPECT_THAT(widest(on_terminal(plain + call, 200)), AllOf(Gt(140U), Le(200U)));
  EXPECT_THAT(widest(on_terminal("COLUMNS=70 " + call, 200)), AllOf(Gt(50U), Le(70U)));
  EXPECT_THAT(widest(on_terminal(plain + call)), AllOf(Gt(80U), Le(100U)))
      << "a terminal that does not tell its width";
}

TEST_F(Program, no_output_replaces_a_file_that_the_call_reads) {
  const auto bytes = read_file(std::filesystem::path(LEAKLAB_SOURCE_DIR) /
                               "tests/data/snapshots/d15_cpp_frames_leak.pickle");
  for (const auto* call :
       {"diagnose --json s.pickle s.pickle", "diff s.pickle s.pickle --json ./s.pickle",
        "import s.pickle --json s.pickle", "diagnose d/../s.pickle --json s.pickle"}) {
    write_file(folder_ / "s.pickle", bytes);
    const auto ran = leaklab(call);
    EXPECT_EQ(ran.code, 2) << call;
    EXPECT_THAT(ran.err, HasSubstr("which this call needs; name another file")) << call;
    EXPECT_EQ(read_file(folder_ / "s.pickle"), bytes) << call;
  }
}

TEST_F(Program, names_in_a_file_give_a_terminal_no_orders) {
  write_file(folder_ / "names.json",
             R"({"segments": [{"device": 0, "address": 0, "total_size": 1024, "blocks": [{"size":
             512, "state": "active_allocated", "frames": [{"filename": "a\u001b[2J.py", "line": 3,
             "name": "f\r\ng"}]}]}]})");
  const auto ran = leaklab("diagnose names.json");
  EXPECT_THAT(ran.out, HasSubstr("a?[2J.py:3 in f??g"));
  EXPECT_EQ(ran.out.find('\x1b'), std::string::npos);
}

TEST_F(Program, the_name_of_a_file_gives_a_terminal_no_orders) {
  std::filesystem::copy(stored("d09_two_leaks"), folder_ / "a\x1b[2J\nb.pickle");
  EXPECT_THAT(shell("$leaklab diagnose a*").out, StartsWith("a?[2J?b.pickle: LEAK\n"));
  EXPECT_THAT(shell("$leaklab diff a* a*").out,
              StartsWith("nothing lives in a?[2J?b.pickle beyond a?[2J?b.pickle\n"));
  EXPECT_THAT(shell("$leaklab diagnose \"$(printf 'c\\033[2J\\nd')\"").err,
              StartsWith("leaklab: can't read c?[2J?d: No such file"));
}

TEST_F(Program, a_file_whose_name_begins_with_a_dash_stands_after_two_dashes) {
  std::filesystem::copy(stored("d09_two_leaks"), folder_ / "-x.pickle");
  EXPECT_THAT(leaklab("diagnose -- -x.pickle").out, StartsWith("-x.pickle: LEAK\n"));
  EXPECT_THAT(leaklab("diagnose ./-x.pickle").out, StartsWith("./-x.pickle: LEAK\n"));
}

TEST_F(Program, diagnose_of_a_file_without_any_memory_asks_for_the_process_that_uses_the_gpu) {
  write_file(folder_ / "s.json", R"({"segments": [], "device_traces": [[]]})");
  const auto ran = leaklab("diagnose s.json --json s.out");
  EXPECT_EQ(ran.code, 5) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("nothing was allocated in this process"),
                             Not(HasSubstr("what is live")), Not(HasSubstr("frames"))));
  EXPECT_THAT(document("diagnose s.json")["summary"].get<std::string>(),
              testing::EndsWith("dump in the process and rank that uses the GPU."));
}

TEST_F(Program, diagnose_names_what_is_live_after_each_step_and_what_of_it_leaks) {
  EXPECT_THAT(leaklab("diagnose " + stored("d09_two_leaks")).out,
              AllOf(HasSubstr("\n  live after each step   step 0: "),
                    HasSubstr("\n  allocations live       step 0: "),
                    HasSubstr("\n  leaked so far          step 0: "),
                    HasSubstr(" steps, and nothing as old was ever")));
}

TEST_F(Program, an_empty_standard_input_is_told) {
  for (const std::string call : {"diagnose -", "import - --id a --dir ."}) {
    EXPECT_EQ(refused(call, 2),
              "leaklab: standard input: empty: nothing was piped in; see that the command before "
              "the pipe writes a snapshot (byte 0)\n");
    EXPECT_THAT(shell(": | $leaklab " + call).err, HasSubstr("nothing was piped in"));
  }
}

TEST_F(Program, a_closed_standard_input_is_told) {
  for (const auto* call : {"diagnose -", "diff - -", "import -", "import --from-series -"}) {
    const auto ran = shell("$leaklab " + std::string(call) + " <&-");
    EXPECT_EQ(ran.code, 2);
    EXPECT_EQ(ran.err, "leaklab: standard input is closed; name a file or pipe one in\n") << call;
  }
}

TEST_F(Program, all_but_names_fits_a_terminal_of_40_columns) {
  const auto widest = [](const std::string& command) {
    std::istringstream lines(on_terminal("env -u COLUMNS NO_COLOR=1 LC_ALL=C " + command, 40));
    std::string found;
    bool example = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      example = line == "Examples:" || (example && !line.empty());
      // A path or a single word has no place to break it at.
      const auto word = line.substr(std::min(line.find_first_not_of(' '), line.size()));
      const bool whole = word.find('/') != std::string::npos || word.find(' ') == std::string::npos;
      if (example || whole) continue;
      if (line.size() > found.size()) found = line;
    }
    return found;
  };
  const std::string program = LEAKLAB_PROGRAM;
  for (const auto* call :
       {" --help", " diagnose --help", " diff --help", " import --help", " replay --help",
        " check --help", " diagnose --steps 1 --step-site a:1 x", " diagnose --device-memory 80 x",
        " new x --class L99"}) {
    EXPECT_LE(widest(program + call).size(), 40U) << call << ": " << widest(program + call);
  }
  for (const auto* name : {"d09_two_leaks", "d05_oom_leak", "d17b_state_only_leak"}) {
    const auto call = program + " diagnose " + stored(name);
    EXPECT_LE(widest(call).size(), 40U) << name << ": " << widest(call);
  }
}

TEST_F(Program, diagnose_of_one_file_that_it_can_not_read_writes_why_as_its_document) {
  EXPECT_EQ(leaklab("diagnose none.pickle --json why.json").code, 2);
  const auto why = nlohmann::json::parse(read_file(folder_ / "why.json"));
  EXPECT_EQ(why["file"], "none.pickle");
  EXPECT_THAT(why["error"].get<std::string>(), StartsWith("can't read none.pickle: "));
}

TEST_F(Program, diagnose_takes_what_the_caller_knows_of_the_steps) {
  const auto file = stored("d09_two_leaks");
  EXPECT_EQ(document("diagnose --step-site d09.py:394 " + file)["steps"]["source"], "given");
  EXPECT_EQ(document("diagnose --steps 30 " + file)["steps"]["count"], 30);
  EXPECT_THAT(refused("diagnose --step-site d09.py " + file, 2), HasSubstr("FILE:LINE"));
  EXPECT_THAT(refused("diagnose --steps 0 " + file, 2), HasSubstr("--steps"));
}

TEST_F(Program, diagnose_shows_the_frames_around_a_line_when_asked) {
  EXPECT_THAT(leaklab("diagnose --frames " + stored("d19_cuda_graph_per_step_leak")).out,
              HasSubstr("module.py:1790 _call_impl"));
}

TEST_F(Program, diff_shows_what_lives_in_the_second_file_only) {
  const auto same = leaklab("diff " + stored("d19_cuda_graph_per_step_leak") + " " +
                            stored("d19_cuda_graph_per_step_leak"));
  EXPECT_EQ(same.code, 0);
  EXPECT_THAT(same.out, StartsWith("nothing lives in"));
  const auto changed =
      document("diff " + stored("d17_no_history_leak") + " " + stored("d17b_state_only_leak"));
  EXPECT_GT(changed["more"].size(), 0U);
}

TEST_F(Program, diagnose_refuses_what_is_no_snapshot) {
  EXPECT_THAT(refused("diagnose no_such_file.pickle", 2), HasSubstr("no_such_file.pickle"));
}

}  // namespace
}  // namespace leaklab

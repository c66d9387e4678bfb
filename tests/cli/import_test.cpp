// leaklab import, leaklab replay and leaklab run --snapshot.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "../unit/made_snapshot.h"
#include "program.h"

namespace leaklab {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(Program, import_writes_a_scenario_and_its_pattern_and_says_what_to_do_next) {
  const auto ran = leaklab("import " + stored("d09_two_leaks") +
                           " --id two --report owner/repository#7 --dir scenarios");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(StartsWith("Leak of 25,429.333 B a step"), HasSubstr("kept 12 of 377"),
                             HasSubstr("build it:  in the source folder, cmake --build --preset "
                                       "release --target leaklab\n"),
                             HasSubstr("leaklab check two")));
  EXPECT_THAT(read_file(folder_ / "scenarios/two.cpp"),
              AllOf(HasSubstr("#include \"two.pattern\""), HasSubstr("    two, .taxonomy = \"L"),
                    HasSubstr(".reports = {\"owner/repository#7\"}"), HasSubstr("run.fault()")));
  EXPECT_THAT(read_file(folder_ / "scenarios/two.pattern"),
              StartsWith("R\"(3\n4096! 64000!\n4096!\n4096!\n"));
}

TEST_F(Program, import_refuses_a_pattern_that_is_too_large_for_a_scenario) {
  // Sizes by no rule, so that none can be left out; of a leak with a period the same in each step.
  const auto import = [&](int steps, int allocations, bool periodic = false) {
    made::Program program;
    std::uint32_t random = 1;
    for (int step = 0; step < steps; ++step) {
      program.marked("step " + std::to_string(step), [&] {
        program.free(program.alloc(made::Program::line(10), 4096), made::Program::line(12));
        if (periodic) random = 1;
        for (int each = 0; each < allocations; ++each) {
          random = random * 1664525 + 1013904223;
          program.alloc(made::Program::line(11), 512 + random % 100'000);
        }
      });
    }
    write_snapshot(program.dump(), folder_ / "large.pickle");
    return leaklab("import large.pickle --dir scenarios");
  };
  const auto refusal = [&](int steps, int allocations, bool periodic = false) {
    const auto ran = import(steps, allocations, periodic);
    EXPECT_EQ(ran.code, 2) << ran.out;
    EXPECT_THAT(ran.err, HasSubstr("which is more than a scenario's 65,536; "));
    return ran.err.substr(ran.err.find("; ") + 2);
  };
  EXPECT_EQ(refusal(40, 400), "record 20 steps of the loop or fewer\n");
  EXPECT_EQ(refusal(12, 2000), "record a smaller model, whose steps have fewer allocations\n");
  EXPECT_EQ(refusal(12, 10'000, /*periodic=*/true),
            "give memory by step with --from-series, which holds sums alone\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "scenarios"));
  EXPECT_EQ(import(20, 400).code, 0) << "as many as it said";
}

TEST_F(Program, import_writes_the_same_bytes_twice) {
  const auto call = "import " + stored("hidden_state") + " --id state --dir ";
  EXPECT_EQ(leaklab(call + "first").code, 0);
  EXPECT_EQ(leaklab(call + "second").code, 0);
  EXPECT_EQ(read_file(folder_ / "first/state.cpp"), read_file(folder_ / "second/state.cpp"));
  EXPECT_EQ(read_file(folder_ / "first/state.pattern"),
            read_file(folder_ / "second/state.pattern"));
}

// Whoever imports these files today gets the scenarios that are stored.
TEST_F(Program, import_writes_the_patterns_that_are_stored) {
  const std::pair<const char*, const char*> imported[] = {
      {"imported_attention_log", "attention_log"},
      {"imported_bounded_cache", "bounded_cache_clean"},
      {"imported_cuda_graph_per_step", "d19_cuda_graph_per_step_leak"},
      {"imported_hidden_state", "hidden_state"},
      {"imported_two_leaks", "d09_two_leaks"}};
  for (const auto& [id, file] : imported) {
    EXPECT_EQ(leaklab("import " + stored(file) + " --id again_" + file + " --dir .").code, 0) << id;
    EXPECT_EQ(read_file(folder_ / (std::string("again_") + file + ".pattern")),
              read_file(std::string(LEAKLAB_SOURCE_DIR "/scenarios/") + id + ".pattern"));
  }
}

TEST_F(Program, import_tells_a_terminal_how_far_it_is_and_a_log_nothing) {
  const auto call = "import " + stored("d09_two_leaks") + " --dir " + folder_.string() + " --id ";
  EXPECT_EQ(leaklab(call + "quiet").err, "");
  const auto told = on_terminal(LEAKLAB_PROGRAM " " + call + "told");
  EXPECT_THAT(told, HasSubstr("[0 tried] 30 steps and "));
  // Nothing of it is left where the result stands.
  EXPECT_THAT(told, HasSubstr(" left\r\x1b[KLeak of 25,429.333 B a step"));
}

TEST_F(Program, import_overwrites_nothing) {
  const auto call = "import " + stored("d09_two_leaks") + " --id two --dir .";
  EXPECT_EQ(leaklab(call).code, 0);
  EXPECT_THAT(refused(call, 2), AllOf(HasSubstr("'two' in ./two.cpp"), HasSubstr("another id")));
}

TEST_F(Program, import_of_a_file_that_can_not_tell_writes_nothing) {
  EXPECT_THAT(refused("import " + stored("d17_no_history_leak") + " --dir new", 5),
              HasSubstr("nothing to import"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  EXPECT_THAT(refused("import " + stored("d09_two_leaks") + " --class L99 --dir new", 2),
              HasSubstr("L99"));
  EXPECT_THAT(refused("import " + stored("d09_two_leaks") + " --class N01 --dir new", 2),
              HasSubstr("begins with L, not N01"));
  EXPECT_THAT(refused("import " + stored("bounded_cache_clean") + " --class L20 --dir new", 2),
              HasSubstr("begins with N, not L20"));
  EXPECT_THAT(refused("import " + stored("d09_two_leaks") + " --id Two --dir new", 2),
              HasSubstr("Two"));
}

TEST_F(Program, import_that_can_not_write_all_it_is_asked_for_writes_nothing) {
  write_file(folder_ / "made.txt", "");
  const auto call = "import " + stored("d09_two_leaks") + " --dir . --id made --json ";
  for (const std::string json : {"/dev/full", ".", "made.txt/these.json"}) {
    const auto ran = leaklab(call + json);
    EXPECT_NE(ran.code, 0) << json;
    EXPECT_THAT(ran.err, testing::StartsWith("leaklab: ")) << json;
    EXPECT_EQ(shell("ls made*").out, "made.txt\n") << json;
  }
  EXPECT_EQ(shell("$leaklab " + call + "- >/dev/full").code, 4);
  EXPECT_EQ(shell("ls made*").out, "made.txt\n");
  EXPECT_EQ(leaklab(call + "told.json").code, 0);
  EXPECT_EQ(shell("ls made* told.json").out, "made.cpp\nmade.pattern\nmade.txt\ntold.json\n");
}

// A snapshot is not to be trusted: the names in it must not become code.
TEST_F(Program, import_keeps_the_names_in_a_file_out_of_the_code) {
  auto pickle = read_file(stored("d09_two_leaks"));
  for (std::size_t at = 0; (at = pickle.find("d09.py", at)) != std::string::npos; at += 6) {
    pickle.replace(at, 6, "d\nint\\");
  }
  write_file(folder_ / "evil.pickle", pickle);
  EXPECT_EQ(leaklab("import evil.pickle --id evil --dir .").code, 0);
  EXPECT_THAT(read_file(folder_ / "evil.cpp"), AllOf(HasSubstr("d?int?"), Not(HasSubstr("\nint"))));
}

// The name is the user's; what stands for its letters must be no trigraph, of which compilers warn.
TEST_F(Program, import_keeps_the_name_of_the_file_out_of_the_code) {
  const std::string name = "a\"}, .fix = {\"\nint x; \\ \u00e9=.pickle";
  std::filesystem::copy(stored("d09_two_leaks"), folder_ / name);
  const auto ran = shell("$leaklab import a*.pickle --id evil --dir .");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(read_file(folder_ / "evil.cpp"),
              HasSubstr(R"(.reports = {"a\"}, .fix = {\"?int x; ? ?\?=.pickle"},)"));
}

TEST_F(Program, import_takes_a_public_report_and_refuses_any_other_text) {
  const auto call = "import " + stored("d09_two_leaks") + " --id two --dir new --report ";
  for (const auto* text :
       {"' '", "two", "owner/repository", "owner/repository#", "'owner/repository#7 '",
        "'o/r#7\nint x;'", "'\"}, .fix = {\"'", "https://", "'https://x/\"'", "'https://x/\\'",
        "https://x/\u00e9", "'https://x/ y'", "ftp://x/y"}) {
    EXPECT_THAT(refused(call + text, 2),
                AllOf(HasSubstr("--report '"), HasSubstr("give owner/repository#number")))
        << text;
  }
  EXPECT_THAT(refused(call + "https://x/$(printf %0100000d 0)", 2), HasSubstr("500 characters"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  EXPECT_EQ(leaklab(call + "'https://discuss.pytorch.org/t/a-b/12?u=c%20d&e=f#g'").code, 0);
  EXPECT_THAT(read_file(folder_ / "new/two.cpp"),
              HasSubstr(".reports = {\"https://discuss.pytorch.org/t/a-b/12?u=c%20d&e=f#g\"},"));
}

TEST_F(Program, import_makes_an_id_of_a_file_name_of_any_length) {
  const auto name = std::string(100, 'a') + ".pickle";
  std::filesystem::copy(stored("d09_two_leaks"), folder_ / name);
  EXPECT_EQ(document("import --dir . " + name)["id"], "imported_" + std::string(51, 'a'));
}

TEST_F(Program, import_makes_a_scenario_of_a_series) {
  std::string rows = "step,bytes\n";
  for (int step = 0; step < 20; ++step) {
    rows += std::to_string(step) + "," + std::to_string(5'000'000 + step / 2 * 640) + "\n";
  }
  write_file(folder_ / "memory.csv", rows);
  const auto ran =
      leaklab("import --from-series memory.csv --id series --class L20 --dir scenarios");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("20 levels: 640 bytes in 2 steps\n"));
  EXPECT_EQ(read_file(folder_ / "scenarios/series.pattern"), "R\"(2\n\n640!\n\n640!\n)\"\n");
  write_file(folder_ / "bad.csv", "1\n2\nx\n");
  EXPECT_THAT(refused("import --from-series bad.csv", 2), HasSubstr("bad.csv, line 3: 'x'"));
  for (const auto* cell : {"-1", "0.5", "nan", "\"7\"", "100 MB"}) {
    write_file(folder_ / "bad.csv", "0,5\n1," + std::string(cell) + "\n2,7\n3,9\n");
    EXPECT_THAT(refused("import --from-series bad.csv --dir new", 2),
                HasSubstr("is no whole number of bytes"))
        << cell;
  }
  for (const auto* large : {"0,5\n1,1e30\n2,7\n", "0,9007199254740993000\n", "0,1e999\n1,5\n"}) {
    write_file(folder_ / "bad.csv", large);
    EXPECT_THAT(refused("import --from-series bad.csv --dir new", 2),
                HasSubstr("is too large; give at most 9,007,199,254,740,992 bytes"))
        << large;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

TEST_F(Program, import_names_the_line_of_a_series_that_is_no_level_also_if_none_is_one) {
  const std::pair<std::string, std::string> files[] = {
      {"step,bytes\n0,100 MB\n1,200 MB\n", "line 2: 'MB' is no"},
      {"step,bytes\n0,many\n1,7\n2,9\n", "line 2: 'many' is no"},
      {"bytes\n100MB\n200\n", "line 2: '100MB' is no"},
      {"\"step\",\"bytes\"\n\"0\",\"7\"\n", "line 2: '\"7\"' is no"}};
  for (const auto& [rows, why] : files) {
    write_file(folder_ / "bad.csv", rows);
    EXPECT_THAT(refused("import --from-series bad.csv --dir new", 2), HasSubstr("bad.csv, " + why));
  }
  write_file(folder_ / "headed.csv", "made on 2024-01-01 by me\nstep,bytes\n0,5\n1,6\n2,7\n3,8\n");
  EXPECT_EQ(leaklab("import --from-series headed.csv --dir new").code, 0);
}

TEST_F(Program, import_refuses_a_series_with_semicolons_or_of_other_units_than_bytes) {
  for (const auto* rows : {"step;memory\n0;1,5\n1;2,5\n2;3,5\n3;4,5\n", "0;5\n1;6\n2;7\n3;8\n"}) {
    write_file(folder_ / "bad.csv", rows);
    EXPECT_THAT(refused("import --from-series bad.csv --dir new", 2),
                AllOf(HasSubstr("bad.csv, line 1: '"),
                      HasSubstr("' has a semicolon, as where commas are of decimals; give whole "
                                "bytes, with commas between the cells\n")));
  }
  const std::pair<std::string, std::string> headings[] = {
      {"step,memory (MiB)", "MiB"}, {"step,mem_mb", "mb"},          {"memoryMB", "MB"},
      {"memory in GB", "GB"},       {"step\tKiB", "KiB"},           {"step,Kb", "Kb"},
      {"step,gib used", "gib"},     {"step,megabytes", "megabytes"}};
  for (const auto& [heading, unit] : headings) {
    write_file(folder_ / "bad.csv", heading + "\n1\n2\n3\n4\n");
    EXPECT_THAT(refused("import --from-series bad.csv --dir new", 2),
                HasSubstr(" names " + unit + ", and values must be bytes"))
        << heading;
  }
  for (const auto* heading : {"GB,bytes", "A100 of 80 GB\nstep,bytes", "step,numb", "smb_bytes"}) {
    write_file(folder_ / "good.csv", std::string(heading) + "\n1\n2\n3\n4\n");
    EXPECT_EQ(leaklab("import --from-series good.csv --dir new").code, 0) << heading;
    std::filesystem::remove_all(folder_ / "new");
  }
}

TEST_F(Program, import_tells_a_series_from_a_snapshot) {
  std::filesystem::copy(stored("d09_two_leaks"), folder_ / "s.pickle");
  write_file(folder_ / "s.json", "{\"segments\": []}");
  for (const std::string file : {"s.pickle", "s.json"}) {
    EXPECT_EQ(refused("import --from-series " + file, 2),
              "leaklab: " + file + " looks like a snapshot: leave --from-series out\n");
  }
  write_file(folder_ / "memory.csv", "step,bytes\n0,512\n");
  for (const auto* call : {"import memory.csv", "diagnose memory.csv"}) {
    EXPECT_THAT(refused(call, 2), HasSubstr("`leaklab import --from-series`"));
  }
}

TEST_F(Program, import_says_what_to_measure_where_a_series_has_no_pattern) {
  std::string rows;
  for (const auto* level : {"900", "17", "523", "4", "777", "65", "981", "230", "11", "640"}) {
    rows += std::string(level) + "\n";
  }
  write_file(folder_ / "noise.csv", rows);
  EXPECT_THAT(refused("import --from-series noise.csv", 2),
              AllOf(HasSubstr("give what torch.cuda.memory_allocated() says after each step"),
                    HasSubstr("or import a memory snapshot")));
  write_file(folder_ / "short.csv", "512\n");
  EXPECT_THAT(refused("import --from-series short.csv", 2), HasSubstr("has 1 level, which is too"));
}

TEST_F(Program, import_names_each_place_that_leaks_or_says_how_many_more) {
  EXPECT_EQ(leaklab("import " + stored("d09_two_leaks") + " --id two --dir .").code, 0);
  EXPECT_THAT(read_file(folder_ / "two.cpp"),
              StartsWith("// 76,288 bytes in 3 steps stay, allocated in d09.py line 401 and d09.py "
                         "line 395.\n"));
  for (const auto& [lines, more] : {std::pair(4, "1 more place"), std::pair(5, "2 more places")}) {
    made::Program program;
    for (int step = 0; step < 12; ++step) {
      program.mark("START", "step " + std::to_string(step));
      program.free(program.alloc(made::Program::line(10), 4096), made::Program::line(12));
      for (int line = 0; line < lines; ++line) {
        program.alloc(made::Program::line(static_cast<std::uint64_t>(25 - line)), 1600 - 64 * line);
      }
      program.mark("END", "step " + std::to_string(step));
    }
    write_snapshot(program.dump(), folder_ / "many.pickle");
    const auto id = fmt::format("lines_{}", lines);
    EXPECT_EQ(leaklab("import many.pickle --dir . --id " + id).code, 0);
    EXPECT_THAT(read_file(folder_ / (id + ".cpp")),
                HasSubstr("train.py line 25, train.py line 24, train.py line 23 and " +
                          std::string(more) + ".\n"));
  }
}

// Steps of a loop, of which some keep what `keep` allocates.
template <typename Keep>
Snapshot looped(int steps, Keep keep) {
  made::Program program;
  for (int step = 0; step < steps; ++step) {
    program.marked("step " + std::to_string(step), [&] {
      program.free(program.alloc(made::Program::line(10), 4096), made::Program::line(12));
      keep(program, step);
    });
  }
  return program.dump();
}

// Of the sizes that an irregular leak has.
std::int64_t some_size(int step) { return 512 * (1 + step * step % 61); }

TEST_F(Program, import_keeps_the_allocations_of_a_leak_in_some_steps_by_no_rule) {
  const auto snapshot = looped(56, [](made::Program& program, int step) {
    if (step % 4 == 3) program.alloc(made::Program::line(16), some_size(step));
  });
  write_snapshot(snapshot, folder_ / "s.pickle");
  EXPECT_THAT(leaklab("import s.pickle --dir . --id some").out,
              HasSubstr("\nkept 40 of 70 allocations, 32 of 56 steps\n"));
  std::int64_t sum = 0;
  for (int step = 24; step < 56; ++step) sum += step % 4 == 3 ? some_size(step) : 0;
  EXPECT_THAT(read_file(folder_ / "some.cpp"),
              StartsWith(fmt::format("// {} bytes in 32 steps stay", fmt::group_digits(sum))));
}

TEST_F(Program, import_keeps_what_leaks_in_a_backward_pass_with_what_leaks_beside_it) {
  const auto snapshot = looped(30, [](made::Program& program, int step) {
    program.free(program.alloc({}, 8192));
    if (step % 3 != 2) return;
    program.alloc(made::Program::line(16), 1024);
    program.alloc({}, 2048);
  });
  write_snapshot(snapshot, folder_ / "s.pickle");
  EXPECT_THAT(leaklab("import s.pickle --dir . --id both").out,
              AllOf(HasSubstr("\nkept "), Not(HasSubstr("nothing smaller"))));
  const auto pattern = read_file(folder_ / "both.pattern");
  EXPECT_THAT(pattern, AllOf(StartsWith("R\"(3\n"), HasSubstr("1024! 2048!")));
}

TEST_F(Program, import_says_that_nothing_smaller_leaks_the_same_where_a_line_leaks_and_fills_once) {
  const auto snapshot = looped(16, [](made::Program& program, int step) {
    if (step == 0) program.alloc(made::Program::line(16), 32 << 20);
    program.alloc(made::Program::line(16), some_size(step));
  });
  write_snapshot(snapshot, folder_ / "s.pickle");
  EXPECT_THAT(
      leaklab("import s.pickle --dir . --id once").out,
      AllOf(HasSubstr("\nnothing smaller leaks the same, so the scenario allocates the mean "
                      "growth of a step, "),
            HasSubstr(" B, at once in each step\n"), Not(HasSubstr("kept "))));
}

TEST_F(Program, import_tells_a_terminal_how_far_it_is_with_a_leak_by_no_rule) {
  const auto snapshot = looped(56, [](made::Program& program, int step) {
    program.alloc(made::Program::line(16), some_size(step));
  });
  write_snapshot(snapshot, folder_ / "s.pickle");
  EXPECT_THAT(
      on_terminal("cd " + folder_.string() + "; " LEAKLAB_PROGRAM " import s.pickle --dir ."),
      HasSubstr("[0 tried] 56 steps and "));
}

TEST_F(Program, import_writes_how_many_steps_it_was_told) {
  const auto call = "import " + stored("d09_two_leaks") + " --dir . --id ";
  EXPECT_EQ(document(call + "told --steps 30")["diagnosis"]["steps"]["asked"], 30);
  EXPECT_TRUE(document(call + "found")["diagnosis"]["steps"]["asked"].is_null());
}

TEST_F(Runs, replay_has_the_levels_of_the_file_to_the_byte) {
  for (const auto* name :
       {"d09_two_leaks", "hidden_state", "d03_truncated_leak", "bounded_cache_clean"}) {
    const auto ran = leaklab("replay " + stored(name) + " --env cpu --json -");
    EXPECT_EQ(ran.code, 0) << name << ran.err;
    const auto report = nlohmann::json::parse(ran.out);
    EXPECT_EQ(report["equal"], true) << name;
    EXPECT_EQ(report["device"], 0) << name;
    EXPECT_GT(report["levels"].size(), 5) << name;
  }
}

TEST_F(Runs, replay_goes_on_to_the_dump_where_the_last_step_was_cut_off) {
  const auto ran = leaklab("replay " + stored("d05_oom_leak") + " --env cpu");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("\ndump "), HasSubstr("equal at every step"),
                    HasSubstr("reserved bytes\nare the file's alone"), Not(HasSubstr(" -\n"))));
}

TEST_F(Runs, replay_refuses_a_file_without_events) {
  EXPECT_THAT(refused("replay --env cpu --steps 99999 " + stored("d09_two_leaks"), 5),
              HasSubstr("shows no loop of 99999 steps, as --steps says: leave --steps out"));
  EXPECT_THAT(refused("replay --env cpu --device 7 " + stored("d09_two_leaks"), 2),
              HasSubstr("has no events of device 7, only of device 0; give one that has or leave "
                        "--device out\n"));
  EXPECT_THAT(refused("replay --env cpu nothing.pickle", 2), HasSubstr("nothing.pickle"));
}

TEST_F(Runs, replay_of_a_file_without_history_is_undecided_and_tells_how_to_record) {
  EXPECT_THAT(refused("replay --env cpu " + stored("d17_no_history_leak"), 5),
              HasSubstr("_record_memory_history(max_entries=1000000, stacks=\"python\")"));
  EXPECT_THAT(refused("replay --env cpu --device 7 " + stored("d17_no_history_leak"), 5),
              HasSubstr("_record_memory_history"));
}

TEST_F(Runs, run_that_can_not_write_its_snapshot_is_told_by_exit_code_4) {
  EXPECT_EQ(refused("run retained_graph_loss_list --env cpu --snapshot /dev/full", 4),
            "leaklab: can't write /dev/full: No space left on device; free some space or choose "
            "another disk\n");
}

TEST_F(Runs, run_on_a_full_disk_leaves_the_snapshot_that_was_there_and_no_other_file) {
  write_file(folder_ / "run.pickle", "old");
  const auto ran = shell(
      "(ulimit -f 1; $leaklab run retained_graph_loss_list --env cpu --snapshot run.pickle "
      ">/dev/null; echo code $? >&2) 2>&1 | cat");
  EXPECT_THAT(ran.out, AllOf(HasSubstr("can't write "), HasSubstr("run.pickle: File too large; "),
                             HasSubstr("\ncode 4\n")));
  EXPECT_EQ(read_file(folder_ / "run.pickle"), "old");
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }
}

TEST_F(Runs, run_writes_a_snapshot_that_diagnose_reads) {
  EXPECT_EQ(leaklab("run retained_graph_loss_list --env cpu --snapshot run.pickle").code, 0);
  const auto found = document("diagnose run.pickle");
  EXPECT_EQ(found["verdict"], "leak");
  EXPECT_EQ(found["bytes_per_step"], 655364);
  EXPECT_EQ(found["steps"]["source"], "annotations");
  EXPECT_THAT(leaklab("diagnose --frames run.pickle").out,
              AllOf(HasSubstr("\n      aten::relu\n"), Not(HasSubstr("??"))));
  EXPECT_EQ(leaklab("import run.pickle --id again --dir .").code, 0);
  EXPECT_THAT(read_file(folder_ / "again.cpp"), HasSubstr("stay, allocated in aten::"));
  EXPECT_THAT(
      refused("run retained_graph_loss_list --env cpu --snapshot /proc/nowhere/s.pickle", 2),
      HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace leaklab

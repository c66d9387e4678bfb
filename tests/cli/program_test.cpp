// What holds in every build, scenarios or not.
#include "program.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

namespace leaklab {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Gt;
using testing::HasSubstr;
using testing::Le;
using testing::Not;
using testing::StartsWith;

TEST_F(Program, tells_its_version) {
  const auto ran = leaklab("--version");
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, StartsWith("leaklab 0."));
}

TEST_F(Program, shows_examples_in_the_help_of_each_command) {
  EXPECT_THAT(leaklab("--help").out, AllOf(HasSubstr("Exit codes"), Not(HasSubstr("ctest-file"))));
  for (const std::string name : {"list", "run", "check", "record", "doctor", "new"}) {
    const auto ran = leaklab(name + " --help");
    EXPECT_EQ(ran.code, 0) << name;
    EXPECT_THAT(ran.out,
                AllOf(HasSubstr("Examples:\n  leaklab " + name), HasSubstr("--json FILE")));
    EXPECT_THAT(leaklab("--help").out, HasSubstr("\n  " + name));
  }
}

TEST_F(Program, refuses_a_wrong_call_in_one_sentence) {
  EXPECT_THAT(refused("", 2), HasSubstr("leaklab --help"));
  EXPECT_THAT(refused("chek", 2), AllOf(HasSubstr("'chek'"), HasSubstr("'check'")));
  EXPECT_THAT(refused("list --what", 2), AllOf(HasSubstr("--what"), HasSubstr("list --help")));
  EXPECT_THAT(refused("list --kind bug", 2), HasSubstr("bug not in {leak,lookalike,control}"));
  EXPECT_THAT(refused("list --class L99", 2), AllOf(HasSubstr("'L99'"), HasSubstr("L20 tensor")));
  EXPECT_THAT(refused("check --env tpu", 2), HasSubstr("tpu not in {auto,cpu,cuda}"));
  EXPECT_THAT(refused("check --jobs 0", 2), HasSubstr("--jobs"));
  EXPECT_THAT(refused("check --jobs many", 2), HasSubstr("many"));
  EXPECT_THAT(refused("check --baselines nowhere", 2), HasSubstr("nowhere"));
  EXPECT_THAT(refused("run", 2), HasSubstr("ID is required"));
  EXPECT_THAT(refused("run x --param a=b", 2), HasSubstr("'a=b' is not NAME=INTEGER"));
  EXPECT_THAT(refused("run x --param 3", 2), HasSubstr("'3' is not NAME=INTEGER"));
  EXPECT_THAT(refused("run x --channel requestd", 2), HasSubstr("'requested'"));
}

TEST_F(Program, an_option_that_takes_a_number_says_which_ones_for_any_other) {
  const std::pair<std::string, std::string> options[] = {
      {"check --jobs", "from 1 to 1,024"},
      {"check --steps", "from 1 to 1,000,000"},
      {"check --time-limit", "from 1 to 86,400"},
      {"record --jobs", "from 1 to 1,024"},
      {"record --time-limit", "from 1 to 86,400"},
      {"run x --steps", "from 1 to 1,000,000"},
      {"run x --time-limit", "from 1 to 86,400"},
      {"diagnose x --steps", "from 1 to 1,000,000,000"},
      {"import x --steps", "from 1 to 1,000,000,000"},
      {"replay x --steps", "from 1 to 1,000,000,000"},
      {"replay x --device", "from 0 to 1,023"},
      {"replay x --time-limit", "from 1 to 86,400"}};
  for (const auto& [call, range] : options) {
    const auto option = call.substr(call.find("--"));
    EXPECT_EQ(refused(call + " -1", 2),
              fmt::format("leaklab: {} takes a whole number {}, not '-1'\n", option, range));
    EXPECT_THAT(refused(call, 2),
                StartsWith("leaklab: " + option + " needs a value; see `leaklab"));
  }
  for (const std::string value : {"99999999999999999999", "many", "1.5", "0x10", "3 4"}) {
    EXPECT_THAT(refused("diagnose x --steps '" + value + "'", 2),
                HasSubstr("1,000,000,000, not '" + value + "'\n"));
  }
  EXPECT_THAT(refused("diagnose x --steps 1000000000", 2), HasSubstr("can't read x"));
  EXPECT_THAT(refused("diagnose x --steps 1000000001", 2), HasSubstr("--steps takes a whole"));
}

TEST_F(Program, an_option_that_a_command_does_not_have_leads_to_one_that_is_near) {
  EXPECT_THAT(refused("diagnose x --setps 30", 2),
              HasSubstr("--setps; see `leaklab diagnose --help`; did you mean '--steps'?\n"));
  EXPECT_THAT(refused("diff a b --jsn=-", 2), HasSubstr("did you mean '--json'?\n"));
  EXPECT_THAT(refused("diff a b --quux", 2), AllOf(HasSubstr("--quux"), Not(HasSubstr("mean"))));
}

TEST_F(Program, without_libtorch_says_so_and_what_to_do) {
  if (has_scenarios()) GTEST_SKIP() << "this build has LibTorch";
  for (const auto* call : {"run x", "check", "record"}) {
    EXPECT_THAT(refused(call, 3), AllOf(HasSubstr("no LibTorch"), HasSubstr("ci/check")));
  }
  EXPECT_THAT(leaklab("list").out, HasSubstr("0 scenarios"));
}

TEST_F(Program, prints_the_document_alone_where_the_json_goes_to_standard_output) {
  const auto ran = leaklab("list --json -");
  EXPECT_EQ(ran.err, "");
  const auto listed = nlohmann::json::parse(ran.out);
  EXPECT_EQ(listed["channels"][0]["name"], "active");
  for (const auto& scenario : listed["scenarios"]) {
    for (const auto* key : {"id", "summary", "class", "kind", "needs", "reports", "fix", "file"}) {
      EXPECT_TRUE(scenario.contains(key)) << scenario["id"] << " " << key;
    }
    EXPECT_EQ(scenario["file"], "scenarios/" + scenario["id"].get<std::string>() + ".cpp");
  }
  EXPECT_EQ(leaklab("list --json -").out, ran.out);
}

TEST_F(Program, writes_the_document_beside_the_text) {
  const auto ran = leaklab("list --json deep/list.json");
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, leaklab("list").out);
  EXPECT_EQ(read_file(folder_ / "deep/list.json"), leaklab("list --json -").out);
}

TEST_F(Program, says_what_it_could_not_write) {
  const auto ran = shell("echo x > taken; $leaklab list --json taken/list.json");
  EXPECT_EQ(ran.code, 2) << "no file can be there";
  EXPECT_THAT(ran.err, AllOf(StartsWith("leaklab: can't write taken/list.json: "), HasSubstr(";")));
  for (const auto* path : {".", "taken/", "/proc/nowhere/list.json", "$(printf %0300d 1)"}) {
    EXPECT_EQ(leaklab("list --json " + std::string(path)).code, 2) << path;
  }
  EXPECT_EQ(leaklab("list --json /dev/full").code, 4);
}

TEST_F(Program, a_folder_without_permission_is_a_wrong_call_as_a_file_without_permission_is) {
  for (const auto* call : {"list --json /sys/made.json", "new made --class L20 --dir /sys"}) {
    EXPECT_THAT(refused(call, 2), AllOf(StartsWith("leaklab: can't write /sys/made."),
                                        HasSubstr("; choose a folder that you may write to\n")))
        << "nobody may write there, nor may root";
  }
}

TEST_F(Program, text_that_can_not_be_written_is_a_failure_of_any_command) {
  const auto file = stored("d17b_state_only_leak");
  for (const auto& call :
       {std::string("list"), std::string("doctor"), std::string("--help"), std::string("--version"),
        std::string("diagnose --help"), "diagnose " + file, fmt::format("diff {0} {0}", file)}) {
    const auto ran = shell(fmt::format("$leaklab {} >/dev/full", call));
    EXPECT_EQ(ran.code, 4) << call;
    EXPECT_EQ(ran.err, "leaklab: can't write to standard output: No space left on device\n")
        << call;
  }
}

TEST_F(Program, an_empty_value_is_refused) {
  const std::pair<std::string, std::string> calls[] = {
      {"list --json ''", "--json"},         {"list --json=", "--json"},
      {"diagnose --json= x", "--json"},     {"diagnose --step-site '' x", "--step-site"},
      {"import --report '' x", "--report"}, {"import --dir '' x", "--dir"}};
  for (const auto& [call, option] : calls) {
    EXPECT_EQ(refused(call, 2),
              "leaklab: the value of " + option + " is empty; give one or leave it out\n");
  }
  EXPECT_EQ(refused("diagnose ''", 2),
            "leaklab: argument 2 is empty; give a value or leave it out\n");
  EXPECT_EQ(refused("diagnose -- --json= ''", 2),
            "leaklab: argument 4 is empty; give a value or leave it out\n");
  EXPECT_THAT(refused("import --report=https://x?y= none.pickle", 2), HasSubstr("none.pickle"));
}

TEST_F(Program, each_command_tells_its_exit_codes_in_one_form) {
  for (const std::string name : {"check", "diagnose", "diff", "doctor", "import", "list", "new",
                                 "record", "replay", "run"}) {
    auto help = leaklab(name + " --help").out;
    std::ranges::replace(help, '\n', ' ');
    EXPECT_THAT(
        help,
        AllOf(HasSubstr("Exit codes: 0 "),
              HasSubstr(", 2 a wrong call, or a file that can't be read or may not be written, "),
              HasSubstr("4 a fault of leaklab or of the machine, such as a full disk")))
        << name;
  }
  EXPECT_THAT(leaklab("replay --help").out, HasSubstr(" 5 "));
  EXPECT_THAT(leaklab("import --help").out, HasSubstr(" 5 "));
}

TEST_F(Program, leaves_nothing_behind_on_a_full_disk) {
  const auto ran = shell(
      "(ulimit -f 0; $leaklab list --json list.json >/dev/null; echo code $? >&2) 2>&1 | cat");
  EXPECT_THAT(ran.out, AllOf(HasSubstr("can't write list.json: "), HasSubstr("\ncode 4\n")));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, testing::UnorderedElementsAre("stdout", "stderr"));
}

TEST_F(Program, doctor_tells_what_each_environment_can_do_and_succeeds) {
  const auto ran = leaklab("doctor");
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("\ncpu: "), HasSubstr("\ncuda: "), HasSubstr("baselines")));
  write_file(folder_ / "stored/cpu/a.json", "{}");
  const auto found = document("doctor --baselines stored");
  EXPECT_EQ(found["baselines"]["folders"]["cpu"], 1);
  for (const auto* backend : {"cpu", "cuda"}) {
    const auto& environment = found["environments"][backend];
    EXPECT_NE(environment["usable"].get<bool>(), environment["environment"].is_null());
    EXPECT_NE(environment["usable"].get<bool>(), !environment["reason"].get<std::string>().empty());
  }
}

TEST_F(Program, takes_the_folder_of_baselines_from_the_environment) {
  write_file(folder_ / "stored/cpu/a.json", "{}");
  const auto ran = shell("LEAKLAB_BASELINES=stored $leaklab doctor --json -");
  EXPECT_EQ(nlohmann::json::parse(ran.out)["baselines"]["root"], "stored");
}

TEST_F(Program, colours_a_terminal_only_and_never_with_no_color) {
  const std::string doctor = LEAKLAB_PROGRAM " doctor";
  EXPECT_THAT(on_terminal(doctor), HasSubstr("\x1b["));
  EXPECT_THAT(on_terminal("NO_COLOR=1 " + doctor), Not(HasSubstr("\x1b[")));
  EXPECT_THAT(on_terminal("TERM=dumb " + doctor), Not(HasSubstr("\x1b[")));
  EXPECT_THAT(on_terminal(doctor + " | cat"), Not(HasSubstr("\x1b[")));
}

TEST_F(Program, fits_a_table_to_the_width_of_a_terminal_only) {
  const auto diff = LEAKLAB_PROGRAM " diff " + stored("d17_no_history_leak") + " " +
                    stored("d17b_state_only_leak");
  const auto widest = [](const std::string& text) {
    std::istringstream lines(text.substr(text.find("more memory")));
    std::size_t width = 0;
    for (std::string line; std::getline(lines, line);) {
      width = std::max(width, line.size() - (line.ends_with('\r') ? 1 : 0));
    }
    return width;
  };
  const std::string plain = "env -u COLUMNS NO_COLOR=1 LC_ALL=C ";
  const auto whole = widest(shell(diff).out);
  EXPECT_GT(whole, 70U);
  EXPECT_THAT(widest(on_terminal(plain + diff, 70)), AllOf(Gt(65U), Le(70U)));
  EXPECT_EQ(widest(on_terminal(plain + diff)), whole) << "a terminal that does not tell its width";
  EXPECT_LE(widest(on_terminal("COLUMNS=70 NO_COLOR=1 LC_ALL=C " + diff, 80)), 70U);
  EXPECT_EQ(widest(on_terminal(plain + diff + " | cat", 70)), whole);
  EXPECT_EQ(widest(shell("COLUMNS=65 " + diff).out), whole);
}

TEST_F(Program, new_writes_a_scenario_with_the_sentence_of_its_class) {
  const auto ran = leaklab("new my_cache --class L20 --dir scenarios");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("leaklab run my_cache"),
                             HasSubstr("build it:  in the source folder, cmake --build --preset "
                                       "release --target leaklab\n")));
  const auto leak = read_file(folder_ / "scenarios/my_cache.cpp");
  EXPECT_THAT(leak, AllOf(StartsWith("// "), HasSubstr("my_cache, .taxonomy = \"L20\""),
                          HasSubstr("steps on first sight of a shape"), HasSubstr("run.fault()")));
  EXPECT_EQ(leaklab("new my_benign --class N17 --dir scenarios").code, 0);
  const auto benign = read_file(folder_ / "scenarios/my_benign.cpp");
  EXPECT_THAT(benign, AllOf(HasSubstr(".taxonomy = \"N17\""), Not(HasSubstr("fault"))));
}

TEST_F(Program, a_copy_of_the_program_asks_where_to_write_a_scenario) {
  // The copy finds its libraries where they were.
  const std::string copy =
      "cp $leaklab copy; export LD_LIBRARY_PATH=$(dirname $leaklab)/../lib; ./copy ";
  const auto import = "import " + stored("d09_two_leaks") + " --id of_a_copy ";
  for (const auto& call : {std::string("new of_a_copy --class L20 "), import}) {
    const auto ran = shell(copy + call);
    EXPECT_EQ(ran.code, 2) << ran.out;
    EXPECT_EQ(ran.err,
              "leaklab: this leaklab lies outside of its source folder, so there is no folder of "
              "scenarios; say with --dir where to write\n");
    EXPECT_FALSE(fs::exists(LEAKLAB_SOURCE_DIR "/scenarios/of_a_copy.cpp"));
    EXPECT_FALSE(fs::exists(folder_ / "scenarios"));
  }
  const auto ran = shell(copy + import + "--dir mine");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("wrote mine/of_a_copy.cpp and its pattern\n"));
}

TEST_F(Program, new_and_import_tell_of_a_folder_that_the_user_may_not_enter) {
  const auto closed = folder_ / "closed";
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  // Root may enter any.
  const std::string user =
      ::geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups " : "";
  if (shell(user + "$leaklab --version").code != 0) {
    GTEST_SKIP() << "there is no other user who may run the program";
  }
  const std::string calls[] = {"new mine --class L20",
                               "import " + stored("d09_two_leaks") + " --id mine"};
  for (const auto& call : calls) {
    auto command = user + "$leaklab ";
    command += call;
    command += " --dir " + (closed / "q").string();
    const auto ran = shell(command);
    EXPECT_EQ(ran.code, 2) << call;
    EXPECT_EQ(ran.err, "leaklab: can't write " + (closed / "q/mine.cpp").string() +
                           ": Permission denied; choose a folder that you may write to\n");
  }
}

TEST_F(Program, new_refuses_what_is_there_already_and_what_is_no_id) {
  leaklab("new my_cache --class L20 --dir scenarios");
  const auto before = read_file(folder_ / "scenarios/my_cache.cpp");
  EXPECT_THAT(refused("new my_cache --class N01 --dir scenarios", 2), HasSubstr("another id"));
  EXPECT_EQ(read_file(folder_ / "scenarios/my_cache.cpp"), before);
  for (const auto* id : {"MyCache", "my-cache", "2nd", "my__cache", "cache_", "a/b"}) {
    EXPECT_THAT(refused(std::string("new --class L20 --dir scenarios ") + id, 2),
                HasSubstr("lower-case words"));
  }
  EXPECT_THAT(refused("new other --class L46 --dir scenarios", 2), HasSubstr("L45"));
  EXPECT_THAT(refused("new other", 2), HasSubstr("--class is required"));
}

TEST_F(Program, writes_the_tests_of_ctest_only_where_they_changed) {
  const auto call = "ctest-file tests.cmake --program bin/leaklab --env cpu --env cuda";
  EXPECT_EQ(leaklab(call).code, 0);
  const auto file = folder_ / "tests.cmake";
  const auto text = read_file(file);
  const auto early = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(file, early);
  leaklab(call);
  EXPECT_EQ(fs::last_write_time(file), early);
  EXPECT_EQ(read_file(file), text);
  if (!has_scenarios()) return;
  EXPECT_THAT(text, HasSubstr("add_test([[cpu.retained_graph_loss_list]] [[bin/leaklab]] check "
                              "retained_graph_loss_list --env cpu --no-controls)"));
  EXPECT_THAT(text, HasSubstr("LABELS [[L02;cuda;leak]] SKIP_RETURN_CODE 3"));
  EXPECT_THAT(text, HasSubstr("FIXTURES_REQUIRED controls_cuda RESOURCE_GROUPS [[gpus:1]]"));
}

}  // namespace
}  // namespace leaklab

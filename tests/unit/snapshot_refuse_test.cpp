#include <fmt/format.h>
#include <gmock/gmock.h>

#include "leaklab/error.h"
#include "leaklab/file.h"
#include "leaklab/snapshot.h"
#include "pickle.h"

namespace leaklab {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// What reading the bytes says, or "read".
std::string answer(const std::string& bytes) {
  try {
    read_snapshot(bytes, "that.pickle");
    return "read";
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string stored() {
  return read_file(fs::path(LEAKLAB_SOURCE_DIR) /
                   "tests/data/snapshots/d17b_state_only_leak.pickle");
}

TEST(RefuseSnapshot, WhatCouldRunCodeIsNamedWithItsOffset) {
  const std::vector<std::pair<std::string, std::string>> opcodes = {
      {"cos\nsystem\n", "GLOBAL"},
      {"\x93", "STACK_GLOBAL"},
      {"R", "REDUCE"},
      {"b", "BUILD"},
      {"\x81", "NEWOBJ"},
      {"\x92", "NEWOBJ_EX"},
      {"ios\nsystem\n", "INST"},
      {"o", "OBJ"},
      {"\x82\x01", "EXT1"},
      {"\x83\x01\x01", "EXT2"},
      {"\x84\x01\x01\x01\x01", "EXT4"},
      {"Pid\n", "PERSID"},
      {"Q", "BINPERSID"},
  };
  for (const auto& [bytes, name] : opcodes) {
    EXPECT_THAT(answer("\x80\x04}(\x8c\x08segments"s + bytes + "u."),
                AllOf(HasSubstr("that.pickle: the opcode " + name + " could run code"),
                      HasSubstr("(byte 14)")));
  }
}

TEST(RefuseSnapshot, OpcodesThatNoSnapshotHasAreNamed) {
  EXPECT_THAT(answer("\x80\x04}2."), HasSubstr("the opcode DUP"));
  EXPECT_THAT(answer("\x80\x04\x42\x01\x01\x01\x01x."), HasSubstr("the opcode BINBYTES"));
  EXPECT_THAT(answer("\x80\x04\xff."), HasSubstr("0xff is no opcode"));
}

TEST(RefuseSnapshot, CutAnywhereItSaysSo) {
  const std::string bytes = stored();
  ASSERT_EQ(answer(bytes), "read");
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    ASSERT_THAT(answer(bytes.substr(0, size)),
                AllOf(HasSubstr("cut off"), HasSubstr("record the snapshot again")))
        << size;
  }
  EXPECT_THAT(answer(bytes.substr(0, 20)), HasSubstr("4 of the 8 bytes of a string"));
}

TEST(RefuseSnapshot, AFileThatIsCutOffNamesThePlaceBeyondTheFirstPiece) {
  // Strings of 7 bytes, 9 with what begins them: no piece of the file ends where one does.
  std::string bytes = "\x80\x04"s;
  while (bytes.size() < 600'000) bytes += "\x8c\x07sevenss";
  const fs::path path = fs::path(testing::TempDir()) / "cut.pickle";
  for (const std::size_t size : {262'143u, 262'144u, 262'145u, 524'290u, 599'999u}) {
    write_file(path, bytes.substr(0, size));
    std::string of_file;
    try {
      read_snapshot(path);
    } catch (const UsageError& error) {
      of_file = error.what();
    }
    std::string of_bytes = answer(bytes.substr(0, size));
    of_bytes.replace(0, std::string_view("that.pickle").size(), path.string());
    EXPECT_EQ(of_file, of_bytes) << size;
    EXPECT_THAT(of_file, HasSubstr("(byte "));
  }
  fs::remove(path);
}

TEST(RefuseSnapshot, OneWrongByteIsReadOrRefused) {
  const std::string bytes = stored();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {0x01, 0x10, 0x80, 0xff}) {
      std::string wrong = bytes;
      wrong[at] = static_cast<char>(wrong[at] ^ flip);
      refused += answer(wrong) == "read" ? 0 : 1;
    }
  }
  EXPECT_GT(refused, bytes.size());
}

TEST(RefuseSnapshot, WhatIsNoSnapshotIsToldFromItsFirstBytes) {
  EXPECT_EQ(answer(""),
            "that.pickle: empty; see that its disk has room, and dump the snapshot again (byte 0)");
  EXPECT_THAT(answer("PK\x03\x04"), HasSubstr("zip archive of torch.save"));
  EXPECT_THAT(answer("\x1f\x8b\x08"), HasSubstr("compressed"));
  EXPECT_THAT(answer("hello"), HasSubstr("neither a pickle"));
  EXPECT_THAT(answer("(dp0\n."), HasSubstr("neither a pickle of protocol 2 to 5"));
  EXPECT_THAT(answer("\x80\x06}."), HasSubstr("protocol 6"));
  for (const auto* page : {"<!DOCTYPE html>", "\n<!DOCTYPE html>\n", "<html>"}) {
    EXPECT_THAT(answer(page), HasSubstr("looks like a web page"));
  }
  std::string tar(1024, '\0');
  tar.replace(0, 15, "snapshot.pickle").replace(257, 5, "ustar");
  EXPECT_THAT(answer(tar), HasSubstr("looks like a tar archive; unpack it"));
}

TEST(RefuseSnapshot, ATextLeadsToTheCommandThatTakesMemoryByStep) {
  for (const auto* text : {"step,bytes\n0,512\n", "512\n1024\n", "\"bytes\"\n512\n"}) {
    EXPECT_THAT(answer(text),
                HasSubstr("a CSV of bytes by step to `leaklab import --from-series`"));
  }
  EXPECT_THAT(answer("(dp0\n."), Not(HasSubstr("CSV")));
}

TEST(RefuseSnapshot, AnotherObjectIsNoSnapshot) {
  EXPECT_THAT(answer(Pickle().of({{"model", 1}})), HasSubstr("no memory snapshot"));
  EXPECT_THAT(answer(Pickle().of(3)), HasSubstr("holds an integer, no memory snapshot"));
  EXPECT_THAT(answer(R"({"a": [1, 2]})"), HasSubstr("no memory snapshot"));
}

TEST(RefuseSnapshot, WhatFollowsTheEndIsNotIgnored) {
  const std::string bytes = stored();
  EXPECT_THAT(answer(bytes + "x"), AllOf(HasSubstr("goes on after the end"),
                                         HasSubstr(fmt::format("(byte {})", bytes.size()))));
  EXPECT_THAT(answer("[] []"), HasSubstr("no valid JSON"));
}

TEST(RefuseSnapshot, LengthsThatTheFileCantHoldTakeNoMemory) {
  EXPECT_THAT(answer("\x80\x04X\xff\xff\xff\xff\x61"s),
              HasSubstr("1 of the 4294967295 bytes of a string"));
  EXPECT_THAT(answer("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f\x61"s), HasSubstr("cut off"));
  EXPECT_THAT(answer("\x80\x04\x8b\xff\xff\xff\x7f\x61"s), HasSubstr("of an integer"));
  EXPECT_THAT(answer("\x80\x04\x8b\xff\xff\xff\xff\x61"s), HasSubstr("negative length"));
  EXPECT_THAT(answer("\x80\x04]r\xff\xff\xff\xff."s),
              HasSubstr("sets number 4294967295 of the memo"));
  EXPECT_THAT(answer("\x80\x04j\xff\xff\xff\xff."s),
              HasSubstr("number 4294967295 of the memo, which was never set"));
  const fs::path path = fs::path(testing::TempDir()) / "long.pickle";
  write_file(path, "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f\x61"s);
  EXPECT_THROW(read_snapshot(path), UsageError);
  fs::remove(path);
}

TEST(RefuseSnapshot, TracesOfMoreDevicesThanAMachineHasAreRefused) {
  const std::string empty(2000, ']');
  EXPECT_THAT(answer("\x80\x04](" + empty + "e."), HasSubstr("of more than 1024 devices"));
  std::string json = "[[]";
  for (int at = 1; at < 2000; ++at) json += ",[]";
  EXPECT_THAT(answer(json + "]"), HasSubstr("of more than 1024 devices"));
}

TEST(RefuseSnapshot, DeepNestingIsRefused) {
  const std::string lists(100'000, ']');
  const std::string appends(100'000, 'a');
  EXPECT_THAT(answer("\x80\x04K\x01" + lists + appends + "."), HasSubstr("nested more than 64"));
  EXPECT_THAT(answer("\x80\x04" + lists + "K\x01" + appends + "."),
              HasSubstr("nested more than 64"));
  EXPECT_THAT(answer(std::string(100'000, '[')), HasSubstr("nested more than 128"));
}

TEST(RefuseSnapshot, WhatContainsItselfIsRefused) {
  EXPECT_THAT(answer("\x80\x04]\x94h\x00\x61."s), HasSubstr("list that contains itself"));
  EXPECT_THAT(answer("\x80\x04]\x94(h\x00\x65."s), HasSubstr("list that contains itself"));
  EXPECT_THAT(answer("\x80\x04]\x94]\x94h\x00\x61\x61h\x01\x61."s), testing::Ne("read"));
  EXPECT_THAT(answer("\x80\x04}\x94\x8c\x01xh\x00s."s), HasSubstr("dict that contains itself"));
  EXPECT_THAT(answer("\x80\x04}\x94(\x8c\x08segmentsh\x00u."s), HasSubstr("contains itself"));
}

TEST(RefuseSnapshot, SharingThatGrowsWithoutBoundIsNotFollowed) {
  // Each list holds the one before twice: 2^40 elements in 250 bytes.
  std::string bytes = "\x80\x04}(\x8c\x01x](K\x01K\x02K\x03\x65\x94"s;
  for (char level = 0; level < 40; ++level) {
    bytes += "0](h"s + level + "h"s + level + "e\x94"s;
  }
  bytes += "\x8c\x08segments]u."s;
  const Snapshot snapshot = read_snapshot(bytes, "made");
  EXPECT_THAT(snapshot.dropped, testing::ElementsAre("x"));
  EXPECT_TRUE(snapshot.values.empty());
}

TEST(RefuseSnapshot, ValuesOfAnotherTypeAreNamed) {
  const auto with = [](const char* key, const Document& value) {
    Document event = {{"action", "alloc"},
                      {"addr", 1},
                      {"size", 2},
                      {"stream", 0},
                      {"frames", Document::array()}};
    event[key] = value;
    return answer(Pickle().of({{"device_traces", {{event}}}}));
  };
  EXPECT_THAT(with("size", "big"),
              HasSubstr("`size` of a trace entry is a string, not an integer"));
  EXPECT_THAT(with("size", 0.5), HasSubstr("is a float, not an integer"));
  EXPECT_EQ(with("size", 8.0), "read");
  EXPECT_THAT(with("frames", 3),
              HasSubstr("`frames` of a trace entry is an integer, not a list of frames"));
  EXPECT_THAT(with("user_metadata", 3), HasSubstr("not a string"));
  EXPECT_THAT(answer(Pickle().of({{"segments", 1}})), HasSubstr("`segments` of the snapshot"));
  EXPECT_THAT(answer(Pickle().of({{"device_traces", {1}}, {"segments", Document::array()}})),
              HasSubstr("`device_traces` of the snapshot"));
  EXPECT_THAT(answer("\x80\x04\x8a\x0a\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01."s),
              HasSubstr("an integer of 10 bytes"));
  EXPECT_THAT(answer("\x80\x04\x8c\x02\xc3\x28."s), HasSubstr("no UTF-8"));
}

TEST(RefuseSnapshot, AnEntryHasOneActionOrStateOnly) {
  const auto twice = [](const std::string& between) {
    return answer(
        "\x80\x04}\x8c\x0d"
        "device_traces]]}(\x8c\x06"
        "action\x8c\x03oom\x8c\x04sizeK\x01" +
        between +
        "\x8c\x06"
        "action\x8c\x05"
        "allocuaas.");
  };
  EXPECT_THAT(twice(""), HasSubstr("a trace entry with two `action`"));
  EXPECT_THAT(twice("u("), HasSubstr("a trace entry with two `action`"));
  EXPECT_THAT(answer("\x80\x04]}(\x8c\x05state\x8c\x01x\x8c\x04sizeK\x01\x8c\x05state\x8c\x01yua."),
              HasSubstr("a block with two `state`"));
}

TEST(RefuseSnapshot, AnEntryStandsInOnePlaceOnly) {
  std::string event =
      "}\x94(\x8c\x06"
      "action\x8c\x05"
      "alloc\x8c\x04sizeK\x01u";
  EXPECT_THAT(answer("\x80\x04}(\x8c\x0d"
                     "device_traces](](" +
                     event + "h\x00\x65\x65u."s),
              HasSubstr("stands in two places"));
}

TEST(RefuseSnapshot, OperationsWithoutTheirOperandsAreRefused) {
  for (const char* bytes : {"e.",
                            "u.",
                            "a.",
                            "s.",
                            "(e.",
                            "(u.",
                            "0.",
                            "1.",
                            "t.",
                            "\x86.",
                            "\x94.",
                            "K\x01\x61.",
                            "](K\x01u.",
                            "}K\x01\x61.",
                            "}(K\x01u.",
                            "(K\x01\x61.",
                            ".",
                            "]].",
                            "}(\x8c\x01xK\x01u(K\x01\x65.",
                            "](K\x01\x65(\x8c\x01xK\x01u.",
                            "](."}) {
    EXPECT_THAT(answer("\x80\x04"s + bytes), testing::Ne("read")) << bytes;
  }
}

TEST(RefuseSnapshot, JsonThatIsBrokenNamesThePlace) {
  EXPECT_THAT(answer(R"({"segments": [}])"),
              AllOf(HasSubstr("no valid JSON"), HasSubstr("column 15"), HasSubstr("(byte 15)")));
  EXPECT_THAT(answer(R"({"segments": [)"), HasSubstr("no valid JSON"));
}

TEST(RefuseSnapshot, AFileThatIsNotThereIsNamed) {
  EXPECT_THROW(
      {
        try {
          read_snapshot(fs::path("/nowhere/x.pickle"));
        } catch (const UsageError& error) {
          EXPECT_THAT(error.what(), HasSubstr("can't read /nowhere/x.pickle: No such file"));
          throw;
        }
      },
      UsageError);
}

TEST(RefuseSnapshot, SizesThatNoAllocatorGivesOutAreNamedWithTheirEntry) {
  const auto trace = [](const std::string& first, const std::string& second) {
    return R"({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": )" +
           first + R"(}, {"action": "alloc", "addr": 2, "size": )" + second + "}]]}";
  };
  EXPECT_THAT(answer(trace("512", "-5")),
              AllOf(HasSubstr("that.pickle: `size` of device_traces[0][1] is -5 bytes, which no "
                              "allocator gives out"),
                    HasSubstr("record the snapshot again")));
  // Each of them would do, and both together are too many to count with.
  EXPECT_THAT(answer(trace("70000000000000000", "70000000000000000")),
              HasSubstr("`size` of device_traces[0][1] is 70000000000000000 bytes, with those "
                        "before it more than any memory has"));
  EXPECT_EQ(answer(trace("70000000000000000", "512")), "read");
  // What was asked for and not given may be any size.
  EXPECT_EQ(answer(R"({"segments": [], "device_traces": [[{"action": "oom", "device_free": 1,
      "size": 100000000000000000}]]})"),
            "read");
  const auto block = R"({"segments": [{"device": 0, "address": 0, "total_size": 1024, "blocks":
      [{"size": 512, "state": "inactive"}, {"size": -512, "state": "inactive"}]}]})";
  EXPECT_THAT(answer(block), HasSubstr("`size` of segments[0]['blocks'][1] is -512 bytes"));
  EXPECT_THAT(answer(R"({"segments": [{"device": 0, "address": 0, "total_size": 1024,
      "active_size": -1, "blocks": []}]})"),
              HasSubstr("`active_size` of segments[0] is -1 bytes"));
}

TEST(RefuseSnapshot, AnEntryOfAnotherShapeIsNamedWithItsNumber) {
  Document event = {{"action", "alloc"}, {"addr", 1}, {"size", 2}};
  Document trace = Document::array();
  for (int k = 0; k < 5; ++k) trace.push_back(event);
  trace[3].erase("action");
  const auto with = [](const Document& traces) {
    return Document{{"device_traces", traces}, {"segments", Document::array()}};
  };
  const auto says = [](std::size_t number, const std::string& is) {
    return AllOf(HasSubstr("`device_traces` of the snapshot is a list or dict of another shape"),
                 HasSubstr(fmt::format("entry {} of a list before byte ", number)),
                 HasSubstr(is + ", unlike others of it"));
  };
  const std::string another = "is a list or dict of another shape";
  for (const std::size_t batch : {1000U, 7U, 3U}) {
    EXPECT_THAT(answer(Pickle({.batch = batch}).of(with({trace}))), says(3, another)) << batch;
  }
  EXPECT_THAT(answer(with({trace}).dump()), says(3, another));
  EXPECT_THAT(answer(Pickle().of(with({{event}, {event, 17}}))), says(1, "is an integer"));
  EXPECT_THAT(answer(Pickle().of(with({{event}, 17}))), says(1, "is an integer"));
  EXPECT_THAT(answer(Pickle().of(with({{17, event}}))), says(0, "is an integer"));
  const Document segment = {{"address", 0}, {"total_size", 8}, {"blocks", Document::array()}};
  EXPECT_THAT(answer(Pickle().of({{"segments", {segment, segment, 17}}})),
              AllOf(HasSubstr("not a list of segments; entry 2 of a list before byte "),
                    HasSubstr("is an integer, unlike others of it")));
  // What we know nothing of may hold anything.
  EXPECT_EQ(answer(Pickle().of({{"other", {event, 17}}, {"segments", Document::array()}})), "read");
}

TEST(RefuseSnapshot, ANumberOfTheMemoIsSetOnce) {
  EXPECT_THAT(answer("\x80\x02]q\x00]q\x00\x61."s),
              AllOf(HasSubstr("sets number 0 of the memo a second time"), HasSubstr("(byte 6)")));
}

TEST(RefuseSnapshot, AnEntryIsCompleteWhenTheNextBegins) {
  const auto event = [](char number) {
    return "}q"s + number +
           "(\x8c\x06"
           "action\x8c\x05"
           "alloc\x8c\x04sizeK\x01u";
  };
  const auto with = [](const std::string& events) {
    return answer(
        "\x80\x04}(\x8c\x0d"
        "device_traces](](" +
        events + "ee\x8c\x08segments]u.");
  };
  EXPECT_EQ(with(event('\1') + "\x8c\x01xK\x01s"), "read");
  EXPECT_THAT(with(event('\1') + event('\2') + "h\x01\x8c\x01xK\x01s0"),
              HasSubstr("a key of a trace entry comes after the next entry"));
}

}  // namespace
}  // namespace leaklab

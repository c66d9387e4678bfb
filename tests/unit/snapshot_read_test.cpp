#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "leaklab/file.h"
#include "leaklab/snapshot.h"
#include "pickle.h"

namespace leaklab {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

Document frame(const std::string& file, std::uint64_t line, const std::string& function) {
  return {{"name", function}, {"filename", file}, {"line", line}};
}

Document event(const std::string& action, std::uint64_t address, std::int64_t size) {
  return {{"action", action}, {"addr", address}, {"size", size},
          {"stream", 0},      {"time_us", 100},  {"frames", Document::array()}};
}

// What the current version writes, small.
Document usual() {
  const Document frames = {frame("/app/train.py", 12, "step"), frame("/app/train.py", 40, "main")};
  Document alloc = event("alloc", 0x7fc309a00000, 512);
  alloc["compile_context"] = "N/A";
  alloc["user_metadata"] = "step=3";
  alloc["frames"] = frames;
  Document document;
  document["segments"] = {{{"device", 1},
                           {"address", 0x7fc309a00000},
                           {"total_size", 2097152},
                           {"allocated_size", 512},
                           {"active_size", 1024},
                           {"requested_size", 500},
                           {"stream", 7},
                           {"segment_type", "small"},
                           {"segment_pool_id", {2, 0}},
                           {"is_expandable", true},
                           {"frames", frames},
                           {"blocks",
                            {{{"address", 0x7fc309a00000},
                              {"size", 512},
                              {"requested_size", 500},
                              {"state", "active_allocated"},
                              {"frames", frames}},
                             {{"address", 0x7fc309a00200},
                              {"size", 2096640},
                              {"requested_size", 0},
                              {"state", "inactive"},
                              {"frames", Document::array()}}}}}};
  document["device_traces"] = {Document::array(), {alloc, event("free_requested", 4096, 8)}};
  document["allocator_settings"] = {{"max_split_size", -1}, {"roundup", {{"1", 0}}}};
  document["external_annotations"] = {
      {{"stage", "START"}, {"name", "## step 3 ##"}, {"device", 0}, {"time_us", 99}}};
  return document;
}

Snapshot read(const Document& document, PickleStyle style = {}) {
  return read_snapshot(Pickle(style).of(document), "made");
}

std::vector<std::string> lines(const Snapshot& snapshot, StackId stack) {
  std::vector<std::string> found;
  for (const FrameId id : snapshot.stacks[stack]) {
    const Frame& frame = snapshot.frames[id];
    found.push_back(fmt::format("{}:{} {}", snapshot.strings[frame.file], frame.line,
                                snapshot.strings[frame.function]));
  }
  return found;
}

TEST(ReadSnapshot, EveryColumnArrives) {
  const Snapshot snapshot = read(usual());
  ASSERT_THAT(snapshot.segments, SizeIs(1));
  const Segment& segment = snapshot.segments[0];
  EXPECT_EQ(segment.device, 1);
  EXPECT_EQ(segment.address, 0x7fc309a00000U);
  EXPECT_EQ(segment.total_size, 2097152);
  EXPECT_EQ(segment.allocated_size, 512);
  EXPECT_EQ(segment.active_size, 1024);
  EXPECT_EQ(segment.requested_size, 500);
  EXPECT_EQ(snapshot.streams[segment.stream], 7U);
  EXPECT_EQ(snapshot.pools[segment.pool], std::pair(std::int64_t{2}, std::int64_t{0}));
  EXPECT_EQ(snapshot.strings[segment.type], "small");
  EXPECT_TRUE(segment.expandable);
  EXPECT_THAT(lines(snapshot, segment.stack),
              ElementsAre("/app/train.py:12 step", "/app/train.py:40 main"));
  EXPECT_EQ(segment.first_block, 0U);
  EXPECT_EQ(segment.blocks, 2U);
  EXPECT_EQ(segment.keys, Segment::usual_keys);

  ASSERT_THAT(snapshot.blocks, SizeIs(2));
  EXPECT_EQ(snapshot.blocks[0].requested, 500);
  EXPECT_EQ(snapshot.blocks[0].state, BlockState::active_allocated);
  EXPECT_EQ(snapshot.blocks[0].stack, segment.stack);
  EXPECT_EQ(snapshot.blocks[1].address, 0x7fc309a00200U);
  EXPECT_EQ(snapshot.blocks[1].size, 2096640);
  EXPECT_EQ(snapshot.blocks[1].state, BlockState::inactive);
  EXPECT_EQ(snapshot.blocks[1].stack, 0U);

  ASSERT_THAT(snapshot.traces, SizeIs(2));
  EXPECT_THAT(snapshot.traces[0], IsEmpty());
  ASSERT_THAT(snapshot.traces[1], SizeIs(2));
  const TraceEvent alloc = snapshot.traces[1][0];
  EXPECT_EQ(alloc.kind, EventKind::alloc);
  EXPECT_EQ(alloc.address, 0x7fc309a00000U);
  EXPECT_EQ(alloc.size, 512);
  EXPECT_EQ(alloc.time_us, 100);
  EXPECT_EQ(alloc.stack, segment.stack);
  EXPECT_EQ(snapshot.strings[alloc.compile_context], "N/A");
  EXPECT_EQ(snapshot.strings[alloc.user_metadata], "step=3");
  EXPECT_EQ(snapshot.traces[1][1].kind, EventKind::free_requested);

  ASSERT_THAT(snapshot.annotations, SizeIs(1));
  EXPECT_EQ(snapshot.strings[snapshot.annotations[0].stage], "START");
  EXPECT_EQ(snapshot.strings[snapshot.annotations[0].name], "## step 3 ##");
  EXPECT_EQ(snapshot.annotations[0].time_us, 99);
  EXPECT_EQ(snapshot.allocator_settings["max_split_size"], -1);
  EXPECT_EQ(snapshot.keys, 15);
  EXPECT_FALSE(snapshot.bare_segments);
}

TEST(ReadSnapshot, ProtocolsTwoToFiveAndJsonSayTheSame) {
  const Snapshot expected = read(usual());
  for (int protocol = 2; protocol <= 5; ++protocol) {
    EXPECT_EQ(difference(expected, read(usual(), {.protocol = protocol})), "") << protocol;
  }
  EXPECT_EQ(difference(expected, read_snapshot(usual().dump(), "made")), "");
}

TEST(ReadSnapshot, HowThePickleWasPutTogetherMakesNoDifference) {
  const Snapshot expected = read(usual());
  EXPECT_EQ(
      difference(expected, read(usual(), {.protocol = 2, .memoize = false, .batch = 1 << 20})), "");
  EXPECT_EQ(difference(expected, read(usual(), {.batch = 1})), "");
  EXPECT_EQ(difference(expected, read(usual(), {.one_by_one = true})), "");
  EXPECT_EQ(difference(expected, read(usual(), {.pools_are_lists = true})), "");
}

TEST(ReadSnapshot, AListOfSegmentsAloneIsASnapshot) {
  const Snapshot snapshot = read(usual()["segments"]);
  EXPECT_TRUE(snapshot.bare_segments);
  EXPECT_THAT(snapshot.segments, SizeIs(1));
  EXPECT_THAT(snapshot.blocks, SizeIs(2));
  EXPECT_THAT(snapshot.traces, IsEmpty());
  EXPECT_TRUE(read(Document::array()).bare_segments);
}

TEST(ReadSnapshot, TracesMayComeFirstAndTheRestMayBeAbsent) {
  const Document document = {{"device_traces", {{event("alloc", 1, 2)}}},
                             {"segments", usual()["segments"]}};
  const Snapshot snapshot = read(document);
  EXPECT_THAT(snapshot.traces, SizeIs(1));
  EXPECT_THAT(snapshot.segments, SizeIs(1));
  EXPECT_EQ(snapshot.keys, Snapshot::has_segments | Snapshot::has_device_traces);
}

TEST(ReadSnapshot, NoSegmentAndFourEmptyTracesAreValid) {
  const Document empty = Document::array();
  const Snapshot snapshot =
      read({{"segments", empty}, {"device_traces", {empty, empty, empty, empty}}});
  EXPECT_THAT(snapshot.traces, SizeIs(4));
  EXPECT_THAT(snapshot.segments, IsEmpty());
}

TEST(ReadSnapshot, BlocksOfTorch20LieEndToEndAndTakeTheirFramesFromTheNewestHistory) {
  Document segment = {{"device", 0},       {"address", 1000}, {"total_size", 48},
                      {"active_size", 32}, {"stream", 0},     {"segment_type", "large"}};
  const auto entry = [](std::int64_t size, std::uint64_t line) {
    return Document{{"addr", 5}, {"real_size", size}, {"frames", {frame("a.py", line, "f")}}};
  };
  segment["blocks"] = {
      {{"size", 16}, {"state", "inactive"}},
      {{"size", 16}, {"state", "active_allocated"}, {"history", {entry(12, 1), entry(9, 2)}}},
      {{"size", 16}, {"state", "active_pending_free"}, {"history", {entry(4, 3)}}}};
  const Snapshot snapshot = read(Document::array({segment}));
  ASSERT_THAT(snapshot.blocks, SizeIs(3));
  EXPECT_EQ(snapshot.blocks[0].address, 1000U);
  EXPECT_EQ(snapshot.blocks[1].address, 1016U);
  EXPECT_EQ(snapshot.blocks[2].address, 1032U);
  EXPECT_EQ(snapshot.blocks[1].requested, 12);
  EXPECT_THAT(lines(snapshot, snapshot.blocks[1].stack), ElementsAre("a.py:1 f"));
  EXPECT_EQ(snapshot.blocks[1].keys, Block::has_size | Block::has_state | Block::has_history);
  EXPECT_EQ(snapshot.blocks[2].state, BlockState::active_pending_free);
  EXPECT_EQ(snapshot.blocks[2].requested, 4);
  ASSERT_THAT(snapshot.history, SizeIs(3));
  EXPECT_EQ(snapshot.history[1].block, 1U);
  EXPECT_EQ(snapshot.history[1].real_size, 9);
  EXPECT_EQ(snapshot.history[2].block, 2U);
  EXPECT_EQ(snapshot.segments[0].keys & Segment::has_pool_id, 0);
}

TEST(ReadSnapshot, WhatIsOfNoBlockAndOfNoSegmentIsLeftOut) {
  // A history entry and a block, each put on the stack and taken from it again.
  const std::string bytes =
      "\x80\x04}(\x8c\x09real_sizeK\x01u0}(\x8c\x05state\x8c\x08inactive\x8c\x04sizeK\x01u0]."s;
  const Snapshot snapshot = read_snapshot(bytes, "made");
  EXPECT_THAT(snapshot.history, IsEmpty());
  EXPECT_THAT(snapshot.blocks, IsEmpty());
}

TEST(ReadSnapshot, AnEntrySaysWhichKeysItHad) {
  Document bare = event("free_completed", 1, 2);
  bare.erase("time_us");
  bare.erase("frames");
  const Snapshot snapshot = read({{"device_traces", {{bare, event("alloc", 1, 2)}}}});
  EXPECT_EQ(snapshot.traces[0][0].kind, EventKind::free_completed);
  EXPECT_EQ(snapshot.traces[0][0].keys,
            TraceEvent::has_address | TraceEvent::has_size | TraceEvent::has_stream);
  EXPECT_EQ(snapshot.traces[0][1].keys, TraceEvent::usual_keys);
}

TEST(ReadSnapshot, PoolIdsAreReadOfEventsToo) {
  Document first = event("alloc", 1, 2);
  first["pool_id"] = {1, 0};
  const Document document = {{"device_traces", {{first, event("alloc", 3, 4)}}}};
  for (const bool lists : {false, true}) {
    const Snapshot snapshot = read(document, {.protocol = 5, .pools_are_lists = lists});
    const TraceEvent event = snapshot.traces[0][0];
    EXPECT_EQ(snapshot.pools[event.pool], std::pair(std::int64_t{1}, std::int64_t{0}));
    EXPECT_EQ(snapshot.traces[0][1].pool, 0U);
    EXPECT_THAT(snapshot.values, IsEmpty());
  }
}

TEST(ReadSnapshot, OutOfMemoryHasTheFreeBytesInPlaceOfTheAddress) {
  const Document oom = {{"action", "oom"}, {"device_free", 123}, {"size", std::int64_t{1} << 40},
                        {"stream", 0},     {"time_us", 5},       {"frames", Document::array()}};
  const Snapshot snapshot = read({{"device_traces", {{oom, event("free_requested", 9, 9)}}}});
  EXPECT_EQ(snapshot.traces[0][0].kind, EventKind::oom);
  EXPECT_EQ(snapshot.traces[0][0].address, 123U);
  EXPECT_EQ(snapshot.traces[0][0].size, std::int64_t{1} << 40);
  EXPECT_EQ(snapshot.traces[0][0].keys, TraceEvent::usual_keys);
  EXPECT_THAT(snapshot.traces[0], SizeIs(2));
}

// The same document with the keys of every dict in the opposite order.
Document turned(const Document& document) {
  if (document.is_array()) {
    Document made = Document::array();
    for (const Document& element : document) made.push_back(turned(element));
    return made;
  }
  if (!document.is_object()) return document;
  Document made = Document::object();
  for (auto item = document.rbegin(); item != document.rend(); ++item) {
    made[item.key()] = turned(item.value());
  }
  return made;
}

TEST(ReadSnapshot, TheOrderOfTheKeysMakesNoDifference) {
  Document document = usual();
  document["device_traces"][1].push_back(
      {{"action", "oom"}, {"device_free", 123}, {"size", 4}, {"stream", 0}});
  EXPECT_EQ(difference(read(document), read(turned(document))), "");
}

TEST(ReadSnapshot, TheAddressOfAnotherActionIsKeptBesides) {
  Document oom = event("oom", 5, 6);
  oom["device_free"] = 7;
  Document alloc = event("alloc", 5, 6);
  alloc["device_free"] = 7;
  const Snapshot snapshot = read({{"device_traces", {{oom, alloc, turned(oom), turned(alloc)}}}});
  for (const std::size_t row : {0U, 1U, 2U, 3U}) {
    const bool is_oom = row % 2 == 0;
    EXPECT_EQ(snapshot.traces[0][row].address, is_oom ? 7U : 5U);
    const auto extras = extras_of(snapshot.trace_extras[0], row);
    ASSERT_THAT(extras, SizeIs(1));
    EXPECT_EQ(snapshot.strings[extras[0].key], is_oom ? "addr" : "device_free");
    EXPECT_EQ(extras[0].value, is_oom ? 5U : 7U);
  }
  EXPECT_EQ(difference(snapshot, read_snapshot(snapshot_bytes(snapshot), "written")), "");
}

TEST(ReadSnapshot, ActionsAndStatesOfLaterVersionsKeepTheirNames) {
  Document document = usual();
  document["segments"][0]["blocks"][0]["state"] = "active_borrowed";
  document["device_traces"][1][1]["action"] = "workspace_snapshot";
  const Snapshot snapshot = read(document);
  EXPECT_EQ(snapshot.traces[1][1].kind, EventKind::other);
  EXPECT_EQ(action_of(snapshot, 1, 1), "workspace_snapshot");
  EXPECT_EQ(action_of(snapshot, 1, 0), "alloc");
  EXPECT_EQ(snapshot.blocks[0].state, BlockState::other);
  EXPECT_EQ(difference(snapshot, read_snapshot(snapshot_bytes(snapshot), "written")), "");
}

TEST(ReadSnapshot, EveryKindOfEventIsKnown) {
  Document trace = Document::array();
  for (int kind = 0; kind < static_cast<int>(EventKind::other); ++kind) {
    trace.push_back(event(std::string(name(static_cast<EventKind>(kind))), 1, 2));
  }
  const Snapshot snapshot = read({{"device_traces", {trace}}});
  for (std::size_t k = 0; k < trace.size(); ++k) {
    EXPECT_EQ(static_cast<std::size_t>(snapshot.traces[0][k].kind), k);
  }
}

TEST(ReadSnapshot, ALineOfMinusOneIsReadWithAndWithoutSign) {
  Document document = usual();
  document["segments"][0]["frames"] = {frame("", 0, "??"),
                                       frame("C:\\x\\y.py", 18446744073709551615U, "f")};
  const Snapshot snapshot = read(document);
  EXPECT_THAT(lines(snapshot, snapshot.segments[0].stack),
              ElementsAre(":0 ??", "C:\\x\\y.py:18446744073709551615 f"));
  document["segments"][0]["frames"][1]["line"] = -1;
  EXPECT_EQ(difference(snapshot, read(document)), "");
}

TEST(ReadSnapshot, StacksDeeperThanAPicklesBatchAreWhole) {
  Document document = usual();
  Document frames = Document::array();
  for (int level = 0; level < 2500; ++level)
    frames.push_back(frame("deep.py", 1, fmt::format("f{}", level)));
  document["device_traces"][1][1]["frames"] = frames;
  for (const std::size_t batch : {1000U, 7U, 1U << 20}) {
    const Snapshot snapshot = read(document, {.batch = batch});
    const auto stack = snapshot.stacks[snapshot.traces[1][1].stack];
    ASSERT_THAT(stack, SizeIs(2500));
    EXPECT_EQ(snapshot.strings[snapshot.frames[stack[2499]].function], "f2499");
  }
}

TEST(ReadSnapshot, AStackThatManyEventsShareIsThereOnce) {
  Document document = usual();
  for (int k = 0; k < 3000; ++k)
    document["device_traces"][1].push_back(document["device_traces"][1][0]);
  const Snapshot snapshot = read(document);
  EXPECT_THAT(snapshot.traces[1], SizeIs(3002));
  EXPECT_EQ(snapshot.stacks.size(), 2U);
  EXPECT_THAT(snapshot.frames, SizeIs(2));
}

TEST(ReadSnapshot, UnknownKeysAreKept) {
  Document document = usual();
  const auto frames = Document::array({frame("b.py", 1, "g")});
  document["since"] = "2.12";
  document["host"] = {{"state", "ok"}, {"size", 3}, {"list", {1, nullptr, true, 0.5}}};
  document["host_traces"] = {{event("alloc", 5, 6)}};
  document["segments"][0]["owner"] = nullptr;
  document["segments"][0]["blocks"][1]["age"] = -7;
  document["device_traces"][1][0]["forward_frames"] = frames;
  document["device_traces"][1][1]["thread"] = 18446744073709551615U;
  document["device_traces"][1][1]["compile_context"] = nullptr;
  document["device_traces"][1][1]["ratio"] = 0.25;
  document["external_annotations"][0]["ids"] = {1, 2, 3};
  document["segments"][0]["frames"][0]["fx_node_name"] = "mm";
  const Snapshot snapshot = read(document);
  EXPECT_THAT(snapshot.extras, SizeIs(3));
  EXPECT_THAT(snapshot.segment_extras, SizeIs(1));
  EXPECT_THAT(snapshot.block_extras, SizeIs(1));
  EXPECT_THAT(snapshot.trace_extras[1], SizeIs(4));
  EXPECT_THAT(snapshot.frame_extras, SizeIs(1));
  EXPECT_THAT(snapshot.annotation_extras, SizeIs(1));
  EXPECT_THAT(snapshot.dropped, IsEmpty());
  EXPECT_THAT(snapshot.segments, SizeIs(1));
  EXPECT_THAT(snapshot.blocks, SizeIs(2));
  const Extra& forward = extras_of(snapshot.trace_extras[1], 0)[0];
  ASSERT_EQ(forward.kind, Extra::Kind::stack);
  EXPECT_THAT(lines(snapshot, static_cast<StackId>(forward.value)), ElementsAre("b.py:1 g"));

  const Snapshot again = read_snapshot(snapshot_bytes(snapshot), "written");
  EXPECT_EQ(difference(snapshot, again), "");
  const std::string json = snapshot_bytes(snapshot, SnapshotFormat::json);
  EXPECT_EQ(difference(snapshot, read_snapshot(json, "written")), "");
  // The same keys and values as at first, in whatever order.
  EXPECT_EQ(nlohmann::json::parse(json), nlohmann::json::parse(document.dump()));
}

TEST(ReadSnapshot, EachDeviceHasItsOwnEventsAndWhatElseTheyHad) {
  // The last of 1001 stands alone, as does the only one of the third.
  Document document = {{"device_traces", Document::array()}};
  const std::vector<std::size_t> sizes = {1001, 0, 1, 2001, 3};
  std::uint64_t next = 0;
  for (const std::size_t size : sizes) {
    Document trace = Document::array();
    while (trace.size() < size) {
      trace.push_back(event("alloc", next, 8));
      if (next % 3 == 0) trace.back()["thread"] = next;
      ++next;
    }
    document["device_traces"].push_back(trace);
  }
  for (const PickleStyle& style : std::vector<PickleStyle>{
           {}, {.protocol = 2}, {.batch = 1 << 20}, {.batch = 8}, {.one_by_one = true}}) {
    const Snapshot snapshot = read(document, style);
    ASSERT_THAT(snapshot.traces, SizeIs(sizes.size()));
    next = 0;
    for (std::size_t device = 0; device < sizes.size(); ++device) {
      ASSERT_THAT(snapshot.traces[device], SizeIs(sizes[device]));
      for (std::size_t row = 0; row < sizes[device]; ++row, ++next) {
        EXPECT_EQ(snapshot.traces[device][row].address, next);
        const auto extras = extras_of(snapshot.trace_extras[device], row);
        ASSERT_THAT(extras, SizeIs(next % 3 == 0 ? 1 : 0));
        if (!extras.empty()) {
          EXPECT_EQ(extras[0].value, next);
        }
      }
    }
  }
}

// The peak of memory, in bytes, that reading the file takes in a process of its own.
std::size_t memory_to_read(const fs::path& path) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  ::malloc_trim(0);  // else what was freed before would hide what is taken
  const pid_t child = ::fork();
  if (child == 0) {
    const auto peak = [] {
      rusage used = {};
      ::getrusage(RUSAGE_SELF, &used);
      return static_cast<std::size_t>(used.ru_maxrss) * 1024;
    };
    const std::size_t before = peak();
    read_snapshot(path);
    const std::size_t taken = peak() - before;
    ::_exit(::write(ends[1], &taken, sizeof taken) == sizeof taken ? 0 : 1);
  }
  std::size_t taken = 0;
  EXPECT_EQ(::read(ends[0], &taken, sizeof taken), static_cast<ssize_t>(sizeof taken));
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return taken;
}

TEST(ReadSnapshot, ReadingTakesAtMostOneAndAHalfTimesTheFile) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer takes memory of its own";
#endif
  // Entries of 40 bytes, as short as those that have a time; 1000 of a list at a time, and each
  // with a number of the memo, as Python does, or all at a time, as LibTorch does.
  const fs::path path = fs::path(testing::TempDir()) / "many.pickle";
  constexpr std::size_t events = 400'000;
  for (const std::size_t devices : {1U, 2U, 8U}) {
    for (const bool python : {true, false}) {
      std::string bytes = "\x80\x04";
      for (const char* key : {"action", "alloc", "addr", "size", "stream", "time_us"}) {
        bytes += fmt::format("\x8c{}{}\x94{}", static_cast<char>(std::strlen(key)), key, '0');
      }
      bytes +=
          "}(\x8c\x0d"
          "device_traces](";
      for (std::size_t device = 0; device < devices; ++device) {
        bytes += "](";
        for (std::size_t row = 0; row < events / devices; ++row) {
          if (python && row % 1000 == 999) bytes += "e(";
          bytes += python ? "}\x94(" : "}(";
          bytes += "h\0h\1h\2\x8a\6\0\0\xa0\x09\xc3\x7fh\3J\0\2\1\0h\4K\0h\5\x8a\7\0\1\2\3\4\5\6u"s;
        }
        bytes += "e";
      }
      write_file(path, bytes + "eu.");
      EXPECT_LT(memory_to_read(path), bytes.size() + bytes.size() / 2 + 3'000'000)
          << devices << " devices, " << (python ? "Python" : "LibTorch");
    }
  }
  fs::remove(path);
}

TEST(ReadSnapshot, AFileIsReadInPiecesAndSoIsAPipe) {
  Document document = usual();
  Document& trace = document["device_traces"][1];
  for (int k = 0; k < 20000; ++k) trace.push_back(event("alloc", static_cast<std::uint64_t>(k), k));
  document["device_traces"][1][7]["user_metadata"] = std::string(700'000, 'x');
  const std::string bytes = Pickle().of(document);
  const Snapshot expected = read_snapshot(bytes, "made");
  const fs::path path = fs::path(testing::TempDir()) / "pieces.pickle";
  write_file(path, bytes);
  EXPECT_EQ(difference(expected, read_snapshot(path)), "");
  write_file(path, document.dump());
  EXPECT_EQ(difference(expected, read_snapshot(path)), "");
  fs::remove(path);

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writer([&] {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t written = ::write(ends[1], bytes.data() + at, bytes.size() - at);
      if (written <= 0) break;
      at += static_cast<std::size_t>(written);
    }
    ::close(ends[1]);
  });
  const fs::path pipe = fmt::format("/proc/self/fd/{}", ends[0]);
  EXPECT_EQ(difference(expected, read_snapshot(pipe)), "");
  writer.join();
  ::close(ends[0]);
}

}  // namespace
}  // namespace leaklab

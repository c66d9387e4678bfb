// Whatever a file says that can be read, it is diagnosed, compared and imported, or refused in
// words. The input is not a file but what one says, so that few bytes make a loop: each byte of the
// input decides on the next event, its line and its size.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "leaklab/diagnosis.h"
#include "leaklab/error.h"
#include "leaklab/import.h"
#include "leaklab/snapshot.h"

namespace {

using namespace leaklab;

constexpr std::string_view files[] = {
    "train.py",
    "/usr/lib/python3.11/site-packages/torch/optim/adam.py",
    "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py",
    "??",
    "",
    "net.cpp"};
constexpr std::string_view functions[] = {"train",  "<module>",          "forward", "<genexpr>",
                                          "_apply", "at::native::empty", "main"};
constexpr std::string_view marks[] = {"step 1", "step 2", "Optimizer.step#SGD.step", "batch", ""};
// What a program says of its events; the number of the round may follow.
constexpr std::string_view metadata[] = {"step ", "epoch 3 batch ", "{\"step\": ", "evaluation",
                                         ""};

StackId stack_of(Snapshot& snapshot, FuzzedDataProvider& input) {
  std::vector<FrameId> frames;
  for (auto depth = input.ConsumeIntegralInRange(0, 4); depth > 0; --depth) {
    Frame frame;
    frame.file = snapshot.strings.intern(input.PickValueInArray(files));
    frame.function = snapshot.strings.intern(input.PickValueInArray(functions));
    frame.line = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint64_t>(0, 7)
                                     : input.ConsumeIntegral<std::uint64_t>();
    frames.push_back(static_cast<FrameId>(snapshot.frames.size()));
    snapshot.frames.push_back(frame);
  }
  // Now and then deep, as recursion is: frames that come again, so that few bytes make many.
  if (!frames.empty() && input.ConsumeIntegralInRange(0, 7) == 0) {
    const auto once = frames.size();
    const auto depth = input.ConsumeIntegralInRange<std::size_t>(once, 64);
    while (frames.size() < depth) frames.push_back(frames[frames.size() - once]);
  }
  return snapshot.stacks.intern(frames);
}

StackId one_of(const std::vector<StackId>& stacks, FuzzedDataProvider& input) {
  return stacks[input.ConsumeIntegralInRange<std::size_t>(0, stacks.size() - 1)];
}

std::int64_t size_of(FuzzedDataProvider& input) {
  return input.ConsumeIntegralInRange(0, 15) > 0
             ? input.ConsumeIntegralInRange<std::int64_t>(0, 9) << 9
             : input.ConsumeIntegral<std::int64_t>();
}

void add_trace(Snapshot& snapshot, const std::vector<StackId>& stacks, FuzzedDataProvider& input) {
  auto& trace = snapshot.traces.emplace_back();
  // A stretch of events that comes again, with some that come once.
  const auto rounds = input.ConsumeIntegralInRange(1, 12);
  const auto length = input.ConsumeIntegralInRange(0, 24);
  std::vector<TraceEvent> round;
  for (int each = 0; each < length; ++each) {
    TraceEvent event;
    event.kind = static_cast<EventKind>(input.ConsumeIntegralInRange(0, 8));
    event.address = input.ConsumeIntegralInRange<std::uint64_t>(0, 31) << 20;
    event.size = size_of(input);
    event.stack = one_of(stacks, input);
    if (input.ConsumeIntegralInRange(0, 31) == 0)
      event.time_us = input.ConsumeIntegral<std::int64_t>();
    round.push_back(event);
  }
  const bool tells = input.ConsumeBool();
  const auto counts = tells ? input.PickValueInArray(metadata) : "";
  std::int64_t number = tells ? input.ConsumeIntegralInRange(0, 100) : 0;
  std::int64_t time = 0;
  for (int each = 0; each < rounds; ++each) {
    // Most counts go up by one a round; some stay, go back or leap.
    if (tells) number += input.ConsumeIntegralInRange(0, 7) > 0 ? 1 : input.ConsumeIntegral<char>();
    const auto told = !tells ? 0
                      : input.ConsumeIntegralInRange(0, 15) > 0
                          ? snapshot.strings.intern(std::string(counts) + std::to_string(number))
                          : snapshot.strings.intern(input.PickValueInArray(metadata));
    for (auto event : round) {
      if (told != 0) {
        event.user_metadata = told;
        event.keys |= TraceEvent::has_user_metadata;
      }
      event.address += static_cast<std::uint64_t>(each % 4) << 30;
      if (event.time_us == 0) event.time_us = ++time;
      trace.push_back(event);
    }
    if (input.ConsumeBool()) continue;
    TraceEvent once;
    once.address = std::uint64_t{0x7f} << 40 | static_cast<std::uint64_t>(each) << 20;
    once.kind = EventKind::alloc;
    once.size = size_of(input);
    once.stack = one_of(stacks, input);
    once.time_us = ++time;
    trace.push_back(once);
  }
}

Snapshot snapshot_of(FuzzedDataProvider& input) {
  Snapshot snapshot;
  std::vector<StackId> stacks = {0};
  for (auto count = input.ConsumeIntegralInRange(0, 8); count > 0; --count) {
    stacks.push_back(stack_of(snapshot, input));
  }
  for (auto devices = input.ConsumeIntegralInRange(1, 2); devices > 0; --devices) {
    add_trace(snapshot, stacks, input);
  }
  for (auto count = input.ConsumeIntegralInRange(0, 6); count > 0; --count) {
    Segment segment;
    segment.device = input.ConsumeIntegralInRange(0, 3);
    segment.address = input.ConsumeIntegralInRange<std::uint64_t>(0, 127) << 20;
    segment.total_size = size_of(input);
    segment.first_block = static_cast<std::uint32_t>(snapshot.blocks.size());
    segment.blocks = input.ConsumeIntegralInRange<std::uint32_t>(0, 6);
    for (std::uint32_t each = 0; each < segment.blocks; ++each) {
      Block block;
      block.address = segment.address + (std::uint64_t{each} << 20);
      block.size = size_of(input);
      block.requested = size_of(input);
      block.state = static_cast<BlockState>(input.ConsumeIntegralInRange(0, 3));
      block.stack = one_of(stacks, input);
      snapshot.blocks.push_back(block);
    }
    snapshot.segments.push_back(segment);
  }
  for (auto count = input.ConsumeIntegralInRange(0, 12); count > 0; --count) {
    Annotation mark;
    mark.stage = snapshot.strings.intern(input.ConsumeBool() ? "START" : "END");
    mark.name = snapshot.strings.intern(input.PickValueInArray(marks));
    mark.device = input.ConsumeIntegralInRange(-1, 2);
    mark.time_us = input.ConsumeIntegralInRange(0, 400);
    snapshot.annotations.push_back(mark);
  }
  return snapshot;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  DiagnoseOptions options;
  if (input.ConsumeBool()) options.steps = input.ConsumeIntegralInRange(1, 40);
  if (input.ConsumeIntegralInRange(0, 3) == 0) {
    options.step_file = input.PickValueInArray(files);
    options.step_line = input.ConsumeIntegralInRange(1, 7);
  }
  try {
    // By way of a file, so that what the reader refuses is refused.
    const auto snapshot = read_snapshot(snapshot_bytes(snapshot_of(input)), "input");
    const auto found = diagnose(snapshot, options);
    if (to_json(found) != to_json(diagnose(snapshot, options))) std::abort();
    if (found.verdict == Verdict::leak && found.findings.empty()) std::abort();
    diff(Snapshot(), snapshot);
    // Nothing is more in a file than in itself, and the two are comparable, though blocks without
    // frames name no line.
    if (!diff(snapshot, snapshot).empty()) std::abort();
    for (const auto& why : incomparable(snapshot, "input", snapshot, "input")) {
      if (!why.starts_with("neither the blocks of")) std::abort();
    }
    import_snapshot(snapshot, options);
  } catch (const Error&) {
  }
  return 0;
}

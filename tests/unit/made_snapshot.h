// Memory snapshots made by hand: a program's allocations, one call an event.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaklab/snapshot.h"

namespace leaklab::made {

struct MadeFrame {
  std::string file;
  std::string function;
  std::uint64_t line = 0;
};

// Does `act` to each event.
template <typename Act>
void change(Trace& trace, Act act) {
  for (std::size_t at = 0; at < trace.size(); ++at) {
    auto event = trace[at];
    act(event);
    trace.set(at, event);
  }
}

// The events from `first` on, up to `end`.
inline Trace part(const Trace& trace, std::size_t first, std::size_t end) {
  Trace events;
  for (std::size_t at = first; at < end; ++at) events.push_back(trace[at]);
  return events;
}

using MadeStack = std::vector<MadeFrame>;  // innermost first

class Program {
 public:
  // What the recording leaves out.
  struct Recording {
    bool frames = true;
    bool free_frames = true;
    bool times = true;
  };

  Program() : Program(Recording()) {}
  explicit Program(Recording recording) : recording_(recording) { made_.traces.resize(1); }

  // A line of the loop's function, which the script calls.
  static MadeStack line(std::uint64_t number) {
    return {{"/home/me/train.py", "train", number}, {"/home/me/train.py", "<module>", 90}};
  }
  // A line of a function that a line of the loop calls.
  static MadeStack called(std::string_view function, std::uint64_t number, std::uint64_t from) {
    auto stack = line(from);
    stack.insert(stack.begin(), {"/home/me/train.py", std::string(function), number});
    return stack;
  }
  // A module of PyTorch that a line of the loop calls.
  static MadeStack module(std::uint64_t from) { return module(line(from)); }
  static MadeStack module(MadeStack from) {
    const std::string packages = "/usr/lib/python3.11/site-packages/torch/nn/modules/";
    const MadeStack inner = {{packages + "linear.py", "forward", 134},
                             {packages + "module.py", "_call_impl", 1790},
                             {packages + "module.py", "_wrapped_call_impl", 1779}};
    from.insert(from.begin(), inner.begin(), inner.end());
    return from;
  }
  // A module whose parameters a line of the loop moves to the device.
  static MadeStack to_device(std::uint64_t from) {
    auto stack = line(from);
    const std::string file = "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py";
    stack.insert(stack.begin(),
                 {{file, "convert", 1370}, {file, "_apply", 965}, {file, "to", 1384}});
    return stack;
  }
  static MadeStack optimizer(std::uint64_t from) {
    auto stack = line(from);
    stack.insert(stack.begin(),
                 {"/usr/lib/python3.11/site-packages/torch/optim/adam.py", "_init_group", 190});
    return stack;
  }

  // The address of a new tensor of that size, in bytes.
  std::uint64_t alloc(const MadeStack& stack, std::int64_t size) {
    const auto address = next_;
    next_ += 1 << 20;
    push(EventKind::alloc, address, size, stack);
    const auto id = made_.traces[0].back().stack;
    live_[address] = {address, size, size, id, BlockState::active_allocated, Block::usual_keys};
    return address;
  }
  void free(std::uint64_t address, const MadeStack& stack = {}) {
    const auto size = live_.at(address).requested;
    push(EventKind::free_requested, address, size, recording_.free_frames ? stack : MadeStack());
    push(EventKind::free_completed, address, size, recording_.free_frames ? stack : MadeStack());
    live_.erase(address);
  }
  void fail(std::int64_t size, std::int64_t device_free, const MadeStack& stack) {
    push(EventKind::oom, static_cast<std::uint64_t>(device_free), size, stack);
  }
  void segment(EventKind kind, std::uint64_t address, std::int64_t size) {
    push(kind, address, size, {});
  }
  void take_snapshot() { push(EventKind::snapshot, 0, 0, {}); }
  // A tensor of which the recording knows nothing: it was there before.
  std::uint64_t forgotten(std::int64_t size) {
    const auto address = next_;
    next_ += 1 << 20;
    live_[address] = {address, size, size, 0, BlockState::active_allocated, Block::usual_keys};
    return address;
  }

  void mark(std::string_view stage, std::string_view name) {
    Annotation mark;
    mark.stage = made_.strings.intern(stage);
    mark.name = made_.strings.intern(name);
    mark.time_us = ++time_;
    made_.annotations.push_back(mark);
  }
  // What `act` does, between the marks of that name.
  template <typename Act>
  void marked(const std::string& name, Act act) {
    mark("START", name);
    act();
    mark("END", name);
  }
  // Metadata of all events from here on.
  void metadata(std::string_view text) { metadata_ = made_.strings.intern(text); }

  // The trace keeps its newest entries only.
  void keep_newest(std::size_t entries) {
    auto& trace = made_.traces[0];
    if (trace.size() > entries) trace = part(trace, trace.size() - entries, trace.size());
  }
  void drop_history() { made_.traces[0] = {}; }

  // Dumps: what is live becomes blocks of one segment.
  Snapshot dump() {
    Segment segment;
    segment.address = first_;
    segment.total_size = static_cast<std::int64_t>(next_ - first_);
    made_.blocks.clear();
    for (const auto& [address, block] : live_) made_.blocks.push_back(block);
    segment.blocks = static_cast<std::uint32_t>(made_.blocks.size());
    made_.segments = {segment};
    return made_;
  }

 private:
  void push(EventKind kind, std::uint64_t address, std::int64_t size, const MadeStack& stack) {
    TraceEvent event;
    event.kind = kind;
    event.address = address;
    event.size = size;
    event.time_us = recording_.times ? ++time_ : 0;
    event.user_metadata = metadata_;
    if (recording_.frames) event.stack = intern(stack);
    made_.traces[0].push_back(event);
  }
  StackId intern(const MadeStack& stack) {
    std::vector<FrameId> frames;
    for (const auto& each : stack) {
      const auto key = std::pair(each.file + '\n' + each.function, each.line);
      const auto [place, fresh] = frames_.try_emplace(key, 0);
      if (fresh) {
        place->second = static_cast<FrameId>(made_.frames.size());
        made_.frames.push_back(
            {made_.strings.intern(each.file), made_.strings.intern(each.function), each.line});
      }
      frames.push_back(place->second);
    }
    return made_.stacks.intern(frames);
  }

  static constexpr std::uint64_t first_ = 0x7f0000000000;
  Recording recording_;
  Snapshot made_;
  std::map<std::pair<std::string, std::uint64_t>, FrameId> frames_;
  std::map<std::uint64_t, Block> live_;
  std::uint64_t next_ = first_;
  std::int64_t time_ = 1'000'000;
  StringId metadata_ = 0;
};

// A model of equal layers and a training step over it, as PyTorch allocates for them: the batch on
// line 10, the forward pass on line 11, the loss on line 12, the backward pass without frames, the
// optimizer on line 14, gradients dropped on line 15. The batch and the loss live until the next
// step has new ones.
class Training {
 public:
  explicit Training(Program& program, int layers = 3, std::int64_t width = 4096)
      : program_(program), layers_(layers), width_(width) {
    for (int layer = 0; layer < layers; ++layer) {
      program.alloc(Program::to_device(3), width * 16);
    }
  }

  // Returns the output of the forward pass, which the caller may keep by setting `kept`.
  void step(std::int64_t batch = 1, bool keep_output = false) {
    const auto x = program_.alloc(Program::line(10), batch * width_);
    std::vector<std::uint64_t> saved;
    for (int layer = 0; layer < layers_; ++layer) {
      saved.push_back(program_.alloc(Program::module(11), batch * width_));
    }
    const auto loss = program_.alloc(Program::line(12), 4);
    drop(last_);
    backward(saved, keep_output);
    optimizer();
    last_ = {x, loss};
  }
  // Drops what the last step left in variables.
  void end() { drop(last_); }
  void evaluation_step(std::int64_t batch = 1) {
    const auto x = program_.alloc(Program::line(20), batch * width_);
    const auto out = program_.alloc(Program::module(21), batch * width_);
    const auto top = program_.alloc(Program::line(22), batch * 8);
    program_.free(out, Program::line(22));
    program_.free(x, Program::line(22));
    program_.free(top, Program::line(22));
  }
  void backward(std::vector<std::uint64_t> saved, bool keep_output = false) {
    for (int layer = layers_; layer-- > 0;) {
      gradients_.push_back(program_.alloc({}, width_ * 16));
      if (keep_output && layer + 1 == layers_) continue;
      program_.free(saved[static_cast<std::size_t>(layer)]);
    }
  }
  void optimizer() {
    if (adam && states_.empty()) {
      for (int state = 0; state < 2 * layers_; ++state) {
        states_.push_back(program_.alloc(Program::optimizer(14), width_ * 16));
      }
    }
    for (const auto gradient : gradients_) program_.free(gradient, Program::line(15));
    gradients_.clear();
  }

  bool adam = false;

 private:
  void drop(std::vector<std::uint64_t>& tensors) {
    for (const auto tensor : tensors) program_.free(tensor, Program::line(12));
    tensors.clear();
  }

  Program& program_;
  int layers_;
  std::int64_t width_;
  std::vector<std::uint64_t> last_;
  std::vector<std::uint64_t> gradients_;
  std::vector<std::uint64_t> states_;
};

}  // namespace leaklab::made

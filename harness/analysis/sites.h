// Whose code a frame is, which frame of a stack is the user's, and what a stack says about the loop
// that it was taken in.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "leaklab/snapshot.h"

namespace leaklab {

inline constexpr FrameId no_frame = 0xffffffff;

// A name of the file as it is shown: what a terminal would take for orders is a '?'.
std::string shown(std::string_view name);

// In lower case, as far as ASCII goes.
std::string lower(std::string_view text);

// What the rules in sites.cpp say of one frame.
struct FrameTraits {
  bool python = false;
  bool library = false;        // not the user's: an installed package, the standard library, native
  bool framework = false;      // PyTorch, the standard library, native: never the site of a finding
  bool inside_step = false;    // what it calls in a loop is a part of one step: layers, parameters
  bool layer = false;          // a module's call
  bool comprehension = false;  // a loop in one expression
  bool optimizer = false;
  bool takes_closure = false;  // an optimizer's step
  bool loads_model = false;    // moves or loads the parameters of a module
  bool recurrent = false;
  bool loss = false;    // a library's
  bool copies = false;  // copy.deepcopy()
  bool engine = false;  // the threads that run backward passes
};

// The way from the outermost frame down to the innermost one that can hold a loop over steps, as a
// node of a tree; 0 is no frame at all.
using PathId = std::uint32_t;

struct StackTraits {
  PathId path = 0;
  FrameId callee = no_frame;  // the frame below the path: what one step calls
  FrameId site = no_frame;    // the innermost frame of the user's code
  bool optimizer = false;
  bool loads_model = false;
  bool recurrent = false;
  // Whether the site's line makes what it allocates by...
  bool in_layer = false;  // ...a layer that it calls or is a line of
  bool in_loss = false;   // ...a library's loss
  bool in_copy = false;   // ...copy.deepcopy()
};

// Of every frame and stack of one snapshot; linear in their number.
class Sites {
 public:
  explicit Sites(const Snapshot& snapshot);

  const FrameTraits& frame(FrameId id) const { return frames_[id]; }
  const StackTraits& stack(StackId id) const { return stacks_[id]; }
  std::size_t stacks() const { return stacks_.size(); }
  std::span<const FrameId> frames(StackId id) const {
    return snapshot_.stacks[id];
  }  // innermost first
  // File and name of a frame's function.
  std::pair<StringId, StringId> function_of(FrameId id) const {
    return {snapshot_.frames[id].file, snapshot_.frames[id].function};
  }
  // Whether any stack has a Python frame; native frames are then passed over.
  bool python() const { return python_; }
  // Whether any event has frames, or any block of a snapshot without events.
  bool any_frames() const { return any_frames_; }

  // The outermost frames of a path, that many or fewer.
  PathId outermost(PathId path, std::uint32_t depth) const;
  PathId root(PathId path) const { return outermost(path, 1); }
  PathId caller(PathId path) const { return nodes_[path].parent; }
  // Outside which frame a program moves from one path to another: the frames that stay as they are,
  // and how the next one changes.
  struct Fork {
    std::uint32_t shared = 0;
    bool same_function = false;  // both go on in one function...
    std::int64_t back = 0;       // ...and the second does so on a line that many lines above
  };
  Fork fork(PathId first, PathId second) const;
  std::uint32_t depth(PathId path) const { return nodes_[path].depth; }
  FrameId last_frame(PathId path) const { return nodes_[path].frame; }

 private:
  struct Node {
    PathId parent = 0;
    FrameId frame = no_frame;
    std::uint32_t depth = 0;
  };

  PathId child(PathId parent, FrameId frame);
  bool only_operations(std::span<const FrameId> frames) const;
  bool calls_closure(std::span<const FrameId> frames) const;
  StackTraits traits_of(std::span<const FrameId> stack);

  const Snapshot& snapshot_;
  std::vector<FrameTraits> frames_;
  std::vector<StackTraits> stacks_;
  std::vector<Node> nodes_;
  HashIndex children_;
  bool python_ = false;
  bool any_frames_ = false;
};

}  // namespace leaklab

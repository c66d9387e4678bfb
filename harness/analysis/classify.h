// Which class of the taxonomy a leak most likely belongs to.
#pragma once

#include <string>
#include <string_view>

namespace leaklab {

// What is known of a leak when its class is looked for.
struct LeakTraits {
  bool backward = false;      // allocated in a backward pass
  bool optimizer = false;     // state of an optimizer
  bool loads_model = false;   // parameters moved or loaded
  bool recurrent = false;     // by a recurrent layer, several allocations of one step
  bool in_layer = false;      // by a layer that the user's line calls or is a line of
  bool in_loss = false;       // by a library's loss
  bool in_copy = false;       // by copy.deepcopy()
  bool private_pool = false;  // in the pool of a CUDA graph
  bool scalar = false;        // 8 bytes or fewer each
  bool replaced = false;      // one tensor replaced by a larger one
  bool multiplied = false;    // tensors replaced by as many and more
  bool outrun = false;        // tensors added faster than they are taken away
  bool evaluation = false;    // in steps without a backward pass, among others that have one
  bool every_size_once = false;
  bool superlinear = false;  // more allocations in each step than in the one before
  bool rare = false;         // in some of the steps that come by
  bool many_places = false;  // several allocations of one step kept together
};

// Adds what `other` tells of a leak whose things are left in the same steps: one owner is likely to
// hold both, as an optimizer its state and the parameters, or a graph all that it saved.
void add_shared(LeakTraits& traits, const LeakTraits& other);

struct ClassRule {
  bool LeakTraits::*trait;
  std::string_view taxonomy;
  std::string_view cause;  // what is likely, as the end of "likely ..."
  std::string_view fix;
  double confidence;
};

// The first rule that fits; the last one always does.
const ClassRule& classify(const LeakTraits& traits);

}  // namespace leaklab

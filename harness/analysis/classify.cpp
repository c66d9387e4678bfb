#include "classify.h"

#include <algorithm>
#include <iterator>

namespace leaklab {
namespace {

constexpr std::string_view remove_the_hook =
    "add the hook once, or call remove() on the handle that adding it returned";

// From the most telling trait to the least.
constexpr ClassRule rules[] = {
    {&LeakTraits::private_pool, "L30", "a CUDA graph captured again and again and kept",
     "capture one graph for each shape that comes back, reuse it, and drop those no longer needed",
     0.8},
    {&LeakTraits::optimizer, "L13",
     "optimizers, or their state for parameters that were replaced, "
     "that are still referred to",
     "drop the old optimizer and its parameters before the new ones are made, and keep no list of "
     "them",
     0.8},
    {&LeakTraits::loads_model, "L14",
     "models or checkpoints loaded again while the old ones are "
     "still referred to",
     "drop the old model first, or load into it; keep checkpoints in host memory "
     "(map_location='cpu')",
     0.75},
    {&LeakTraits::replaced, "L05", "a history that torch.cat enlarges in each step",
     "bound the history, write into a tensor of fixed size, or move what is old to the host", 0.8},
    {&LeakTraits::multiplied, "L10", "hooks or callbacks that are added again and again",
     remove_the_hook, 0.6},
    {&LeakTraits::superlinear, "L10", "hooks or callbacks that are added again in each step",
     remove_the_hook, 0.6},
    {&LeakTraits::outrun, "L17", "a queue that is filled faster than it is emptied",
     "bound the queue, so that what fills it waits, or empty it as fast", 0.6},
    {&LeakTraits::in_copy, "L16",
     "copies of a model, or of tensors, that are made again and again and kept",
     "bound the number of copies, or keep them in host memory", 0.6},
    {&LeakTraits::recurrent, "L03", "a recurrent state that is carried on with its graph",
     "detach the state between steps: h = h.detach()", 0.7},
    {&LeakTraits::backward, "L06",
     "gradients that are kept, or kept with their graph "
     "(create_graph, or a hook that stores them)",
     "use torch.autograd.grad in place of backward(create_graph=True), reset .grad, and store "
     "detached copies on the host",
     0.5},
    {&LeakTraits::many_places, "L02",
     "outputs or losses kept with their graph, which holds what the "
     "forward pass saved",
     "keep what is needed only: loss.item() or output.detach().cpu()", 0.7},
    {&LeakTraits::in_loss, "L23", "losses collected as tensors on the device",
     "collect numbers: loss.item(), or sum in place into one tensor", 0.6},
    {&LeakTraits::scalar, "L23", "losses or other scalars collected as tensors on the device",
     "collect numbers: loss.item(), or sum in place into one tensor", 0.75},
    {&LeakTraits::every_size_once, "L20", "a cache with one entry for each shape",
     "bound the cache (an LRU), or pad to a few shapes", 0.5},
    {&LeakTraits::rare, "L11", "what some of the steps leave behind: an error path, a log, a cache",
     "release it on that path too, or move what is logged to the host", 0.4},
    {&LeakTraits::evaluation, "L19",
     "predictions collected on the device during evaluation and not "
     "dropped after it",
     "move them to the host as they come, and clear the list after each evaluation", 0.6},
    {&LeakTraits::in_layer, "L09", "a layer's output or a view of it that is stored in each step",
     "store a detached copy on the host, or overwrite the last one", 0.5},
    {nullptr, "L17",
     "a list, dict or metric that collects tensors on the device and is never "
     "cleared",
     "clear it, bound it, or move what it collects to the host", 0.5},
};

}  // namespace

void add_shared(LeakTraits& traits, const LeakTraits& other) {
  traits.private_pool = traits.private_pool || other.private_pool;
  traits.optimizer = traits.optimizer || other.optimizer;
  traits.backward = traits.backward || other.backward;
  traits.recurrent = traits.recurrent || other.recurrent;
  traits.many_places = traits.many_places || other.many_places;
}

const ClassRule& classify(const LeakTraits& traits) {
  return *std::ranges::find_if(
      rules, [&](const ClassRule& rule) { return rule.trait == nullptr || traits.*rule.trait; });
}

}  // namespace leaklab

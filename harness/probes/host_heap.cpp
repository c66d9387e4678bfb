// The C heap of this process.
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>

#include "leaklab/probe.h"

namespace leaklab {
namespace {

// mallinfo2 visits each arena, of which every thread of CUDA and LibTorch would get its own: set
// before any of them starts.
[[maybe_unused]] const bool one_arena = mallopt(M_ARENA_MAX, 1) == 1;

// Hands out every free chunk of the heap and keeps it. mallinfo2 reads the header of each: starting
// LibTorch and CUDA leaves a thousand, which cost 150 us a sample where a step has just emptied the
// processor's caches. Returns the bytes that mallinfo2 counts as used for it.
std::int64_t fill_free_chunks() {
  constexpr std::size_t largest = 64 * 1024, smallest = 24, apart = 16;
  const auto* top = static_cast<const char*>(sbrk(0)) - mallinfo2().keepcost;
  const auto before = mallinfo2().uordblks;
  for (std::size_t size = largest; size >= smallest; size -= apart) {
    while (true) {
      auto* chunk = static_cast<char*>(std::malloc(size));
      if (chunk != nullptr && chunk + size < top) continue;
      std::free(chunk);  // from beyond the last one that was in use
      break;
    }
  }
  return static_cast<std::int64_t>(mallinfo2().uordblks - before);
}

class HostHeap final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override { return {"host_heap"}; }

  std::string do_start(const Environment&) override { return ""; }

  void do_begin_step(std::int64_t step) override {
    // Once the body has set up what it needs, and once its first step has started the libraries.
    if (step <= 1) filled_ += fill_free_chunks();
  }

  void do_sample(Sample& into) override {
    const auto heap = mallinfo2();
    into["host_heap"] = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd) - filled_;
  }

 private:
  std::int64_t filled_ = 0;
};

LEAKLAB_PROBE(host_heap, HostHeap);

}  // namespace
}  // namespace leaklab

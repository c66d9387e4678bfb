// A torch::data loader with worker threads and, what LibTorch's has not, a stage that pins.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "leaklab/torch.h"

namespace leaklab {

// Yields batches in order, float32 [rows, length], of a made dataset whose content depends on the
// position only. Workers read ahead; the thread that asks for a batch pins it.
class PinnedLoader {
 public:
  struct Options {
    std::int64_t batches = 1;  // that will be asked for
    std::int64_t rows = 1;     // samples in a batch
    // Values in each sample of a batch, batches counted from 0. Called by the workers.
    std::function<std::int64_t(std::int64_t batch)> length;
    std::int64_t workers = 2;
    bool pin_memory = true;  // needs CUDA
  };

  explicit PinnedLoader(Options options);
  ~PinnedLoader();
  PinnedLoader(const PinnedLoader&) = delete;
  PinnedLoader& operator=(const PinnedLoader&) = delete;

  // Throws InternalError for a batch more than were announced.
  torch::Tensor next();

  // Returns when the workers have read ahead as far as they may: what a sample finds in host memory
  // then does not depend on how fast they were. Give it to Run::before_sampling.
  void wait_for_workers();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Page-locked bytes that the pinned allocator takes for a tensor of `bytes`: the next power of two
// (CachingHostAllocatorImpl::allocate in ATen/core/CachingHostAllocator.h). bytes >= 1.
std::int64_t pinned_block(std::int64_t bytes);

}  // namespace leaklab

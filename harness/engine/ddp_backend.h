// The c10d backend of one rank, with the bytes of all-reduced gradients counted.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace leaklab::ddp {

class CountingBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  using Tensors = std::vector<at::Tensor>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  const std::string getBackendName() const override { return "leaklab"; }
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    for (const auto& tensor : tensors) reduced_bytes_ += static_cast<std::int64_t>(tensor.nbytes());
    return do_allreduce(tensors, options);
  }
  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return do_broadcast(tensors, options);
  }

  std::int64_t reduced_bytes() const { return reduced_bytes_; }
  // Returns when nothing of a collective is held any more.
  void drain() { do_drain(); }
  // Closes what the rank has open. All ranks must do so at once.
  void close() { do_close(); }

 protected:
  virtual Work do_allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) = 0;
  virtual Work do_broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) = 0;
  virtual void do_drain() {}
  virtual void do_close() {}

 private:
  // On CUDA the thread of the backward pass counts and that of the scenario reads.
  std::atomic<std::int64_t> reduced_bytes_{0};
};

// NCCL. Throws UnavailableError in a build without NCCL's header.
c10::intrusive_ptr<CountingBackend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store,
                                                      int rank, int size);

}  // namespace leaklab::ddp

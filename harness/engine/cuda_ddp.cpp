// NCCL as the backend of a rank, so that no thread but the rank's own holds a tensor of it.
#include "ddp_backend.h"
#include "leaklab/error.h"

#ifdef USE_C10D_NCCL

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <chrono>
#include <cstdlib>

namespace leaklab::ddp {
namespace {

// A collective that takes longer is given up with an error that names it.
constexpr std::chrono::seconds time_limit{60};

// Read by ProcessGroupNCCL when it is constructed.
void configure() {
  // Without it a watchdog thread keeps each collective, with its tensors, until it happens to look
  // (every 100 ms): what is alive at a step boundary would depend on timing. With it there is no
  // such thread, and wait() blocks until the collective is done.
  setenv("TORCH_NCCL_BLOCKING_WAIT", "1", /*overwrite=*/1);
  // The flight recorder's ring of 2000 collectives would look like a leak of host memory.
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
}

class NcclBackend final : public CountingBackend {
 public:
  NcclBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : CountingBackend(rank, size) {
    configure();
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = time_limit;
    nccl_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), rank, size,
                                                        std::move(options));
  }

 protected:
  Work do_allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return finished(nccl_->allreduce(tensors, options));
  }
  Work do_broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return finished(nccl_->broadcast(tensors, options));
  }
  // Nothing is pending here. A LibTorch that starts its watchdog all the same is waited for.
  void do_drain() override { nccl_->waitForPendingWorks(); }
  void do_close() override { nccl_->shutdown(); }

 private:
  // The Reducer waits for the future of a collective, which does not release the references that
  // the collective stashed for its own stream; wait() does.
  static Work finished(Work work) {
    work->wait();
    return work;
  }

  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

}  // namespace

c10::intrusive_ptr<CountingBackend> make_nccl_backend(c10::intrusive_ptr<c10d::Store> store,
                                                      int rank, int size) {
  return c10::make_intrusive<NcclBackend>(std::move(store), rank, size);
}

}  // namespace leaklab::ddp

#else

namespace leaklab::ddp {

c10::intrusive_ptr<CountingBackend> make_nccl_backend(c10::intrusive_ptr<c10d::Store>, int, int) {
  throw UnavailableError(
      "this build has no NCCL: nccl.h lay neither in the wheels beside LibTorch nor in a CUDA "
      "Toolkit; install the nvidia-nccl wheel of this torch and configure anew, or use --env cpu");
}

}  // namespace leaklab::ddp

#endif

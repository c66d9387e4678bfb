#include "leaklab/ddp.h"

#include <ATen/ThreadLocalState.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <type_traits>

#include "ddp_backend.h"
#include "leaklab/error.h"

namespace leaklab::ddp {
namespace {

// What Python's DistributedDataParallel uses by default.
constexpr std::int64_t bucket_bytes = 25 * 1024 * 1024;
constexpr std::int64_t broadcast_bytes = 250 * 1024 * 1024;

// A collective that was over before it returned.
class Done final : public c10d::Work {
 public:
  explicit Done(std::vector<at::Tensor> tensors)
      : future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(c10::IValue(std::move(tensors)));
  }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Thrown in the ranks that wait for one that failed; only the failure itself leaves the world.
struct Released : std::exception {
  const char* what() const noexcept override { return "another rank failed"; }
};

// Runs every rank on a thread of its own, all at the same time.
void run_at_once(std::size_t size, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> failures(size);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// The arguments of Reducer's constructor grew over LibTorch's versions.
template <class Reducer = c10d::Reducer>
std::shared_ptr<Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                      std::vector<std::vector<std::size_t>> buckets,
                                      const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  using Flags = std::vector<bool>;
  using Names = std::unordered_map<std::size_t, std::string>;
  using Limits = std::vector<std::int64_t>;
  const Flags sparse(parameters.size(), false);
  constexpr bool find_unused = false;
  constexpr bool gradient_as_bucket_view = false;
  constexpr std::int64_t first_bucket = c10d::kDefaultFirstBucketBytes;
  if constexpr (std::is_constructible_v<Reducer, std::vector<at::Tensor>, decltype(buckets),
                                        decltype(group), Flags, std::int64_t, bool, bool, Names,
                                        std::int64_t, bool, bool, Limits>) {
    return std::make_shared<Reducer>(parameters, std::move(buckets), group, sparse, bucket_bytes,
                                     find_unused, gradient_as_bucket_view, Names(), first_bucket,
                                     /*skip_all_reduce_unused_params=*/false,
                                     /*use_python_reducer=*/false, Limits());
  } else if constexpr (std::is_constructible_v<Reducer, std::vector<at::Tensor>, decltype(buckets),
                                               decltype(group), Flags, std::int64_t, bool, bool,
                                               Names, std::int64_t, bool, bool>) {
    return std::make_shared<Reducer>(parameters, std::move(buckets), group, sparse, bucket_bytes,
                                     find_unused, gradient_as_bucket_view, Names(), first_bucket,
                                     false, false);
  } else {
    return std::make_shared<Reducer>(parameters, std::move(buckets), group, sparse, bucket_bytes,
                                     find_unused, gradient_as_bucket_view, Names(), first_bucket);
  }
}

}  // namespace

// Lets one rank run at a time. The turn goes to the next rank that can run when one ends or waits
// in a collective; the last to arrive there does its work and runs on.
class LockStep {
 public:
  using Tensors = CountingBackend::Tensors;
  using Combine = std::function<void(const std::vector<Tensors*>&)>;

  explicit LockStep(std::size_t size) : joined_(size) {}

  void run(const std::function<void(std::size_t)>& body) {
    states_.assign(joined_.size(), State::ready);
    std::ranges::fill(joined_, nullptr);
    failure_ = nullptr;
    turn_ = 0;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < joined_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          wait_for_turn(rank);
          body(rank);
        } catch (...) {
          fail(std::current_exception());
        }
        end(rank);
      });
    }
    for (auto& thread : threads) thread.join();
    turn_ = nobody;
    if (failure_) std::rethrow_exception(failure_);
  }

  // All ranks hand in their tensors; `combine` sees them in the order of the ranks.
  void meet(std::size_t rank, Tensors& mine, const Combine& combine) {
    {
      const std::lock_guard lock(mutex_);
      if (turn_ != rank) throw InternalError("a rank was used outside ddp::World::each");
      if (failure_) throw Released();
      joined_[rank] = &mine;
      states_[rank] = State::waiting;
      if (std::ranges::count(states_, State::waiting) == std::ssize(states_)) {
        combine(joined_);
        std::ranges::fill(states_, State::ready);
        return;
      }
      pass_turn();
    }
    wait_for_turn(rank);
  }

 private:
  enum class State { ready, waiting, ended };
  static constexpr std::size_t nobody = std::numeric_limits<std::size_t>::max();

  void wait_for_turn(std::size_t rank) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == rank; });
    if (failure_) throw Released();
  }

  void fail(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }

  void end(std::size_t rank) {
    const std::lock_guard lock(mutex_);
    states_[rank] = State::ended;
    pass_turn();
  }

  // With mutex_ held.
  void pass_turn() {
    const auto next = [&](State state) {
      for (std::size_t step = 1; step <= states_.size(); ++step) {
        const auto rank = (turn_ + step) % states_.size();
        if (states_[rank] == state) return rank;
      }
      return nobody;
    };
    auto rank = next(State::ready);
    if (rank == nobody) {
      rank = next(State::waiting);
      if (rank != nobody && !failure_) {
        failure_ = std::make_exception_ptr(InternalError(
            fmt::format("rank {} waits in a collective that another rank never joins", rank)));
      }
    }
    turn_ = rank;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::vector<Tensors*> joined_;
  std::size_t turn_ = nobody;
  std::exception_ptr failure_;
};

namespace {

// The backend of the CPU environment: the ranks' tensors are summed where they lie, in the order of
// the ranks, with no memory allocated.
class ThreadBackend final : public CountingBackend {
 public:
  ThreadBackend(int rank, int size, std::shared_ptr<LockStep> lock_step)
      : CountingBackend(rank, size), lock_step_(std::move(lock_step)) {}

 protected:
  Work do_allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    if (options.reduceOp != c10d::ReduceOp::SUM) {
      throw InternalError("the in-process backend only sums; the Reducer asked for something else");
    }
    return meet(tensors, [](const std::vector<Tensors*>& ranks) {
      auto& sums = *ranks.front();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        for (auto rank = ranks.begin() + 1; rank != ranks.end(); ++rank) sums[i].add_((**rank)[i]);
        for (auto rank = ranks.begin() + 1; rank != ranks.end(); ++rank) (**rank)[i].copy_(sums[i]);
      }
    });
  }

  Work do_broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return meet(tensors, [&options](const std::vector<Tensors*>& ranks) {
      const auto& root = *ranks.at(static_cast<std::size_t>(options.rootRank));
      for (auto* rank : ranks) {
        for (std::size_t i = 0; rank != &root && i < root.size(); ++i) (*rank)[i].copy_(root[i]);
      }
    });
  }

 private:
  Work meet(Tensors& tensors, const LockStep::Combine& combine) {
    const at::NoGradGuard guard;
    lock_step_->meet(static_cast<std::size_t>(getRank()), tensors, combine);
    return c10::make_intrusive<Done>(tensors);
  }

  std::shared_ptr<LockStep> lock_step_;
};

}  // namespace

// In the order of construction: the Reducer must go before what it refers to.
struct Rank::Parts {
  std::size_t index;
  torch::Device device;
  c10::intrusive_ptr<CountingBackend> backend;
  c10::intrusive_ptr<c10d::ProcessGroup> group = {};
  torch::nn::Sequential net{nullptr};
  std::vector<torch::Tensor> parameters = {};
  std::shared_ptr<c10d::Reducer> reducer = {};
  std::shared_ptr<c10d::Logger> logger = {};

  // What DistributedDataParallel's constructor does, on the rank's own thread.
  void build(const MakeNet& make_net, c10::intrusive_ptr<c10d::Store> store) {
    using Group = c10d::ProcessGroup;
    group = c10::make_intrusive<Group>(std::move(store), backend->getRank(), backend->getSize());
    group->setBackend(device.type(), Group::BackendType::CUSTOM, backend);
    group->setDefaultBackend(Group::BackendType::CUSTOM);
    group->setGroupName("ddp");

    net = make_net(device);
    if (!net->buffers().empty()) {
      throw InternalError("ddp::World does not synchronise buffers: use a net without them");
    }
    parameters = net->parameters();
    std::vector<at::Tensor> values;
    for (const auto& parameter : parameters) values.push_back(parameter.detach());
    c10d::broadcast_coalesced(group, values, broadcast_bytes);

    // One bucket until the order of the gradients is known.
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
        parameters, {std::numeric_limits<std::size_t>::max()},
        std::vector<bool>(parameters.size(), false)));
    std::ranges::reverse(buckets);
    reducer = make_reducer(parameters, std::move(buckets), group);
    logger = std::make_shared<c10d::Logger>(reducer);
    reducer->set_logger(logger);
    const std::vector<int> devices =
        device.is_cuda() ? std::vector<int>{static_cast<int>(index)} : std::vector<int>{};
    logger->set_construction_data_and_log("Sequential", devices, /*output_device=*/-1,
                                          /*broadcast_buffers=*/true, /*has_sync_bn=*/false,
                                          /*static_graph=*/false);
  }

  void close() {
    logger.reset();
    reducer.reset();
    backend->close();
  }
};

NoSync::NoSync(Rank& rank) : rank_(rank), before_(rank.synchronising_) {
  rank_.synchronising_ = false;
}

NoSync::~NoSync() { rank_.synchronising_ = before_; }

Rank::Rank(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Rank::~Rank() = default;

std::size_t Rank::index() const { return parts_->index; }
torch::Device Rank::device() const { return parts_->device; }
const std::vector<torch::Tensor>& Rank::parameters() const { return parts_->parameters; }
std::int64_t Rank::reduced_bytes() const { return parts_->backend->reduced_bytes(); }

// As DistributedDataParallel._pre_forward, forward and _post_forward.
torch::Tensor Rank::forward(const torch::Tensor& input) {
  const bool with_grad = torch::GradMode::is_enabled();
  if (with_grad && synchronising_) {
    parts_->logger->set_runtime_stats_and_log();
    parts_->reducer->prepare_for_forward();
  }
  // Does something once: in the first pass after a synchronised backward pass.
  if (with_grad) parts_->reducer->rebuild_buckets();
  auto output = parts_->net->forward(input);
  if (with_grad && synchronising_) parts_->reducer->prepare_for_backward({});
  return output;
}

void Rank::zero_grad() {
  for (auto& parameter : parts_->parameters) parameter.mutable_grad().reset();
}

World::World(Run& run, const MakeNet& make_net) {
  const bool on_cuda = run.device().is_cuda();
  const auto size = static_cast<std::size_t>(run.setting().ranks());
  const std::int64_t gpus = on_cuda ? torch::cuda::device_count() : 0;
  if (on_cuda && run.setting().ranks() > gpus) {
    throw UnavailableError(fmt::format("{} ranks need a GPU each, but there are {}", size, gpus));
  }
  if (!on_cuda) lock_step_ = std::make_shared<LockStep>(size);
  // A store of its own, so that two worlds of one process don't meet.
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (std::size_t i = 0; i < size; ++i) {
    const auto rank = static_cast<int>(i);
    c10::intrusive_ptr<CountingBackend> backend;
    auto device = run.device();
    if (on_cuda) {
#ifdef LEAKLAB_WITH_CUDA
      backend = make_nccl_backend(store, rank, static_cast<int>(size));
      device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(rank));
#endif
    } else {
      backend = c10::make_intrusive<ThreadBackend>(rank, static_cast<int>(size), lock_step_);
    }
    ranks_.push_back(
        std::make_unique<Rank>(std::make_unique<Rank::Parts>(Rank::Parts{i, device, backend})));
  }
  each([&](Rank& rank) { rank.parts_->build(make_net, store); });
  run.before_sampling([this] {
    for (const auto& rank : ranks_) rank->parts_->backend->drain();
  });
}

World::~World() {
  try {
    each([](Rank& rank) { rank.parts_->close(); });
  } catch (...) {
    // A communicator that failed before can't be closed in order; the failure was told then.
  }
}

std::size_t World::size() const { return ranks_.size(); }

void World::each(const std::function<void(Rank&)>& body) {
  const at::ThreadLocalState callers;
  const auto run_one = [&](std::size_t rank) {
    // Grad mode, autocast and what watches the caller's allocations hold on the rank's thread too.
    const at::ThreadLocalStateGuard inherited(callers);
    const c10::DeviceGuard guard(ranks_[rank]->device());
    body(*ranks_[rank]);
  };
  if (lock_step_) {
    lock_step_->run(run_one);
  } else if (size() == 1) {
    run_one(0);
  } else {
    run_at_once(size(), run_one);
  }
}

std::int64_t recorded_ranks(const Setting& setting) {
  return setting.on_cuda() ? 1 : setting.ranks();
}

}  // namespace leaklab::ddp

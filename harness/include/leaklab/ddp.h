// Distributed data parallel training from C++: LibTorch's own Reducer, driven as Python's
// DistributedDataParallel drives it. c10d's headers cost seconds a file, so none is included here.
//
//   ddp::World world(run, [&](torch::Device device) { return mlp({width, width}, device); });
//   run.step([&](Step) {
//     world.each([&](ddp::Rank& rank) { mean_square(rank.forward(input)).backward(); });
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "leaklab/scenario.h"

namespace leaklab::ddp {

class LockStep;
class Rank;

// Makes the net of one rank on its device; all ranks start from what rank 0 made.
using MakeNet = std::function<torch::nn::Sequential(torch::Device)>;

// Python's DistributedDataParallel.no_sync(): the gradients of forward passes made while it lives
// stay on their rank, wherever their backward pass runs. Nests.
class NoSync {
 public:
  explicit NoSync(Rank& rank);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  Rank& rank_;
  bool before_;
};

// One rank: a replica of the net, its Reducer and its backend.
class Rank {
 public:
  struct Parts;
  explicit Rank(std::unique_ptr<Parts> parts);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  std::size_t index() const;
  torch::Device device() const;
  const std::vector<torch::Tensor>& parameters() const;

  // Outside no_sync it prepares the Reducer, which then averages the gradients of all ranks within
  // the backward pass. Inside World::each only.
  torch::Tensor forward(const torch::Tensor& input);
  NoSync no_sync() { return NoSync(*this); }
  // Drops the gradients, as an optimizer's zero_grad does.
  void zero_grad();

  // Bytes of gradients that this rank gave to all-reduce so far.
  std::int64_t reduced_bytes() const;

 private:
  friend class NoSync;
  friend class World;
  std::unique_ptr<Parts> parts_;
  bool synchronising_ = true;
};

// All ranks, in this process. On the CPU two threads take turns over a backend of ours: one hands
// over where it waits in a collective and where it ends, so that allocations come in the same order
// in every run. On CUDA there is one rank a GPU over NCCL; with one GPU it runs on the caller's
// thread.
class World {
 public:
  // Throws UnavailableError where the build or the machine lacks what it needs.
  World(Run& run, const MakeNet& make_net);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  std::size_t size() const;
  Rank& rank(std::size_t index) { return *ranks_.at(index); }

  // Runs `body` on every rank and waits for all. What one rank throws is thrown here, when the
  // others were released from the collective in which they waited for it.
  void each(const std::function<void(Rank&)>& body);

 private:
  std::shared_ptr<LockStep> lock_step_;  // on the CPU only
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// Ranks whose tensors a recording sees: on CUDA the one on device 0, on the CPU all.
std::int64_t recorded_ranks(const Setting& setting);

}  // namespace leaklab::ddp

// Counts live autograd nodes, those that no root reaches any more included.
//
// Anomaly mode gives every node a metadata object that dies with it; an engine of ours hands out
// objects that only count.
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>

#include "leaklab/probe.h"

namespace leaklab {
namespace {

std::atomic<std::int64_t> live_nodes{0};

template <class Class, class Argument>
Argument argument_of(void (Class::*)(Argument));
// Which pointer a parent comes as differs between LibTorch versions.
using Parent = decltype(argument_of(&torch::autograd::AnomalyMetadata::assign_parent));

struct CountedMetadata final : torch::autograd::AnomalyMetadata {
  CountedMetadata() { live_nodes.fetch_add(1, std::memory_order_relaxed); }
  CountedMetadata(const CountedMetadata&) = delete;
  CountedMetadata& operator=(const CountedMetadata&) = delete;
  ~CountedMetadata() override { live_nodes.fetch_sub(1, std::memory_order_relaxed); }
  void store_stack() override {}
  void print_stack(const std::string&) override {}
  // The original keeps the parent alive, which would change what we measure.
  void assign_parent(Parent) override {}
};

class CountingEngine final : public torch::autograd::Engine {
 public:
  static Engine& get() {
    // Never destroyed: its threads outlive main.
    static auto* engine = new CountingEngine;
    return *engine;
  }
  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return std::make_unique<CountedMetadata>();
  }
};

class AutogradNodes final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override { return {"graph_nodes"}; }

  std::string do_start(const Environment&) override {
    torch::autograd::set_default_engine_stub(&CountingEngine::get);
    torch::autograd::AnomalyMode::set_enabled(true, /*check_nan=*/false);
    return "";
  }

  void do_sample(Sample& into) override {
    into["graph_nodes"] = live_nodes.load(std::memory_order_relaxed);
  }
};

LEAKLAB_PROBE(autograd_nodes, AutogradNodes);

}  // namespace
}  // namespace leaklab

#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "backend.h"
#include "context.h"
#include "leaklab/channel.h"
#include "leaklab/engine.h"
#include "leaklab/error.h"
#include "leaklab/event_log.h"
#include "leaklab/isolation.h"
#include "leaklab/probe.h"
#include "leaklab/scenario.h"
#include "replay.h"

namespace leaklab {

void Run::skip(const std::string& reason) { throw Skipped(reason); }

std::int64_t Run::thousandths(double value) {
  return static_cast<std::int64_t>(std::llround(value * 1000.0));
}

namespace {

// Everything that could make two runs differ is fixed before the first allocation.
void fix_what_varies(const std::string& backend) {
  if (backend == "cpu") {
    // All that torch::manual_seed does, but for the search for GPUs, which takes a tenth of a
    // second.
    torch::Generator generator = at::globalContext().defaultGenerator(torch::kCPU);
    generator.set_current_seed(0);
  } else {
    torch::manual_seed(0);
  }
  // Before cuBLAS is first used. On an H200 it is what LibTorch takes by default.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/1);
  // MKL would keep a buffer of 4 MiB for each thread that multiplies, from some step on.
  ::setenv("MKL_DISABLE_FAST_MM", "1", /*replace=*/1);
  // By default the C heap moves the threshold while the program runs.
  ::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  at::set_num_threads(1);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(true);
  // oneDNN picks its scratch memory by the processor's instruction set.
  context.setUserEnabledMkldnn(false);
}

class Recorder final : public Run {
 public:
  Recorder(const RunConfig& config, Environment environment, Recording& recording)
      : config_(config), environment_(std::move(environment)), recording_(recording) {
    for (const auto& named : probes()) {
      auto probe = named.make();
      const auto reason = probe->start(environment_);
      for (const auto& channel : probe->channels()) {
        auto& series = recording_.channels[channel];
        if (reason.empty()) {
          series.absent.clear();
        } else if (!measured_.contains(channel)) {
          series.absent = reason;
        }
        if (reason.empty()) measured_.insert(channel);
      }
      if (reason.empty()) probes_.push_back(std::move(probe));
    }
    for (const auto& channel : leaklab::channels()) {
      auto& series = recording_.channels[std::string(channel.name)];
      series.unit = channel.unit;
      series.exact = channel.exact;
      series.trusted = channel.trusted;
      if (!measured_.contains(channel.name) && series.absent.empty()) {
        series.absent = "this build has no CUDA";
      }
    }
  }

  void measure(const Scenario& scenario) {
    file_ = scenario.file;
    for (const auto& [name, value] : sample()) recording_.channels.at(name).start = value;
    try {
      scenario.body(*this);
    } catch (const Skipped& skipped) {
      recording_.skipped = skipped.reason;
      return;
    }
    if (!stepped_) {
      throw InternalError(fmt::format("scenario '{}' never called run.step", scenario.id));
    }
    synchronize(environment_);
    if (config_.sites) recording_.sites = sites_;
    for (const auto& [name, value] : sample()) recording_.channels.at(name).released = value;
    for (const auto& probe : probes_) probe->empty_caches();
    for (const auto& [name, value] : sample()) recording_.channels.at(name).settled = value;
    event_log().end_step();
    recording_.event_hash = event_log().hash();
    recording_.events = event_log().events();
    // Neither a gauge nor a peak has a level outside the steps.
    for (auto& [name, series] : recording_.channels) {
      if (name != "peak" && !name.starts_with(gauge_prefix)) continue;
      series.released = series.settled = series.start = 0;
    }
  }

 protected:
  bool do_fault() const override { return config_.twin == Twin::leaky; }
  const Setting& do_setting() const override { return config_.setting; }
  torch::Device do_device() const override {
    return environment_.backend == "cuda" ? torch::Device(torch::kCUDA, 0)
                                          : torch::Device(torch::kCPU);
  }
  std::int64_t do_steps() const override { return config_.steps; }
  std::int64_t do_peak() const override { return event_log().peak(); }
  void do_before_sampling(std::function<void()> drain) override {
    drains_.push_back(std::move(drain));
  }

  void do_step(const std::function<void(Step)>& body) override {
    if (stepped_) throw InternalError("a scenario calls run.step exactly once");
    stepped_ = true;
    for (std::int64_t index = 0; index < config_.steps; ++index) {
      if (auto* sites = site_table()) {
        if (index == config_.warmup) sites->begin_judging();
        sites->mark_boundary();
      }
      event_log().begin_step();
      for (const auto& probe : probes_) probe->begin_step(index);
      body(Step{index, index < config_.warmup});
      for (const auto& drain : drains_) drain();
      synchronize(environment_);
      event_log().end_step();
      for (const auto& [name, value] : sample()) {
        recording_.channels.at(name).values.push_back(value);
      }
      take_gauges(index);
    }
    if (auto* sites = site_table()) {
      sites->mark_boundary();
      sites_ = sites->survivors();
      if (!config_.snapshot.empty()) take_snapshot(sites->history());
    }
    drains_.clear();
  }

  void do_gauge(std::string_view name, std::int64_t value, std::string_view unit,
                bool exact) override {
    auto& series = recording_.channels[std::string(gauge_prefix) + std::string(name)];
    series.unit = unit;
    series.exact = exact;
    gauges_[std::string(gauge_prefix) + std::string(name)] = value;
  }

 private:
  Sample sample() {
    Sample values;
    for (const auto& probe : probes_) probe->sample(values);
    return values;
  }

  // While all that the loop holds is alive, as a user would take one.
  void take_snapshot(History history) const {
    for (auto& stack : history.stacks) stack.push_back({file_, recording_.scenario, 0});
    write_snapshot(to_snapshot(history), config_.snapshot);
  }

  void take_gauges(std::int64_t index) {
    for (const auto& [name, value] : gauges_) {
      auto& values = recording_.channels.at(name).values;
      // One value a step: a gauge that first appears late was zero before.
      values.resize(static_cast<std::size_t>(index), 0);
      values.push_back(value);
    }
  }

  const RunConfig& config_;
  Environment environment_;
  Recording& recording_;
  std::vector<std::unique_ptr<Probe>> probes_;
  std::set<std::string, std::less<>> measured_;
  std::vector<std::function<void()>> drains_;
  std::map<std::string, std::int64_t> gauges_;
  std::vector<Site> sites_;
  std::string file_;
  bool stepped_ = false;
};

class TorchEngine final : public Engine {
 protected:
  Environment do_describe(const std::string& backend) override { return describe_backend(backend); }

  Recording do_execute(const Scenario& scenario, const RunConfig& config) override {
    fix_what_varies(config.backend);
    if (config.sites || !config.snapshot.empty()) record_sites();
    Recording recording;
    recording.scenario = scenario.id;
    recording.twin = config.twin;
    recording.params = config.setting.values();
    recording.steps = config.steps;
    recording.warmup = config.warmup;
    recording.environment = describe_backend(config.backend);
    try {
      Recorder recorder(config, recording.environment, recording);
      recorder.measure(scenario);
    } catch (const UnavailableError& error) {
      recording.skipped = error.what();
    } catch (const c10::OutOfMemoryError& error) {
      throw OutOfMemory(error.what_without_backtrace());
    } catch (const c10::Error& error) {
      throw std::runtime_error(error.what_without_backtrace());
    }
    return recording;
  }

  std::vector<ReplayedLevel> do_replay(const History& history,
                                       const std::string& backend) override {
    fix_what_varies(backend);
    try {
      return perform(history, describe_backend(backend));
    } catch (const c10::OutOfMemoryError& error) {
      throw OutOfMemory(error.what_without_backtrace());
    } catch (const c10::Error& error) {
      throw std::runtime_error(error.what_without_backtrace());
    }
  }

  std::vector<ProbeStatus> do_probe_statuses(const std::string& backend) override {
    const auto environment = describe_backend(backend);
    std::vector<ProbeStatus> statuses;
    for (const auto& named : probes()) {
      auto probe = named.make();
      statuses.push_back({named.name, probe->channels(), probe->start(environment)});
    }
    return statuses;
  }
};

const bool installed = [] {
  static TorchEngine engine;
  set_engine(&engine);
  return true;
}();

}  // namespace
}  // namespace leaklab

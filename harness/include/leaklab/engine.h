// The seam between the core, which decides, and what can run scenarios on a LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leaklab/history.h"
#include "leaklab/recording.h"
#include "leaklab/setting.h"

namespace leaklab {

struct RunConfig {
  Twin twin = Twin::fixed;
  Setting setting;
  std::int64_t steps = 0;  // of which the first `warmup` are not judged
  std::int64_t warmup = 0;
  std::string backend;   // "cpu" or "cuda"
  bool sites = false;    // record the operators behind surviving allocations; costs time
  std::string snapshot;  // where a memory snapshot of the steps goes; empty: none is taken
};

// What the allocator says at one boundary of a replay.
struct ReplayedLevel {
  Level live;
  std::int64_t reserved = 0;  // bytes in segments; 0 on the CPU, which has none
};

struct ProbeStatus {
  std::string probe;
  std::vector<std::string> channels;
  std::string unavailable;  // why it can't measure; empty when it can
};

class Engine {
 public:
  virtual ~Engine() = default;
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Describes "cpu" or "cuda". Throws UnavailableError that says why it can't be used. Touches
  // CUDA where asked for it, so it is called in a child process only.
  Environment describe(const std::string& backend) { return do_describe(backend); }
  // Runs one scenario in this process, which must not have run another.
  Recording execute(const Scenario& scenario, const RunConfig& config) {
    return do_execute(scenario, config);
  }
  // Performs the events on the allocator of that environment and reads it at each boundary. In a
  // child process only.
  std::vector<ReplayedLevel> replay(const History& history, const std::string& backend) {
    return do_replay(history, backend);
  }
  // What each probe can do in that environment. In a child process only.
  std::vector<ProbeStatus> probe_statuses(const std::string& backend) {
    return do_probe_statuses(backend);
  }

 protected:
  virtual Environment do_describe(const std::string& backend) = 0;
  virtual Recording do_execute(const Scenario& scenario, const RunConfig& config) = 0;
  virtual std::vector<ReplayedLevel> do_replay(const History& history,
                                               const std::string& backend) = 0;
  virtual std::vector<ProbeStatus> do_probe_statuses(const std::string& backend) = 0;
};

// The engine of this program, or nullptr in a build without LibTorch.
Engine* engine();
void set_engine(Engine* engine);

}  // namespace leaklab

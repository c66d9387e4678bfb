#include "replay.h"

#include <c10/core/Allocator.h>

#include "backend.h"
#include "leaklab/probe.h"

namespace leaklab {
namespace {

class Instruments {
 public:
  explicit Instruments(const Environment& environment) {
    for (const auto& named : probes()) {
      auto probe = named.make();
      if (probe->start(environment).empty()) probes_.push_back(std::move(probe));
    }
    start_ = read();
  }

  ReplayedLevel level() const {
    auto level = read();
    level.live.requested -= start_.live.requested;
    level.live.allocations -= start_.live.allocations;
    level.reserved -= start_.reserved;
    return level;
  }

 private:
  ReplayedLevel read() const {
    Sample sample;
    for (const auto& probe : probes_) probe->sample(sample);
    return {{sample["requested"], sample["live_allocations"]}, sample["reserved"]};
  }

  std::vector<std::unique_ptr<Probe>> probes_;
  ReplayedLevel start_;
};

}  // namespace

std::vector<ReplayedLevel> perform(const History& history, const Environment& environment) {
  const Instruments instruments(environment);
  auto* allocator = c10::GetAllocator(environment.backend == "cuda" ? c10::kCUDA : c10::kCPU);
  std::vector<c10::DataPtr> blocks;
  std::vector<ReplayedLevel> levels;
  std::size_t event = 0;
  for (const auto boundary : history.boundaries) {
    for (; event < boundary; ++event) {
      const auto& at = history.events[event];
      if (at.allocation >= blocks.size()) blocks.resize(at.allocation + 1);
      auto& block = blocks[at.allocation];
      block = at.alloc ? allocator->allocate(static_cast<std::size_t>(at.bytes)) : c10::DataPtr();
    }
    synchronize(environment);
    levels.push_back(instruments.level());
  }
  return levels;
}

}  // namespace leaklab

// The C heap and the resident set of this process.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>

#include "leaklab/probe.h"

namespace leaklab {
namespace {

class HostMemory final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override { return {"host_heap", "host_rss"}; }

  std::string do_start(const Environment&) override {
    page_ = sysconf(_SC_PAGESIZE);
    statm_ = std::fopen("/proc/self/statm", "re");
    return statm_ == nullptr ? "/proc/self/statm can't be read" : "";
  }

  void do_sample(Sample& into) override {
    const auto heap = mallinfo2();
    into["host_heap"] = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
    long long pages = 0;
    std::rewind(statm_);
    if (std::fscanf(statm_, "%*d %lld", &pages) == 1) into["host_rss"] = pages * page_;
    // What was read ahead is stale at the next sample.
    std::fflush(statm_);
  }

 private:
  std::FILE* statm_ = nullptr;
  std::int64_t page_ = 0;
};

LEAKLAB_PROBE(host_memory, HostMemory);

}  // namespace
}  // namespace leaklab

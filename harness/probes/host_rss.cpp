// The resident set of this process.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "leaklab/probe.h"

namespace leaklab {
namespace {

class HostRss final : public Probe {
 protected:
  std::vector<std::string> do_channels() const override { return {"host_rss"}; }

  std::string do_start(const Environment&) override {
    page_ = sysconf(_SC_PAGESIZE);
    statm_ = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    return statm_ < 0 ? "/proc/self/statm can't be read" : "";
  }

  void do_sample(Sample& into) override {
    // "total resident shared ...", in pages.
    std::array<char, 128> text{};
    const auto length = pread(statm_, text.data(), text.size(), 0);
    const std::string_view fields(text.data(),
                                  static_cast<std::size_t>(std::max<ssize_t>(0, length)));
    const auto resident = fields.find(' ') + 1;
    std::int64_t pages = 0;
    std::from_chars(fields.data() + resident, fields.data() + fields.size(), pages);
    into["host_rss"] = pages * page_;
  }

 private:
  int statm_ = -1;  // open to the end of the process, which is the end of the run
  std::int64_t page_ = 0;
};

LEAKLAB_PROBE(host_rss, HostRss);

}  // namespace
}  // namespace leaklab

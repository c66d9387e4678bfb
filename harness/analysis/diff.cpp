#include <algorithm>
#include <map>
#include <tuple>

#include "leaklab/diagnosis.h"
#include "out_of_memory.h"
#include "sites.h"

namespace leaklab {
namespace {

struct Live {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

using SiteKey = std::tuple<std::string, std::int64_t, std::string>;

std::map<SiteKey, Live> live_by_site(const Snapshot& snapshot) {
  const Sites sites(snapshot);
  std::map<FrameId, Live> by_frame;
  for (const auto& block : snapshot.blocks) {
    if (block.state != BlockState::active_allocated) continue;
    auto& live = by_frame[sites.stack(block.stack).site];
    live.bytes += block.requested > 0 ? block.requested : block.size;
    ++live.count;
  }
  std::map<SiteKey, Live> live;
  for (const auto& [frame, each] : by_frame) {
    const auto site = site_of(snapshot, frame);
    auto& sum = live[{site.file, site.line, site.function}];
    sum.bytes += each.bytes;
    sum.count += each.count;
  }
  return live;
}

}  // namespace

std::vector<SiteChange> diff(const Snapshot& before, const Snapshot& after) {
  const auto old_live = live_by_site(before);
  std::vector<SiteChange> changes;
  for (const auto& [key, live] : live_by_site(after)) {
    const auto known = old_live.find(key);
    const auto old = known == old_live.end() ? Live{} : known->second;
    const auto& [file, line, function] = key;
    SiteChange change{
        {file, line, function}, live.bytes - old.bytes, live.count - old.count, live.bytes};
    if (change.bytes > 0 || change.allocations > 0) changes.push_back(std::move(change));
  }
  std::ranges::sort(changes, [](const SiteChange& left, const SiteChange& right) {
    return std::tie(right.bytes, left.site.file, left.site.line, left.site.function) <
           std::tie(left.bytes, right.site.file, right.site.line, right.site.function);
  });
  return changes;
}

}  // namespace leaklab

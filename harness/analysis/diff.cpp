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

std::map<CodeSite, Live> live_by_site(const Snapshot& snapshot) {
  const Sites sites(snapshot);
  std::map<FrameId, Live> by_frame;
  for (const auto& block : snapshot.blocks) {
    if (!is_live(block)) continue;
    auto& live = by_frame[sites.stack(block.stack).site];
    live.bytes += bytes_of(block);
    ++live.count;
  }
  std::map<CodeSite, Live> live;
  for (const auto& [frame, each] : by_frame) {
    auto& sum = live[site_of(snapshot, frame)];
    sum.bytes += each.bytes;
    sum.count += each.count;
  }
  return live;
}

}  // namespace

std::vector<SiteChange> diff(const Snapshot& before, const Snapshot& after) {
  const auto old_live = live_by_site(before);
  std::vector<SiteChange> changes;
  for (const auto& [site, live] : live_by_site(after)) {
    const auto known = old_live.find(site);
    const auto old = known == old_live.end() ? Live{} : known->second;
    SiteChange change{site, live.bytes - old.bytes, live.count - old.count, live.bytes};
    if (change.bytes > 0 || change.allocations > 0) changes.push_back(std::move(change));
  }
  std::ranges::sort(changes, [](const SiteChange& left, const SiteChange& right) {
    return std::tie(right.bytes, left.site) < std::tie(left.bytes, right.site);
  });
  return changes;
}

}  // namespace leaklab

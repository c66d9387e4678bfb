#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "device_diagnosis.h"
#include "leaklab/diagnosis.h"
#include "out_of_memory.h"
#include "sites.h"

namespace leaklab {
namespace {

struct Live {
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

// By device, too: one that grows and another that shrinks are not level.
std::map<std::pair<std::int64_t, CodeSite>, Live> live_by_site(const Snapshot& snapshot) {
  const Sites sites(snapshot);
  std::map<std::pair<std::int64_t, FrameId>, Live> by_frame;
  for (const auto& segment : snapshot.segments) {
    for (std::uint32_t each = 0; each < segment.blocks; ++each) {
      const auto& block = snapshot.blocks[segment.first_block + each];
      if (!is_live(block)) continue;
      auto& live = by_frame[{segment.device, sites.stack(block.stack).site}];
      live.bytes += bytes_of(block);
      ++live.count;
    }
  }
  std::map<std::pair<std::int64_t, CodeSite>, Live> live;
  for (const auto& [place, each] : by_frame) {
    auto& sum = live[{place.first, site_of(snapshot, place.second)}];
    sum.bytes += each.bytes;
    sum.count += each.count;
  }
  return live;
}

// Where a snapshot comes from.
struct Origin {
  bool any_live = false;
  bool any_frames = false;         // of what is live
  std::set<std::int64_t> devices;  // of what is live
  std::set<CodeSite> lines;        // of the user's code, at any depth of any stack
  std::int64_t ends_us = 0;        // when the last event was; 0: unknown
};

Origin origin_of(const Snapshot& snapshot) {
  // What was written without a clock counts from 0; the clock of PyTorch, from 1970.
  constexpr std::int64_t year_2000 = 946'684'800'000'000;
  Origin origin;
  for (const auto& segment : snapshot.segments) {
    for (std::uint32_t each = 0; each < segment.blocks; ++each) {
      const auto& block = snapshot.blocks[segment.first_block + each];
      if (!is_live(block)) continue;
      origin.any_live = true;
      origin.any_frames = origin.any_frames || !snapshot.stacks[block.stack].empty();
      origin.devices.insert(segment.device);
    }
  }
  const Sites sites(snapshot);
  for (FrameId frame = 0; frame < snapshot.frames.size(); ++frame) {
    if (!sites.frame(frame).framework) origin.lines.insert(site_of(snapshot, frame));
  }
  for (const auto& trace : snapshot.traces) {
    if (!trace.empty()) origin.ends_us = std::max(origin.ends_us, trace.back().time_us);
  }
  if (origin.ends_us < year_2000) origin.ends_us = 0;
  return origin;
}

template <typename Value>
bool nothing_in_common(const std::set<Value>& left, const std::set<Value>& right) {
  return !left.empty() && !right.empty() &&
         std::ranges::none_of(left, [&](const auto& each) { return right.contains(each); });
}

}  // namespace

std::vector<SiteChange> diff(const Snapshot& before, const Snapshot& after) {
  const auto old_live = live_by_site(before);
  std::vector<SiteChange> changes;
  for (const auto& [place, live] : live_by_site(after)) {
    const auto known = old_live.find(place);
    const auto old = known == old_live.end() ? Live{} : known->second;
    const auto& [device, site] = place;
    SiteChange change{site, live.bytes - old.bytes, live.count - old.count, live.bytes, device};
    if (change.bytes > 0 || change.allocations > 0) changes.push_back(std::move(change));
  }
  std::ranges::sort(changes, [](const SiteChange& left, const SiteChange& right) {
    return std::tie(right.bytes, left.site, left.device) <
           std::tie(left.bytes, right.site, right.device);
  });
  return changes;
}

std::vector<std::string> incomparable(const Snapshot& before, const std::string& before_name,
                                      const Snapshot& after, const std::string& after_name) {
  const auto old = origin_of(before);
  const auto young = origin_of(after);
  std::vector<std::string> told;
  if (old.any_live && young.any_live && old.any_frames != young.any_frames) {
    told.push_back(fmt::format(
        "the blocks of {} have frames and those of {} have none, so lines can't be "
        "compared: record both with frames",
        old.any_frames ? before_name : after_name, old.any_frames ? after_name : before_name));
  }
  if (old.any_live && young.any_live && !old.any_frames && !young.any_frames) {
    told.push_back(fmt::format(
        "neither the blocks of {} nor those of {} have frames, so no line can be named: "
        "record both with {}",
        before_name, after_name, record_call));
  }
  if (nothing_in_common(old.lines, young.lines)) {
    told.push_back(fmt::format(
        "{} and {} have no line of code in common, so all that lives in {} counts as more: "
        "compare two snapshots of one program",
        before_name, after_name, after_name));
  }
  if (nothing_in_common(old.devices, young.devices)) {
    told.push_back(fmt::format(
        "what lives in {} is on {} and what lives in {} on {}: compare two snapshots of one device",
        before_name, devices_text({old.devices.begin(), old.devices.end()}), after_name,
        devices_text({young.devices.begin(), young.devices.end()})));
  } else if (!young.devices.empty()) {
    std::vector<std::int64_t> gone;
    std::ranges::set_difference(old.devices, young.devices, std::back_inserter(gone));
    if (!gone.empty()) {
      told.push_back(
          fmt::format("nothing in {} lives on {}, where {} has something: compare two snapshots of "
                      "the same devices",
                      after_name, devices_text(gone), before_name));
    }
  }
  if (old.ends_us != 0 && young.ends_us != 0 && young.ends_us < old.ends_us) {
    told.push_back(
        fmt::format("the recording in {} ends before that in {}: give the older file first",
                    after_name, before_name));
  }
  return told;
}

}  // namespace leaklab

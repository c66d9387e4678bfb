#include "leaklab/channel.h"

#include <algorithm>
#include <array>

namespace leaklab {
namespace {

constexpr std::int64_t KiB = 1024;
constexpr std::int64_t MiB = 1024 * KiB;

constexpr std::array<Channel, 15> table{{
    {"active", "B", false, true, 2 * MiB,
     "blocks of the caching allocator that are allocated or still in use by a stream"},
    {"allocated", "B", true, true, 0,
     "blocks of the caching allocator that are handed out, rounding included"},
    {"driver", "B", false, true, 4 * MiB, "device memory that this process has from the driver"},
    {"driver_gap", "B", false, true, 4 * MiB,
     "driver memory of this process that the caching allocator does not own"},
    {"graph_nodes", "count", true, true, 0, "autograd nodes that are alive, reachable or not"},
    {"host_heap", "B", false, true, 96 * KiB, "bytes in use in the C heap of this process"},
    {"host_rss", "B", false, true, 16 * MiB, "resident set of this process"},
    {"inactive_split", "B", false, true, 2 * MiB,
     "free parts of segments that are partly in use: fragmentation"},
    {"live_allocations", "count", true, true, 0, "allocations that are alive"},
    {"peak", "B", true, true, 0, "most requested bytes alive at once inside the step"},
    {"pinned_active", "B", false, false, 0,
     "active_bytes of the pinned allocator; does not come down on LibTorch 2.11, so not judged"},
    {"pinned_owned", "B", false, true, 0,
     "page-locked host memory that the pinned allocator owns, in use or cached"},
    {"requested", "B", true, true, 0,
     "live allocations as requested, summed over the allocator's events: free of timing"},
    {"reserved", "B", false, true, 2 * MiB, "segments that the caching allocator owns"},
    {"segments", "count", false, true, 1, "segments that the caching allocator owns"},
}};
static_assert(std::ranges::is_sorted(table, {}, &Channel::name));

}  // namespace

std::span<const Channel> channels() { return table; }

const Channel* find_channel(std::string_view name) {
  const auto found = std::ranges::find(table, name, &Channel::name);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace leaklab

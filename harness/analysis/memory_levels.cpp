#include "memory_levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "../core/size_text.h"
#include "out_of_memory.h"
#include "segments.h"

namespace leaklab {
namespace {

// Less is noise beside what the allocator rounds up: its segments have 2 MiB and more.
constexpr std::int64_t least_bytes = 16 << 20;

// At least; what comes now and then may come again in as many.
constexpr std::int64_t recent_steps = 3;

bool is_much(std::int64_t bytes, std::int64_t of) {
  return bytes >= least_bytes && bytes >= of / 10;
}

// What lies on a device from there on.
struct Range {
  std::int64_t device = 0;
  std::uint64_t address = 0;
  std::int64_t size = 0;
  // Of a segment.
  bool expandable = false;
  bool small = false;
  bool is_private = false;  // of a pool of its own

  std::uint64_t end() const {
    return address + static_cast<std::uint64_t>(std::max<std::int64_t>(0, size));
  }
  auto place() const { return std::tuple(device, address); }
};

// Whether the second one goes on where the first one ends, so that what is free in both is one
// stretch.
bool joined(const Range& first, const Range& second) {
  return first.expandable && second.expandable && first.device == second.device &&
         first.end() == second.address;
}

// Whether it is of a pool of its own, such as that of a CUDA graph.
bool is_private(const Snapshot& snapshot, const Segment& segment) {
  return snapshot.pools[segment.pool] != std::pair<std::int64_t, std::int64_t>();
}

// By how many bytes the event makes more reserved.
std::int64_t reserved_by(const TraceEvent& event) {
  if (event.kind == EventKind::segment_alloc || event.kind == EventKind::segment_map) {
    return event.size;
  }
  if (event.kind == EventKind::segment_free || event.kind == EventKind::segment_unmap) {
    return -event.size;
  }
  return 0;
}

// Whether more is reserved when the trace ends than at its middle.
bool reserves_more(const Trace& trace) {
  std::int64_t more = 0;
  for (auto at = trace.size() / 2; at < trace.size(); ++at) more += reserved_by(trace[at]);
  return more > 0;
}

}  // namespace

std::int64_t in_blocks(std::int64_t bytes, std::int64_t count) {
  if (count <= 0) return bytes;
  const auto mean = (bytes + count - 1) / count;
  return std::max(bytes, (mean + block_bytes - 1) / block_bytes * block_bytes * count);
}

Ages ages_of(std::span<const Left> left, std::int64_t steps) {
  Ages ages;
  std::int64_t all = 0;
  for (const auto& each : left) all += each.count;
  std::int64_t older = 0;
  for (const auto& each : left) {
    if (each.count <= 0) continue;
    const auto age = steps - each.step;
    ages.oldest = std::max(ages.oldest, age);
    if (older * 2 < all) ages.median = age;
    older += each.count;
  }
  return ages;
}

std::vector<Survivors> survivors(const Snapshot& snapshot, const Trace& trace, const Sites& sites,
                                 const Lifetimes& lifetimes, const Steps& steps) {
  struct Live {
    std::int64_t bytes = 0;
    std::int64_t count = 0;
    std::int64_t before = 0;
    std::vector<Left> born;  // by step
  };
  std::map<FrameId, Live> lines;
  for (const auto& block : lifetimes.unborn) {
    auto& live = lines[sites.stack(block.stack).site];
    live.bytes += block.requested;
    ++live.count;
    ++live.before;
  }
  for (const auto& each : lifetimes.allocations) {
    if (each.freed != no_event) continue;
    const auto event = trace[each.born];
    auto& live = lines[sites.stack(event.stack).site];
    live.bytes += event.size;
    ++live.count;
    if (steps.count() == 0) continue;
    const auto step = std::max<std::int64_t>(0, steps.of(each.born));
    if (live.born.empty() || live.born.back().step != step) live.born.push_back({step, 0, 0});
    ++live.born.back().count;
  }
  std::vector<std::pair<FrameId, const Live*>> order;
  for (const auto& [frame, live] : lines) order.emplace_back(frame, &live);
  std::ranges::sort(order, [](const auto& left, const auto& right) {
    return std::tuple(right.second->bytes, left.first) <
           std::tuple(left.second->bytes, right.first);
  });
  std::vector<Survivors> found;
  for (const auto& [frame, live] : order) {
    if (found.size() == 10) break;
    auto ages = ages_of(live->born, steps.count());
    ages.before_trace = live->before;
    found.push_back({site_of(snapshot, frame), live->bytes, live->count, ages});
  }
  return found;
}

std::vector<std::int64_t> step_peaks(const Trace& trace, const Lifetimes& lifetimes,
                                     const Steps& steps) {
  const auto levels = levels_in_blocks(trace, lifetimes);
  std::vector<std::int64_t> peaks;
  for (std::size_t step = 0; step + 1 < steps.begin.size(); ++step) {
    const auto end =
        step + 2 < steps.begin.size() ? levels.begin() + steps.begin[step + 1] + 1 : levels.end();
    peaks.push_back(*std::max_element(levels.begin() + steps.begin[step], end));
  }
  return peaks;
}

std::int64_t needed_by_steps(std::span<const std::int64_t> peaks, double leaked_per_step) {
  const auto steps = std::ssize(peaks);
  std::int64_t needed = 0;
  for (auto step = std::max<std::int64_t>(0, std::min(steps / 2, steps - recent_steps));
       step < steps; ++step) {
    const auto leaked_since = leaked_per_step * static_cast<double>(steps - 1 - step);
    needed = std::max(
        needed, peaks[static_cast<std::size_t>(step)] + static_cast<std::int64_t>(leaked_since));
  }
  return needed;
}

bool names_a_live_block(const Snapshot& snapshot, const Sites& sites) {
  return std::ranges::any_of(snapshot.blocks, [&](const Block& block) {
    return is_live(block) && sites.stack(block.stack).site != no_frame;
  });
}

std::map<std::int64_t, Cache> caches(const Snapshot& snapshot) {
  std::vector<Range> segments;
  std::vector<Range> taken;
  for (const auto& segment : snapshot.segments) {
    segments.push_back({segment.device, segment.address, segment.total_size, segment.expandable,
                        is_small(snapshot, segment), is_private(snapshot, segment)});
    for (std::uint32_t each = 0; each < segment.blocks; ++each) {
      const auto& block = snapshot.blocks[segment.first_block + each];
      if (block.state == BlockState::inactive) continue;
      taken.push_back({segment.device, block.address, block.size});
    }
  }
  std::ranges::sort(segments, {}, &Range::place);
  std::ranges::sort(taken, {}, &Range::place);
  std::map<std::int64_t, Cache> found;
  auto block = taken.begin();
  std::int64_t open = 0;  // bytes of the free stretch that reaches up to the end of what was seen
  for (auto segment = segments.begin(); segment != segments.end(); ++segment) {
    auto& cache = found[segment->device];
    cache.reserved += std::max<std::int64_t>(0, segment->size);
    if (segment == segments.begin() || !joined(*std::prev(segment), *segment)) open = 0;
    while (block != taken.end() && block->place() < segment->place()) ++block;
    const bool holds_nothing = block == taken.end() || block->device != segment->device ||
                               block->address >= segment->end();
    const auto free = [&](std::uint64_t from, std::uint64_t to) {
      if (to <= from) return;
      const auto bytes = static_cast<std::int64_t>(to - from);
      if (open == 0) ++cache.stretches;
      open += bytes;
      cache.bytes += bytes;
      (segment->is_private ? cache.releasable_later : cache.releasable) +=
          segment->expandable
              ? whole_pages(static_cast<std::int64_t>(from - segment->address),
                            static_cast<std::int64_t>(to - segment->address), segment->small)
          : holds_nothing ? bytes
                          : 0;
      cache.largest = std::max(cache.largest, open);
    };
    auto from = segment->address;
    for (; block != taken.end() && block->device == segment->device &&
           block->address < segment->end();
         ++block) {
      free(from, block->address);
      open = 0;
      from = std::max(from, block->end());
    }
    free(from, segment->end());
  }
  return found;
}

std::vector<Lookalike> unused_memory(std::int64_t device, const Cache& cache, const Trace& trace) {
  std::vector<Lookalike> found;
  if (is_much(cache.releasable, cache.reserved)) {
    found.push_back({"N01",
                     device,
                     {},
                     cache.releasable,
                     "freed and kept by the allocator for what comes next: nvidia-smi counts it as "
                     "used, torch.cuda.empty_cache() gives it back",
                     "reserved"});
  }
  if (is_much(cache.releasable_later, cache.reserved)) {
    found.push_back(
        {"N01",
         device,
         {},
         cache.releasable_later,
         "freed and kept in private pools, such as those of CUDA graphs, where nothing "
         "else can use it: nvidia-smi counts it as used, torch.cuda.empty_cache() gives "
         "it back once nothing needs the pool any more",
         "reserved"});
  }
  const auto between = cache.bytes - cache.releasable - cache.releasable_later;
  if (is_much(between, cache.reserved) && !reserves_more(trace)) {
    found.push_back({"N07",
                     device,
                     {},
                     between,
                     "free between live blocks, where smaller allocations go; what is reserved no "
                     "longer grows, and nvidia-smi counts all of it as used",
                     "inactive_split"});
  }
  return found;
}

std::optional<std::string> growing_reserve(const Snapshot& snapshot, std::size_t device,
                                           const Steps& steps) {
  if (steps.count() < 8) return std::nullopt;
  // In the first quarter sizes come for the first time.
  const auto& trace = snapshot.traces[device];
  const auto quarter = [&](std::int64_t number) { return steps.count() * number / 4; };
  std::int64_t all = 0;
  std::int64_t most = 0;
  std::int64_t last = 0;
  std::set<std::uint64_t> fresh;  // addresses of new segments
  for (const std::int64_t number : {1, 2, 3}) {
    last = 0;
    const auto end = steps.begin[static_cast<std::size_t>(quarter(number + 1))];
    for (auto at = steps.begin[static_cast<std::size_t>(quarter(number))]; at < end; ++at) {
      const auto event = trace[at];
      last += reserved_by(event);
      if (event.kind == EventKind::segment_alloc) fresh.insert(event.address);
    }
    if (last <= 0) return std::nullopt;
    all += last;
    most = std::max(most, last);
  }
  // What ebbs away comes to an end.
  if (all < least_bytes || last < most / 2) return std::nullopt;
  std::int64_t in_pools = 0;
  bool expandable = false;
  for (const auto& segment : snapshot.segments) {
    if (segment.device != static_cast<std::int32_t>(device)) continue;
    expandable = expandable || segment.expandable;
    if (is_private(snapshot, segment) && fresh.contains(segment.address)) {
      in_pools += segment.total_size;
    }
  }
  return fmt::format(
      "reserved memory grows by {} a step although no line keeps more{}",
      size_text(all / (steps.count() - quarter(1))),
      in_pools * 2 >= all
          ? ", in private pools, such as those of CUDA graphs: capture graphs once, or into one "
            "pool"
          : fmt::format(", as no free piece fits what is asked for: {}record more steps to see "
                        "whether it ends, and ask for the same sizes in each step",
                        expandable ? ""
                                   : "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lessens "
                                     "that; "));
}

std::optional<Lookalike> high_water_mark(std::int64_t device,
                                         const std::vector<std::int64_t>& levels,
                                         const Steps& steps) {
  // In the first half: what comes now and then may only not have come again yet.
  const auto least_later = std::max(recent_steps, steps.count() / 2);
  const auto peak = std::ranges::max_element(levels);
  // The level before an event is that after the event before it.
  const auto at = static_cast<EventIndex>(std::max<std::ptrdiff_t>(1, peak - levels.begin()) - 1);
  const auto step = steps.of(at);
  if (step + 1 + least_later > steps.count()) return std::nullopt;
  const auto later = *std::max_element(
      levels.begin() + steps.begin[static_cast<std::size_t>(step + 1)], levels.end());
  if (!is_much(*peak - later, *peak)) return std::nullopt;
  const auto when =
      step < 0 ? "before the first step" : fmt::format("in step {}", step + steps.before);
  return Lookalike{"N06",
                   device,
                   {},
                   *peak - later,
                   fmt::format("high-water mark: {} were live {}, and {} at most in any step since",
                               size_text(*peak), when, size_text(later)),
                   "peak"};
}

}  // namespace leaklab

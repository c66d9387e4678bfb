// The table of a device's events against a plain vector of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "leaklab/snapshot.h"
#include "made_snapshot.h"

namespace leaklab {
namespace {

static_assert(std::random_access_iterator<Trace::Iterator>);
static_assert(std::same_as<std::iter_reference_t<Trace::Iterator>, TraceEvent>);

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::size_t pick(std::size_t below) { return engine_() % below; }
  // `details`: about how many values each member has that events share.
  TraceEvent event(std::size_t details, bool timed) {
    TraceEvent made;
    made.address = wide();
    made.size = static_cast<std::int64_t>(wide());
    made.time_us = timed ? static_cast<std::int64_t>(wide()) : 0;
    made.stack = static_cast<StackId>(wide());
    made.compile_context = some(details);
    made.user_metadata = some(details);
    made.stream = some(details);
    made.pool = some(details);
    made.kind = static_cast<EventKind>(pick(10));
    made.keys = static_cast<std::uint8_t>(details > 1 ? pick(256) : 255);
    return made;
  }

 private:
  std::uint64_t wide() {
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    const std::array<std::uint64_t, 5> edges = {0, 1, most, most / 2, most / 2 + 1};
    return pick(2) == 0 ? edges[pick(edges.size())] : engine_() >> pick(64);
  }
  std::uint32_t some(std::size_t details) {
    return pick(2) == 0 ? static_cast<std::uint32_t>(pick(details))
                        : std::numeric_limits<std::uint32_t>::max();
  }

  std::mt19937_64 engine_;
};

void expect_same(const Trace& trace, const std::vector<TraceEvent>& events) {
  ASSERT_EQ(trace.size(), events.size());
  EXPECT_EQ(trace.empty(), events.empty());
  for (std::size_t at = 0; at < events.size(); ++at) ASSERT_EQ(trace[at], events[at]) << at;
  EXPECT_TRUE(std::ranges::equal(trace, events));
  if (events.empty()) return;
  EXPECT_EQ(trace.front(), events.front());
  EXPECT_EQ(trace.back(), events.back());
}

TEST(Trace, gives_back_whatever_was_put_in) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::size_t details = std::size_t{1} << random.pick(16);
    // From one place on, from the beginning, or never.
    const std::size_t timed_from = random.pick(600);
    Trace trace;
    std::vector<TraceEvent> events;
    for (std::size_t count = random.pick(3000); count > 0; --count) {
      if (random.pick(500) == 0) trace.reserve(trace.size() + random.pick(1000));
      if (random.pick(4) == 0 && !events.empty()) {
        const std::size_t at = random.pick(events.size());
        events[at] = random.event(details, at >= timed_from);
        trace.set(at, events[at]);
      } else {
        events.push_back(random.event(details, events.size() >= timed_from));
        trace.push_back(events.back());
      }
    }
    expect_same(trace, events);
    const Trace copy = trace;
    trace.push_back({});
    expect_same(copy, events);
    Trace moved = std::move(trace);
    trace = {};
    trace.push_back({.size = 5});
    expect_same(trace, {{.size = 5}});
    events.push_back({});
    expect_same(moved, events);
  }
}

TEST(Trace, events_before_the_first_that_tells_the_time_have_none) {
  Trace trace;
  for (int untimed = 0; untimed < 3; ++untimed) trace.push_back({.address = 7});
  trace.push_back({.address = 8, .time_us = -9});
  trace.push_back({.address = 9});
  expect_same(trace, {{.address = 7},
                      {.address = 7},
                      {.address = 7},
                      {.address = 8, .time_us = -9},
                      {.address = 9}});
  Trace untimed;
  untimed.push_back({});
  untimed.push_back({});
  untimed.set(1, {.time_us = 4});
  expect_same(untimed, {{}, {.time_us = 4}});
  untimed.set(1, {.size = 3});
  expect_same(untimed, {{}, {.size = 3}});
}

TEST(Trace, is_searched_and_walked_over_as_a_list_of_events) {
  Trace trace;
  for (std::int64_t time = 0; time < 100; ++time) {
    trace.push_back({.size = 2 * time,
                     .time_us = 10 * time,
                     .kind = time % 2 == 0 ? EventKind::alloc : EventKind::free_completed});
  }
  const auto found = std::ranges::lower_bound(trace, 421, {}, &TraceEvent::time_us);
  EXPECT_EQ(found - trace.begin(), 43);
  EXPECT_EQ((*found).size, 86);
  EXPECT_EQ(found[-1].size, 84);
  EXPECT_EQ(std::ranges::count(trace, EventKind::alloc, &TraceEvent::kind), 50);
  EXPECT_TRUE(std::any_of(trace.begin() + 90, trace.end(),
                          [](const TraceEvent& event) { return event.size == 198; }));
  std::int64_t sum = 0;
  for (const TraceEvent& event : trace) sum += event.size;
  EXPECT_EQ(sum, 9900);
  auto last = trace.end();
  EXPECT_EQ(*--last, trace.back());
  EXPECT_LT(trace.begin(), last);
  EXPECT_EQ(std::ranges::max_element(trace, {}, &TraceEvent::size), last--);
  EXPECT_EQ(last, 98 + trace.begin());
}

TEST(Trace, a_recorded_event_may_be_changed_in_place) {
  made::Program program;
  program.alloc(made::Program::line(3), 4096);
  program.free(program.alloc(made::Program::line(4), 512));
  auto snapshot = program.dump();
  const auto before = snapshot;
  made::change(snapshot.traces[0], [](TraceEvent& event) { event.size *= 2; });
  EXPECT_EQ(snapshot.traces[0].back().size, 1024);
  EXPECT_EQ(difference(before, snapshot), "traces[0][0].size");
  made::change(snapshot.traces[0], [](TraceEvent& event) { event.size /= 2; });
  EXPECT_EQ(difference(before, snapshot), "");
}

}  // namespace
}  // namespace leaklab

#include "leaklab/event_log.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace leaklab {
namespace {

using Event = std::pair<Action, std::int64_t>;
using Step = std::vector<Event>;

constexpr Action alloc = Action::alloc;
constexpr Action dealloc = Action::free;

std::uint64_t hash_of(const std::vector<Step>& steps) {
  EventLog log;
  for (const Step& step : steps) {
    log.begin_step();
    for (const auto& [action, bytes] : step) log.add(action, bytes);
    log.end_step();
  }
  return log.hash();
}

TEST(EventLog, starts_empty) {
  const EventLog log;
  EXPECT_EQ(log.live_bytes(), 0);
  EXPECT_EQ(log.live_count(), 0);
  EXPECT_EQ(log.peak(), 0);
  EXPECT_EQ(log.events(), 0);
}

TEST(EventLog, live_bytes_and_live_count_are_what_was_allocated_minus_what_was_freed) {
  EventLog log;
  log.add(alloc, 100);
  log.add(alloc, 40);
  log.add(alloc, 0);
  log.add(dealloc, 100);
  EXPECT_EQ(log.live_bytes(), 40);
  EXPECT_EQ(log.live_count(), 2);
  EXPECT_EQ(log.events(), 4);
}

TEST(EventLog, sizes_beyond_32_bits_are_counted) {
  EventLog log;
  log.add(alloc, std::int64_t{5} << 40);
  EXPECT_EQ(log.live_bytes(), std::int64_t{5} << 40);
  EXPECT_EQ(log.peak(), std::int64_t{5} << 40);
}

TEST(EventLog, the_peak_is_the_most_that_lived_at_once) {
  EventLog log;
  log.add(alloc, 100);
  log.add(alloc, 50);
  log.add(dealloc, 100);
  log.add(alloc, 60);
  EXPECT_EQ(log.live_bytes(), 110);
  EXPECT_EQ(log.peak(), 150);
}

TEST(EventLog, a_step_begins_with_its_peak_at_the_live_bytes) {
  EventLog log;
  log.add(alloc, 100);
  log.add(alloc, 50);
  log.add(dealloc, 50);
  log.begin_step();
  EXPECT_EQ(log.peak(), 100);
  log.add(dealloc, 100);
  EXPECT_EQ(log.peak(), 100);
  log.begin_step();
  EXPECT_EQ(log.peak(), 0);
  log.add(alloc, 30);
  EXPECT_EQ(log.peak(), 30);
}

TEST(EventLog, the_end_of_a_step_leaves_totals_and_peak_alone) {
  EventLog log;
  log.add(alloc, 100);
  log.add(dealloc, 40);
  log.end_step();
  EXPECT_EQ(log.live_bytes(), 60);
  EXPECT_EQ(log.peak(), 100);
  EXPECT_EQ(log.events(), 2);
}

TEST(EventLogHash, the_same_events_give_the_same_hash) {
  const std::vector<Step> steps = {{{alloc, 512}, {dealloc, 512}}, {}, {{alloc, 4}}};
  EXPECT_EQ(hash_of(steps), hash_of(steps));
}

// Stored baselines hold such hashes: another value here makes all of them void.
TEST(EventLogHash, its_values_are_part_of_the_format) {
  EXPECT_EQ(hash_of({}), 0xcbf29ce484222325ULL);
  EXPECT_EQ(hash_of({{{alloc, 512}, {dealloc, 512}}, {{alloc, 4}}}), 0xd15368dec41596a2ULL);
}

TEST(EventLogHash, order_within_a_step_does_not_matter) {
  EXPECT_EQ(hash_of({{{alloc, 8}, {alloc, 16}, {dealloc, 8}}}),
            hash_of({{{alloc, 16}, {alloc, 8}, {dealloc, 8}}}));
}

TEST(EventLogHash, order_across_steps_matters) {
  EXPECT_NE(hash_of({{{alloc, 8}}, {{alloc, 16}}}), hash_of({{{alloc, 16}}, {{alloc, 8}}}));
}

TEST(EventLogHash, the_step_in_which_an_event_falls_matters) {
  EXPECT_NE(hash_of({{{alloc, 8}, {alloc, 16}}, {}}), hash_of({{{alloc, 8}}, {{alloc, 16}}}));
}

TEST(EventLogHash, a_step_without_events_matters) {
  EXPECT_NE(hash_of({{{alloc, 8}}}), hash_of({{{alloc, 8}}, {}}));
}

TEST(EventLogHash, the_size_matters) {
  EXPECT_NE(hash_of({{{alloc, 8}}}), hash_of({{{alloc, 9}}}));
}

TEST(EventLogHash, the_action_matters) {
  EXPECT_NE(hash_of({{{alloc, 8}}}), hash_of({{{dealloc, 8}}}));
  EXPECT_NE(hash_of({{{alloc, 8}, {dealloc, 16}}}), hash_of({{{dealloc, 8}, {alloc, 16}}}));
}

TEST(EventLogHash, how_often_an_event_occurs_matters) {
  EXPECT_NE(hash_of({{{alloc, 8}, {alloc, 8}, {alloc, 16}}}),
            hash_of({{{alloc, 8}, {alloc, 16}, {alloc, 16}}}));
  EXPECT_NE(hash_of({{{alloc, 8}, {dealloc, 8}}}),
            hash_of({{{alloc, 8}, {dealloc, 8}, {alloc, 8}, {dealloc, 8}}}));
}

TEST(EventLogHash, sizes_of_equal_sum_differ) {
  EXPECT_NE(hash_of({{{alloc, 4}, {alloc, 12}}}), hash_of({{{alloc, 8}, {alloc, 8}}}));
}

// What `thread` of `threads` adds: a multiset that is the same however it is cut.
void add_share(EventLog& log, int thread, int threads) {
  for (int i = thread; i < 40000; i += threads) {
    log.add(alloc, i);
    if (i % 2 == 0) log.add(dealloc, i);
  }
}

TEST(EventLogThreads, totals_and_hash_do_not_depend_on_how_many_threads_add) {
  EventLog one;
  add_share(one, 0, 1);
  one.end_step();

  EventLog many;
  std::vector<std::thread> threads;
  for (int thread = 1; thread < 4; ++thread) {
    threads.emplace_back([&many, thread] { add_share(many, thread, 4); });
  }
  add_share(many, 0, 4);
  for (std::thread& thread : threads) thread.join();
  many.end_step();

  EXPECT_EQ(many.events(), 60000);
  EXPECT_EQ(many.live_count(), one.live_count());
  EXPECT_EQ(many.live_bytes(), one.live_bytes());
  EXPECT_EQ(many.hash(), one.hash());
}

TEST(EventLogThreads, the_peak_is_exact_where_threads_allocate_in_turn) {
  EventLog log;
  log.add(alloc, 100);
  std::thread([&log] { log.add(alloc, 50); }).join();
  log.add(dealloc, 100);
  std::thread([&log] { log.add(dealloc, 50); }).join();
  EXPECT_EQ(log.peak(), 150);
  EXPECT_EQ(log.live_bytes(), 0);
  std::thread([&log] {
    log.begin_step();
    log.add(alloc, 70);
    log.end_step();
  }).join();
  EXPECT_EQ(log.peak(), 70);
}

TEST(EventLogThreads, a_block_may_be_freed_by_another_thread) {
  EventLog log;
  std::thread([&log] { log.add(alloc, 64); }).join();
  log.add(dealloc, 64);
  EXPECT_EQ(log.live_bytes(), 0);
  EXPECT_EQ(log.live_count(), 0);
}

TEST(EventLog, the_process_has_one_log) { EXPECT_EQ(&event_log(), &event_log()); }

}  // namespace
}  // namespace leaklab

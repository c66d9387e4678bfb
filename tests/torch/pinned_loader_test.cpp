#include "leaklab/pinned_loader.h"

#include <gtest/gtest.h>

#include "leaklab/error.h"

namespace leaklab {
namespace {

PinnedLoader::Options pageable(std::int64_t batches, std::int64_t workers) {
  return {.batches = batches,
          .rows = 3,
          .length = [](std::int64_t batch) { return 2 + batch % 4; },
          .workers = workers,
          .pin_memory = false};
}

TEST(PinnedLoader, yields_its_batches_in_order_however_many_workers_read) {
  PinnedLoader one(pageable(40, 1));
  PinnedLoader three(pageable(40, 3));
  for (std::int64_t batch = 0; batch < 40; ++batch) {
    const auto expected = one.next();
    EXPECT_EQ(expected.sizes(), (std::vector<std::int64_t>{3, 2 + batch % 4}));
    // The first value of a sample is its number, in hundredths.
    EXPECT_FLOAT_EQ(expected[0][0].item<float>(), 0.01F * static_cast<float>(3 * batch % 97));
    EXPECT_TRUE(torch::equal(three.next(), expected));
  }
}

TEST(PinnedLoader, refuses_a_batch_more_than_were_announced) {
  PinnedLoader loader(pageable(2, 2));
  loader.next();
  loader.next();
  EXPECT_THROW(loader.next(), InternalError);
}

TEST(PinnedLoader, waits_until_its_workers_have_read_ahead_to_the_very_end) {
  std::atomic<std::int64_t> read{0};
  auto options = pageable(10, 2);
  options.length = [&](std::int64_t) {
    ++read;
    return 1;
  };
  PinnedLoader loader(options);
  for (std::int64_t taken = 0; taken <= 10; ++taken) {
    loader.wait_for_workers();
    EXPECT_EQ(read, taken + 4) << "two batches a worker are read ahead";
    if (taken < 10) loader.next();
  }
}

TEST(PinnedLoader, may_be_dropped_before_its_end) {
  PinnedLoader loader(pageable(1000, 2));
  loader.next();
}

TEST(PinnedBlock, is_the_next_power_of_two) {
  EXPECT_EQ(pinned_block(1), 1);
  EXPECT_EQ(pinned_block(512), 512);
  EXPECT_EQ(pinned_block(513), 1024);
  EXPECT_EQ(pinned_block(4 * 1000 * 300), 2 * 1024 * 1024);
}

}  // namespace
}  // namespace leaklab

// The probes of the CUDA environment against allocations of known sizes. Skipped without a GPU.
#ifdef LEAKLAB_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <optional>

#include "leaklab/engine.h"
#include "leaklab/error.h"
#include "leaklab/probe.h"
#include "leaklab/torch.h"

namespace leaklab {
namespace {

constexpr std::int64_t MiB = 1024 * 1024;

class CudaProbes : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    try {
      environment_ = engine()->describe("cuda");
    } catch (const UnavailableError& error) {
      why_not_ = error.what();
      return;
    }
    for (const auto& named : probes()) {
      auto probe = named.make();
      reasons_[named.name] = probe->start(*environment_);
      if (reasons_[named.name].empty()) started_.push_back(std::move(probe));
    }
  }
  static void TearDownTestSuite() { started_.clear(); }

  void SetUp() override {
    if (!environment_) GTEST_SKIP() << why_not_;
  }

  static Sample sample() {
    cudaDeviceSynchronize();
    Sample values;
    for (const auto& probe : started_) probe->sample(values);
    return values;
  }

  static void empty_caches() {
    for (const auto& probe : started_) probe->empty_caches();
  }

  static torch::Tensor pinned(std::int64_t bytes) {
    return torch::empty({bytes}, torch::dtype(torch::kUInt8).pinned_memory(true));
  }

  static inline std::optional<Environment> environment_;
  static inline std::string why_not_;
  static inline std::map<std::string, std::string> reasons_;
  static inline std::vector<std::unique_ptr<Probe>> started_;
};

TEST_F(CudaProbes, all_start_but_the_one_of_the_cpu) {
  for (const auto& [name, reason] : reasons_) {
    EXPECT_EQ(reason.empty(), name != "cpu_allocator") << name << ": " << reason;
  }
}

TEST_F(CudaProbes, requested_is_what_was_asked_for_and_allocated_is_rounded) {
  const auto before = sample();
  const auto tensor = torch::empty({1000}, torch::dtype(torch::kUInt8).device(torch::kCUDA));
  const auto after = sample();
  EXPECT_EQ(after.at("requested") - before.at("requested"), 1000);
  EXPECT_EQ(after.at("allocated") - before.at("allocated"), 1024);
  EXPECT_EQ(after.at("live_allocations") - before.at("live_allocations"), 1);
}

TEST_F(CudaProbes, memory_of_the_caching_allocator_leaves_no_gap_to_the_driver) {
  empty_caches();
  const auto before = sample();
  const auto tensor = torch::empty({64 * MiB}, torch::dtype(torch::kUInt8).device(torch::kCUDA));
  const auto after = sample();
  EXPECT_EQ(after.at("reserved") - before.at("reserved"), 64 * MiB);
  EXPECT_EQ(after.at("driver") - before.at("driver"), 64 * MiB);
  EXPECT_EQ(after.at("driver_gap"), before.at("driver_gap"));
}

TEST_F(CudaProbes, memory_that_bypasses_the_caching_allocator_is_the_gap) {
  const auto before = sample();
  void* foreign = nullptr;
  ASSERT_EQ(cudaMalloc(&foreign, 4 * MiB), cudaSuccess);
  const auto during = sample();
  ASSERT_EQ(cudaFree(foreign), cudaSuccess);
  EXPECT_EQ(during.at("requested"), before.at("requested"));
  EXPECT_EQ(during.at("driver_gap") - before.at("driver_gap"), 4 * MiB);
  EXPECT_EQ(sample().at("driver_gap"), before.at("driver_gap"));
}

TEST_F(CudaProbes, memory_of_a_stream_ordered_pool_is_followed) {
  const auto before = sample();
  void* foreign = nullptr;
  ASSERT_EQ(cudaMallocAsync(&foreign, 4 * MiB, nullptr), cudaSuccess);
  const auto during = sample();
  ASSERT_EQ(cudaFreeAsync(foreign, nullptr), cudaSuccess);
  EXPECT_EQ(during.at("driver") - before.at("driver"), 4 * MiB);
  EXPECT_EQ(sample().at("driver"), before.at("driver"));
}

TEST_F(CudaProbes, settling_gives_back_the_workspaces_of_cublas) {
  const auto before = sample();
  {
    const auto square = torch::ones({256, 256}, torch::kCUDA);
    const auto product = torch::mm(square, square);
  }
  EXPECT_GT(sample().at("requested"), before.at("requested"));
  empty_caches();
  EXPECT_LE(sample().at("requested"), before.at("requested"));
}

TEST_F(CudaProbes, the_pinned_pool_rounds_to_powers_of_two_and_keeps_what_it_took) {
  empty_caches();
  const auto before = sample();
  { const auto batch = pinned(1200000); }
  EXPECT_EQ(sample().at("pinned_owned") - before.at("pinned_owned"), 2 * MiB);
  { const auto again = pinned(1100000); }
  EXPECT_EQ(sample().at("pinned_owned") - before.at("pinned_owned"), 2 * MiB);
  empty_caches();
  EXPECT_EQ(sample().at("pinned_owned"), before.at("pinned_owned"));
}

}  // namespace
}  // namespace leaklab
#endif

#include "core/allotted_gpus.h"

#include <gtest/gtest.h>

#include <map>

namespace leaklab {
namespace {

std::optional<std::string> with(const std::map<std::string, std::string>& variables) {
  return allotted_gpus([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(AllottedGpus, are_all_where_ctest_gave_none) {
  EXPECT_EQ(with({}), std::nullopt);
  EXPECT_EQ(with({{"CUDA_VISIBLE_DEVICES", "1"}}), std::nullopt);
}

TEST(AllottedGpus, are_those_of_every_resource_group_each_once) {
  EXPECT_EQ(with({{"CTEST_RESOURCE_GROUP_0_GPUS", "id:2,slots:1"}}), "2");
  EXPECT_EQ(with({{"CTEST_RESOURCE_GROUP_0_GPUS", "id:3,slots:1"},
                  {"CTEST_RESOURCE_GROUP_1_GPUS", "id:0,slots:1;id:3,slots:2"}}),
            "3,0");
}

TEST(AllottedGpus, are_counted_among_those_that_are_visible) {
  EXPECT_EQ(with({{"CUDA_VISIBLE_DEVICES", "4,GPU-abc"},
                  {"CTEST_RESOURCE_GROUP_0_GPUS", "id:1,slots:1"}}),
            "GPU-abc");
}

}  // namespace
}  // namespace leaklab

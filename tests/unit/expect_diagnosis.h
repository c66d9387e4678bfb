// What a diagnosis of a made snapshot is to say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "leaklab/diagnosis.h"
#include "made_snapshot.h"

namespace leaklab::made {

inline Diagnosis after(Program& program, const DiagnoseOptions& options = {}) {
  return diagnose(program.dump(), options);
}

// A leak of that many bytes a step from that step on, on that line and, where there are several
// findings, others.
inline void expect_leak(const Diagnosis& found, std::int64_t line, double rate, std::int64_t onset,
                        std::size_t findings = 1) {
  EXPECT_EQ(found.verdict, Verdict::leak) << found.summary;
  ASSERT_THAT(found.findings, testing::SizeIs(findings)) << found.summary;
  EXPECT_EQ(found.findings.front().site.line, line);
  EXPECT_NEAR(found.bytes_per_step, rate, 0.001);
  EXPECT_EQ(found.onset_step, onset);
}

}  // namespace leaklab::made

// From a user's report to a scenario: the smallest pattern of allocations that shows the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "leaklab/diagnosis.h"
#include "leaklab/history.h"
#include "leaklab/pattern.h"

namespace leaklab {

struct Imported {
  Pattern pattern;
  Diagnosis diagnosis;           // of the whole file
  std::int64_t allocations = 0;  // of the file
  std::int64_t kept = 0;         // of the pattern
  // The allocations that stay do not add up to the leak, such as where a tensor is replaced by one
  // that is larger by ever different amounts, or where a line that leaks also allocates what stays
  // but once: the pattern is one allocation a period, or where there is none one of the mean in
  // each step.
  bool merely_grows = false;
};

// The events of one device, with boundaries at the steps that were found and at the end of the
// trace; what was live before the trace begins is allocated before the first step. Where no steps
// were found, the whole trace is the rest.
History history_of(const Snapshot& snapshot, std::size_t device, const DiagnoseOptions& options);

// What the file itself says at the same boundaries.
struct FileLevels {
  std::vector<std::size_t> entries;  // of the trace before each boundary
  bool has_steps = false;
  std::string why_none;  // where it has none
  std::vector<Level> levels;
  std::vector<std::int64_t> reserved;  // bytes in segments
};
FileLevels file_levels(const Snapshot& snapshot, std::size_t device,
                       const DiagnoseOptions& options);

// How far a reduction is: told before each diagnosis of what may be enough.
struct ImportProgress {
  std::size_t tried = 0;   // diagnoses so far
  std::size_t stacks = 0;  // that still allocate
  std::size_t steps = 0;   // that are still kept
};

// Leaves out lines of the program and whole periods of steps, for as long as the diagnosis stays
// the same: the verdict, of a leak its lines, classes and bytes per step, else what seemed to leak
// and how many bytes it held; and as long as the last period, which the pattern repeats, does what
// it did. By delta debugging: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing
// input", 2002. The pattern grows by the bytes per step of the diagnosis. Where what is
// left does not add up to them, the same is tried without the last period, in which the program may
// drop what it no longer needs. Of a leak without a period the last steps stay, 32 or more, in
// which the same lines leak, and the pattern grows by what these leave. Throws Error with
// Exit::undecided for a snapshot whose diagnosis is undecided.
Imported import_snapshot(const Snapshot& snapshot, const DiagnoseOptions& options = {},
                         const std::function<void(const ImportProgress&)>& progress = {});

// A pattern with the growth of a series, one level in bytes a step. Throws UsageError for a series
// that no rule of signature.h gives a period.
Pattern import_series(std::span<const std::int64_t> levels);

}  // namespace leaklab

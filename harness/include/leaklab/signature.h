// The growth signature: how one channel moved over the steps of a run.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

namespace leaklab {

enum class Shape {
  flat,         // never leaves the band of its tolerance
  step,         // one rise, level before and after
  stairs,       // rises of one size once every `period` steps, level between them
  linear,       // the same rise in every step
  superlinear,  // rises that grow
  sawtooth,     // rises and falls back to the same base, once every `period` steps
  plateau,      // rises over several steps, then level to the end
  peak_only,    // level at the boundaries; only the peak inside the steps moved
  irregular,    // none of these
};

std::string_view to_string(Shape shape);
// Throws UsageError for a word that is none of them.
Shape shape_from_string(std::string_view word);

// Growth of shapes that don't repeat (step, plateau, peak-only, irregular) is the net gain over the
// judged steps, and period is their number.
struct Signature {
  Shape shape = Shape::flat;
  std::int64_t growth = 0;  // units gained in one period (of the last period for superlinear)
  std::int64_t period = 1;  // steps
  std::int64_t onset =
      -1;  // first step of the growth or, for peak-only, of the higher peak; -1: none
  // Units per step: growth / period, rounded to the nearest integer, halves away from zero.
  std::int64_t rate() const;
  friend bool operator==(const Signature&, const Signature&) = default;
};

struct SignatureOptions {
  std::int64_t warmup = 0;     // steps at the start that are not judged
  std::int64_t tolerance = 0;  // movements of at most this many units are noise; 0: exact
};

// The signature of one series, a value after each step. `peaks`, where it is not empty, holds the
// highest value inside each step and makes peak_only possible. Pure; needs no clock and no device.
// The rules are written down in harness/core/signature.cpp. Throws UsageError for another number of
// peaks than of values.
Signature classify(std::span<const std::int64_t> values, std::span<const std::int64_t> peaks,
                   const SignatureOptions& options);

// {"kind","rate","growth","period","onset"}
nlohmann::json to_json(const Signature& signature);

}  // namespace leaklab

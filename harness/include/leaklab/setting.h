// Parameters of a scenario: their declaration, and the values of one run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace leaklab {

// One integer parameter of a scenario, with the range that its body accepts.
struct Param {
  std::string name;
  std::int64_t value = 0;  // default
  std::int64_t min = 1;
  std::int64_t max = 1;
  std::string help;
};

// What a run was asked for: parameter values, and the facts of the environment on which the
// growth that a scenario predicts may depend.
class Setting {
 public:
  Setting() = default;

  // Defaults of `declared` with `overrides` on top.
  // Throws UsageError that names the scenario, the parameter and its range, or the nearest names.
  Setting(std::string_view scenario, const std::vector<Param>& declared,
          const std::map<std::string, std::int64_t>& overrides);

  // The value of a declared parameter; throws InternalError for one that was never declared.
  std::int64_t operator[](std::string_view name) const;
  const std::map<std::string, std::int64_t, std::less<>>& values() const { return values_; }

  // True in the CUDA environment.
  bool on_cuda() const { return on_cuda_; }
  // Ranks of a distributed scenario: the GPUs there, or two in-process ranks on the CPU.
  std::int64_t ranks() const { return ranks_; }
  void place(bool on_cuda, std::int64_t ranks) { on_cuda_ = on_cuda, ranks_ = ranks; }

 private:
  std::map<std::string, std::int64_t, std::less<>> values_;
  bool on_cuda_ = false;
  std::int64_t ranks_ = 2;
};

}  // namespace leaklab

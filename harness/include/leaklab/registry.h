// Scenarios and where they are kept. Knows nothing of LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "leaklab/growth.h"
#include "leaklab/setting.h"

namespace leaklab {

class Run;

enum class Kind { leak, lookalike, control };
enum class Twin { fixed, leaky };

std::string_view to_string(Kind kind);
std::string_view to_string(Twin twin);

// One scenario. A scenario file fills the fields from `taxonomy` on, in this order.
struct Scenario {
  std::string id;
  std::string file;
  std::function<void(Run&)> body;

  // Class of the taxonomy: L01 to L45 (leaks), N01 to N19 (lookalikes), C01, C02 (controls).
  std::string taxonomy;
  // One sentence of cause.
  std::string summary;
  // Public reports behind it, as owner/repository#number or an address.
  std::vector<std::string> reports = {};
  // What the environment must have: "cuda", "pinned" (page-locked memory, so CUDA), "nccl" (on
  // CUDA only: the CPU environment has an in-process backend), "gpus:N".
  std::vector<std::string> needs = {};
  // What a user changes to cure it, in one sentence. A leak must have one.
  std::string fix = {};
  std::vector<Param> params = {};
  // Steps of a run, the warm-up included, which is run and recorded but not judged.
  std::int64_t steps = 20;
  std::int64_t warmup = 4;
  // What the leaky twin gains; for a lookalike: its period, where it has one.
  std::function<Growth(const Setting&)> expect = {};
  // By default the kind follows from the class's letter. A misuse that moves a gauge only is a
  // leak here even where the taxonomy files it under the lookalikes.
  std::optional<Kind> kind_override = {};

  Kind kind() const;
  // Leaks and planted controls have both twins, everything else is its own fixed twin.
  std::vector<Twin> twins() const;
  bool needs_cuda() const;
  Growth growth(const Setting& setting, Twin twin) const;
};

// All scenarios of this program, sorted by id.
const std::vector<Scenario>& scenarios();

// The scenario of that id; throws UsageError that offers the nearest names.
const Scenario& find_scenario(std::string_view id);

// What is wrong with the registry, one sentence a fault, each naming the file: duplicate ids, ids
// that differ from the file's name, unknown classes, missing summaries, a leak with no fix or no
// expectation, a warm-up that leaves nothing to judge. Empty when all is well.
std::vector<std::string> registry_faults();

// Registers at start-up; faults are kept and told together by registry_faults().
struct Registration {
  explicit Registration(Scenario scenario);
};

}  // namespace leaklab

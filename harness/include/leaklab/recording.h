// What one run measured. Every decision of leaklab is a pure function of recordings.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "leaklab/registry.h"

namespace leaklab {

// Where a run took place. Baselines belong to one of these.
struct Environment {
  std::string backend;    // "cpu" or "cuda"
  std::string libtorch;   // "2.11.0"
  std::string cuda;       // "13.0"; empty on the CPU
  std::string device;     // "NVIDIA H200"; "cpu" on the CPU, whose model does not matter
  std::string arch;       // "sm_90"; empty on the CPU
  std::string driver;     // "580.159.04": told, never compared
  std::string allocator;  // allocator settings in force; empty by default
  std::int64_t devices = 0;

  // Folder of the baselines of this environment: "cpu", "cuda-h200".
  std::string folder() const;
  // The first field in which the two can't be compared to the byte ("LibTorch 2.9.0 there, 2.11.0
  // here"), or empty.
  std::string difference(const Environment& other) const;
};

// One channel of one run. Values are integers: bytes, counts, or thousandths for inexact gauges.
struct Series {
  std::string unit;
  bool exact = false;
  bool trusted = true;
  std::string absent;                // why it was not measured; empty when it was
  std::int64_t start = 0;            // before the scenario's body
  std::vector<std::int64_t> values;  // after each step
  std::int64_t released = 0;         // after the body was left
  std::int64_t settled = 0;          // after the caches were emptied as well
};

// Allocations that were made after the warm-up and were never freed, by the operators that made
// them, outermost first ("aten::linear > aten::addmm"). Recorded on request only.
struct Site {
  std::string where;
  std::int64_t bytes = 0;
  std::int64_t count = 0;
};

struct Recording {
  std::string scenario;
  Twin twin = Twin::fixed;
  std::map<std::string, std::int64_t, std::less<>> params;
  std::int64_t steps = 0;
  std::int64_t warmup = 0;
  Environment environment;
  std::map<std::string, Series, std::less<>> channels;
  // Hash over (action, requested size) of all allocator events, free of order within a step and
  // ordered across steps.
  std::uint64_t event_hash = 0;
  std::int64_t events = 0;
  std::vector<Site> sites;
  // Why the scenario could not run here; empty when it did.
  std::string skipped;
};

inline constexpr std::int64_t schema_version = 1;

// Sorted keys, integers for bytes. Includes each channel's signature.
nlohmann::json to_json(const Recording& recording);
nlohmann::json to_json(const Environment& environment);
// Throws UsageError that names `origin` and the key for a document of another schema or shape.
Recording recording_from_json(const nlohmann::json& document, std::string_view origin);
Environment environment_from_json(const nlohmann::json& document, std::string_view origin);

}  // namespace leaklab

// What a memory snapshot tells: whether a program leaks, how fast, since when and from which line.
#pragma once

#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "leaklab/snapshot.h"

namespace leaklab {

enum class Verdict {
  leak,
  clean,
  undecided,  // the file can't tell
};

std::string_view to_string(Verdict verdict);

struct DiagnoseOptions {
  std::int64_t steps = 0;  // how many steps the trace holds, where the caller knows; 0: find out
  // A line that every step runs once, where the caller knows; no file: find out.
  std::string step_file;  // the end of a path
  std::int64_t step_line = 0;
  std::int64_t device = -1;  // the only one to look at; -1: all
};

// A line of the user's code; no file where the snapshot has no frames of it.
struct CodeSite {
  std::string file;
  std::int64_t line = 0;
  std::string function;
  // C++ without debug symbols, of which a recording knows no file.
  bool is_function_alone() const { return file == "??"; }
  friend auto operator<=>(const CodeSite&, const CodeSite&) = default;
};

// For how many steps things that are live at the dump have been there: whole steps of the trace
// that ended since they were allocated, so that what the last step made is 1 old.
struct Ages {
  std::int64_t oldest = -1;  // of those that the trace shows; -1: none, or it has no steps
  std::int64_t median = -1;
  std::int64_t before_trace = 0;  // how many more were there before the trace began
};

// The caching allocator rounds each block up to a multiple of that.
inline constexpr std::int64_t block_bytes = 512;

struct Finding {
  std::string taxonomy;  // the likely class, "L02"; empty for mere live memory
  std::string channel = "requested";
  std::int64_t device = 0;
  CodeSite site;                         // the innermost frame of the user's code that allocated
  std::optional<double> bytes_per_step;  // requested bytes, mean over one period; none: no rate
  double block_bytes_per_step = 0;       // the same in whole blocks; 0 where there is no rate
  std::int64_t live_bytes = 0;           // requested, of what leaked, at the dump
  std::int64_t live_allocations = 0;     // the number of those that hold it
  Ages ages;                             // of them; unknown where each step replaces them
  double confidence = 0;                 // 0 to 1
  std::string reason;                    // why it is taken for a leak, or what it is
  std::string fix;                       // what to change
  std::int64_t onset_step = -1;          // the first step that left something behind; -1: unknown
  std::int64_t period = 0;               // steps after which it repeats; 0: irregular
  std::int64_t first_size = 0;           // requested bytes of the first and the last allocation
  std::int64_t last_size = 0;
  std::vector<std::string>
      frames;  // "file:line function", or the function, around the site, innermost first
};

// What grew or was large and is no leak.
struct Lookalike {
  std::string taxonomy;  // "N02"
  std::int64_t device = 0;
  CodeSite site;
  std::int64_t bytes = 0;
  std::string reason;
  std::string channel = "requested";  // of a whole device: "reserved", "inactive_split", "peak"
};

// What is live at the dump of one line.
struct Survivors {
  CodeSite site;
  std::int64_t bytes = 0;  // requested
  std::int64_t allocations = 0;
  Ages ages;
};

// What is reserved at the dump, and unused.
struct Cache {
  std::int64_t reserved = 0;  // bytes in segments
  std::int64_t bytes = 0;     // of these in no block that is in use: cached
  // Of these what empty_cache() gives back: segments without blocks in use, and of expandable ones
  // whole pages of 2 MiB, or of 20 MiB for requests of more than a MiB.
  std::int64_t releasable = 0;
  std::int64_t releasable_later = 0;  // the same in private pools, once their graphs are gone
  std::int64_t stretches = 0;         // how many pieces the cached bytes are in
  std::int64_t largest = 0;           // bytes of the longest one
};

// How fast a device leaks.
struct DeviceRate {
  std::int64_t device = 0;
  double bytes_per_step = 0;        // requested
  double block_bytes_per_step = 0;  // in whole blocks, as its segments grow
  std::int64_t onset_step = -1;
  // Bytes of blocks that its recent steps needed at most, with all that has leaked until the dump.
  std::int64_t needed = 0;
};

struct FailedAllocation {
  std::int64_t device = 0;
  std::int64_t request = 0;      // bytes that did not fit
  std::int64_t device_free = 0;  // bytes free on the device then
  std::int64_t live = 0;         // requested bytes live then
  std::int64_t reserved = 0;     // bytes in segments
  std::int64_t cached = 0;       // bytes in segments that hold nothing
  // The longest free stretch in any segment, also in one that the request can't use: of another
  // stream or pool, or for requests of other sizes. `reason` says so where it is long enough.
  std::int64_t largest_free = 0;
  std::int64_t step = -1;  // the step that was running
  std::int64_t count = 1;  // how many failed on the device, of which this was the last
  // Whole steps of the device that came after it: the program went on.
  std::int64_t steps_after = 0;
  std::string reason;                                         // why it did not fit
  std::vector<std::pair<CodeSite, std::int64_t>> live_sites;  // what was live then, largest first
};

struct StepsFound {
  std::int64_t count = 0;  // finished steps of the loop, those before the trace included if known
  std::int64_t seen = 0;   // whole steps in the trace
  // "annotations", "metadata", "call stacks", "snapshots", "optimizer", "sizes", "lifetimes",
  // "given" or "none"
  std::string source = "none";
  double confidence = 0;
  std::int64_t asked = 0;                 // as the caller told; 0: not told
  std::vector<std::int64_t> kinds;        // steps of each kind, training and evaluation for example
  std::vector<std::int64_t> live_after;   // requested bytes live after each whole step
  std::vector<std::int64_t> live_counts;  // the number of allocations live then
  std::vector<std::int64_t> peaks;        // bytes of blocks live at most in each whole step
  // Of live_after what leaks, with what of it was there before the trace: the last one is what the
  // findings have live. Empty: nothing leaks.
  std::vector<std::int64_t> leaked_after;
};

// Of all devices, but where it says: of `device`.
struct Diagnosis {
  Verdict verdict = Verdict::undecided;
  std::int64_t device = 0;             // the one that leaks fastest, or whose trace says most
  std::vector<std::int64_t> judged;    // devices that leak or are clean
  std::vector<std::int64_t> unjudged;  // others in use, of which the file can't tell
  double bytes_per_step = 0;           // requested, of all leaks, mean over one period
  std::int64_t onset_step = -1;        // the first step that left something behind; -1: none
  std::int64_t period = 0;             // steps after which the growth repeats; 0: irregular
  StepsFound steps;                    // of `device`
  std::vector<DeviceRate> rates;       // of each device that leaks, fastest first
  std::vector<Finding> findings;       // leaks, fastest first; live sites where there is no history
  std::vector<Lookalike> lookalikes;   // of lines, largest first
  // Of whole devices: the cache, free memory between live blocks, a high-water mark.
  std::vector<Lookalike> device_lookalikes;
  std::optional<FailedAllocation> oom;  // of `device` if it has one
  std::int64_t live_bytes = 0;          // requested bytes live at the dump
  Cache cache;                          // the longest stretch is of any device
  std::vector<Survivors> survivors;     // of `device`, largest first, at most ten
  std::int64_t peak_bytes = 0;          // highest requested level in the trace of `device`
  std::vector<std::pair<CodeSite, std::int64_t>> peak_sites;  // what made it, largest first
  std::vector<std::string> limits;  // what the recording can't tell, and how to record it
  std::string summary;              // one or two sentences, and one more of `oom`
};

// "640 B a step since step 0", and of several devices which of them; `text` says how many bytes.
// Of a leak by no rule it says about how many, whatever `text`.
std::string rates_text(const Diagnosis& diagnosis, std::string (*text)(double bytes));

// Whether what leaks there has no period, so that its rate is a mean over the steps that were seen.
bool is_irregular(const Diagnosis& diagnosis, std::int64_t device);

// "device 1", "devices 0 and 1".
std::string devices_text(const std::vector<std::int64_t>& devices);

bool has_several_devices(const Diagnosis& diagnosis);

// How many lines leak; one that leaks on several devices is one.
std::size_t leaking_lines(const Diagnosis& diagnosis);

// ", the last of 50 failed allocations"; nothing where one failed.
std::string last_of_failed(const FailedAllocation& oom);

// Pure: the same snapshot gives the same diagnosis. Linear in the size of the snapshot.
Diagnosis diagnose(const Snapshot& snapshot, const DiagnoseOptions& options = {});

// {"verdict","bytes_per_step","onset_step","steps","findings","oom","limits","summary",...}
nlohmann::json to_json(const Diagnosis& diagnosis);

struct SiteChange {
  CodeSite site;
  std::int64_t bytes = 0;        // requested bytes live in the second less those in the first
  std::int64_t allocations = 0;  // the same of their number
  std::int64_t live_bytes = 0;   // in the second
  std::int64_t device = 0;
};

// What lives in the second snapshot beyond the first, by device and the user's line, largest first.
// Needs no history: frames of live blocks are enough, and without them all is one site without a
// file.
std::vector<SiteChange> diff(const Snapshot& before, const Snapshot& after);

// Why what diff() says of the two is not what it seems, a sentence each, as far as the files tell
// for certain: one has frames and the other none, or neither has, they have no line of the user's
// code or no device in common, the second lacks a device of the first or is the older one. The
// names stand for the files.
std::vector<std::string> incomparable(const Snapshot& before, const std::string& before_name,
                                      const Snapshot& after, const std::string& after_name);

}  // namespace leaklab

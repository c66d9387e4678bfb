// A diagnosis, and the difference of two snapshots, for a person.
#pragma once

#include <string>
#include <vector>

#include "leaklab/diagnosis.h"
#include "style.h"

namespace leaklab {

// Verdict first, then what leaks where, how fast and since when, the growth as a small plot, the
// likely class with its fix, what is no leak although it looks so, and what the file can't tell.
// `frames`: with the frames around each site.
std::string diagnose_text(const std::string& file, const Diagnosis& diagnosis, bool frames,
                          const Style& style);

std::string diff_text(const std::string& before, const std::string& after,
                      const std::vector<SiteChange>& changes, const Style& style);

}  // namespace leaklab

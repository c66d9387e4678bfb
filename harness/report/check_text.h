// What `check` found, as text of at most 100 columns.
#pragma once

#include <string>

#include "leaklab/suite.h"
#include "style.h"

namespace leaklab {

// A table with a line for each scenario, what is not a pass, and a line of counts.
std::string check_text(const CheckReport& report, const Style& style);

}  // namespace leaklab

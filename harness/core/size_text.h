// Bytes as people say them.
#pragma once

#include <cstdint>
#include <string>

namespace leaklab {

// "9,999 B", "0.667 B", "85.1 GB": exact below 10 kB.
std::string size_text(double bytes);
std::string size_text(std::int64_t bytes);

}  // namespace leaklab

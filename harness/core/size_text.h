// Bytes as people say them.
#pragma once

#include <cstdint>
#include <string>

namespace leaklab {

// "147,456 B", "25,429.333 B": to a thousandth.
std::string bytes_text(double bytes);

// "9,999 B", "79.2 GiB": as bytes_text() below 10 KiB, then in the units of PyTorch's own messages.
std::string size_text(double bytes);
std::string size_text(std::int64_t bytes);

// "640 B", "1.2 KiB", for a mean that no step has: whole bytes below 1 KiB, else as size_text().
std::string about_text(double bytes);

}  // namespace leaklab

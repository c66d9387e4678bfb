// Names that somebody may have meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace leaklab {

// "; did you mean 'a' or 'b'?" with up to three names of least edit distance, or "" where none is
// near. Names that contain `wanted` count as near.
std::string nearest_names(std::string_view wanted, const std::vector<std::string_view>& names);

}  // namespace leaklab

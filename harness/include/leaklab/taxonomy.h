// The classes of leaks (L01 to L45), of benign lookalikes (N01 to N19) and of controls.
#pragma once

#include <span>
#include <string_view>

namespace leaklab {

struct TaxonomyClass {
  std::string_view id;
  std::string_view name;       // "tensor cache keyed by shape"
  std::string_view signature;  // what is expected to move, in one sentence
};

std::span<const TaxonomyClass> taxonomy();

// The class of that id, or nullptr.
const TaxonomyClass* find_class(std::string_view id);

}  // namespace leaklab

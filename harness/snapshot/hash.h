// Hashes of what a file holds. They begin with a number that each process draws anew: with a known
// one, a file could be made whose strings or frames all have the same hash, and each of them would
// then be compared with all before it.
#pragma once

#include <cstdint>
#include <random>

namespace leaklab {

inline std::uint64_t hash_seed() {
  static const std::uint64_t seed = [] {
    std::random_device random;
    return std::uint64_t{random()} << 32 | random();
  }();
  return seed;
}

// What wyhash does to a word (Wang Yi, public domain): multiply and fold the two halves.
inline std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{state ^ word} * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace leaklab

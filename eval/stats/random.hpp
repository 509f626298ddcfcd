#pragma once

#include <cstdint>

namespace keel {

// A small random number generator: xoshiro256**, seeded by splitmix64. The generators of the
// standard library are not used, because their distributions differ between platforms.
class Xoshiro256 {
  public:
    explicit Xoshiro256(uint64_t seed);
    uint64_t next();
    // Returns a random number from 0 to n - 1. n must be from 1 to 2^32 - 1.
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }

  private:
    uint64_t state_[4];
};

} // namespace keel

#pragma once

#include <cstdint>

namespace keel {

// A small random generator: xoshiro256**, seeded by splitmix64. The standard library is not used,
// because its distributions differ between platforms.
class Xoshiro256 {
  public:
    explicit Xoshiro256(uint64_t seed);
    uint64_t next();
    // A number from 0 to n - 1. n is at least 1 and below 2^32.
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }

  private:
    uint64_t state_[4];
};

} // namespace keel

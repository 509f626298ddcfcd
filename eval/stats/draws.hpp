#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace keel {

// SplitMix64, a random number generator. SplitMix64 gives the same numbers on every machine and
// with every standard library. So an experiment has the same items on every machine.
class SplitMix64 {
  public:
    explicit SplitMix64(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
        z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31U);
    }
    // Returns a random number from 0 to n - 1. n must not be 0.
    uint64_t below(uint64_t n) { return next() % n; }

    // Returns a random element of `values`, which must not be empty.
    template <typename T> const T &choice(const std::vector<T> &values) {
        return values[below(values.size())];
    }

    // Puts `values` into a random order.
    template <typename T> void shuffle(std::vector<T> &values) {
        for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
    }

  private:
    uint64_t state_;
};

// Mixes two numbers into one seed, for example the seed of a task with the number of a document.
inline uint64_t mixed_seed(uint64_t a, uint64_t b) {
    SplitMix64 first(a);
    return SplitMix64(first.next() ^ (b * 0xd6e8feb86659fd93U + 0x2545f4914f6cdd1dU)).next();
}

} // namespace keel

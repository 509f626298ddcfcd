#include "eval/stats/random.hpp"

namespace keel {

Xoshiro256::Xoshiro256(uint64_t seed) {
    for (uint64_t &word : state_) {
        seed += 0x9e3779b97f4a7c15;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        word = z ^ (z >> 31);
    }
}

uint64_t Xoshiro256::next() {
    const auto rotate = [](uint64_t x, int by) { return (x << by) | (x >> (64 - by)); };
    const uint64_t result = rotate(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
}

} // namespace keel

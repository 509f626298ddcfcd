#pragma once

#include "device/device.hpp"
#include "device/tensor.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// Returns the bytes of a tensor that shares its buffer with no other tensor. Returns 0 if the
// tensor has no memory yet. The buffer itself can be larger, because up to a quarter of a reused
// buffer can be unused. This number leaves that part out, so the bytes of a sequence do not depend
// on earlier runs.
inline uint64_t held_bytes(const Tensor &tensor) {
    return tensor.buffer() != nullptr ? tensor.bytes() : 0;
}

template <typename T> uint64_t held_bytes(const std::vector<T> &values) {
    return values.capacity() * sizeof(T);
}

} // namespace keel

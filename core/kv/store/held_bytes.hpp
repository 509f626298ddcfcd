#pragma once

#include "device/device.hpp"
#include "device/tensor.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// The bytes of a tensor that shares its buffer with no other tensor. 0 if it has no memory yet.
// This is not the buffer's size, because a reused buffer may be up to a quarter larger. So the
// bytes of a sequence do not depend on earlier runs.
inline uint64_t held_bytes(const Tensor &tensor) {
    return tensor.buffer() != nullptr ? tensor.bytes() : 0;
}

template <typename T> uint64_t held_bytes(const std::vector<T> &values) {
    return values.capacity() * sizeof(T);
}

} // namespace keel

#pragma once

#include "device/device.hpp"
#include "device/tensor.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// Bytes of a tensor that has memory to itself; 0: it has none yet. Not the buffer's, which may be
// one that somebody else used before and up to a quarter larger: what a sequence holds is not to
// depend on what ran before it.
inline uint64_t held_bytes(const Tensor &tensor) {
    return tensor.buffer() != nullptr ? tensor.bytes() : 0;
}

template <typename T> uint64_t held_bytes(const std::vector<T> &values) {
    return values.capacity() * sizeof(T);
}

} // namespace keel

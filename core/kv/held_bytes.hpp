#pragma once

#include "device/device.hpp"
#include "device/tensor.hpp"

#include <cstdint>
#include <vector>

namespace keel {

// Bytes of the memory behind a tensor that has it to itself; 0: there is none yet.
inline uint64_t held_bytes(const Tensor &tensor) {
    return tensor.buffer() != nullptr ? tensor.buffer()->size() : 0;
}

template <typename T>
uint64_t held_bytes(const std::vector<T> &values) {
    return values.capacity() * sizeof(T);
}

} // namespace keel

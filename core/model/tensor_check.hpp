#pragma once

#include "model/source.hpp"

#include <cstdint>
#include <optional>

namespace keel {

// What reading every value of a tensor tells. Only the finite values count for low, high, mean and rms.
struct TensorCheck {
    uint64_t elements = 0;
    uint64_t not_finite = 0;                  // NaN and infinities
    std::optional<uint64_t> first_not_finite; // index of the first one, row-major
    double low = 0;
    double high = 0;
    double mean = 0;
    double rms = 0; // root of the mean square
};

// Reads the whole tensor, in pieces; gives its pages back to the system behind itself. Safe on any thread.
// Throws Error(input) that names file and tensor if its type is none that Keel computes with.
TensorCheck check_tensor(const ModelSource &source, const TensorInfo &tensor);

} // namespace keel

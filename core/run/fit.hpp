#pragma once

#include "run/memory_need.hpp"

#include <cstdint>
#include <string>

namespace keel {

// Returns the longest context whose cache fits into memory together with the weights. It is at most
// the model's context, and a multiple of 256. 0: no context fits. If the memory is unknown, every
// context fits.
int64_t context_that_fits(const ModelSource &source, keel_dtype weights, keel_dtype key,
                          keel_dtype value, const MemoryInfo &info);

// A choice of types and context that fits the memory. The notes give the reasons as texts.
struct Fit {
    keel_dtype weights = KEEL_DTYPE_NONE; // NONE: the types in the model's files
    keel_dtype kv = KEEL_DTYPE_F16;
    int64_t context = 0;
    bool fits = true; // false: even the smallest choice does not fit
    std::string weights_note, kv_note, context_note;
};
Fit fit_to_memory(const ModelSource &source, const MemoryInfo &info);

} // namespace keel

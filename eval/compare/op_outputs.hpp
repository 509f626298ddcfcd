#pragma once

#include "eval/compare/tensor_values.hpp"

#include <keel/backend.h>

#include <vector>

namespace keel {

// The values that a call of an op wrote.
struct OpOutput {
    TensorValues values;
    // These are rows of the cache, which are written through its view.
    bool is_kv_row = false, is_key = false;
    // For each entry of the outermost dimension: the number of entries of the next dimension that
    // have a meaning. Empty: all.
    std::vector<int64_t> limits;

    // Does this element have a meaning?
    bool counts(size_t element) const;
};

// Call it after the op ran. Leaves out outputs whose dtype cannot be converted to numbers.
std::vector<OpOutput> read_outputs(Device &device, keel_op op, const keel_op_args *args);
// Overwrites an op's outputs with those of the same call in the other pipeline, in the same order.
void write_outputs(Device &device, keel_op op, const keel_op_args *args,
                   const std::vector<OpOutput> &outputs);

} // namespace keel

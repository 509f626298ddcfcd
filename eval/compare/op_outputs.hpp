#pragma once

#include "eval/compare/tensor_values.hpp"

#include <keel/backend.h>

#include <vector>

namespace keel {

// What a call of an op wrote, as numbers.
struct OpOutput {
    TensorValues values;
    bool is_kv_row = false, is_key = false; // rows of the cache: written back through the view
    std::vector<int64_t> limits; // per entry of the outermost dimension how many of the next one
                                 // mean something; empty: all

    // Does this element of the values mean something?
    bool counts(size_t element) const;
};

// After the op ran. Outputs of a dtype that cannot be read as numbers are left out.
std::vector<OpOutput> read_outputs(Device &device, keel_op op, const keel_op_args *args);
// Gives an op's outputs other values: those of the same call elsewhere, in the same order.
void write_outputs(Device &device, keel_op op, const keel_op_args *args,
                   const std::vector<OpOutput> &outputs);

} // namespace keel

#pragma once

#include "eval/compare/tensor_values.hpp"

#include <keel/backend.h>

#include <vector>

namespace keel {

// The values of an output after a call of an op.
struct OpOutput {
    TensorValues values;
    // is_kv_row: the values are rows of the cache, written through the cache's view. is_key: the
    // rows are keys.
    bool is_kv_row = false, is_key = false;
    // For each entry of the outermost dimension: the number of valid entries of the next dimension.
    // Empty: all entries are valid.
    std::vector<int64_t> limits;

    // True if this element is valid. Only valid elements are compared.
    bool counts(size_t element) const;
};

// Reads an op's outputs after the op ran. Outputs whose dtype cannot be converted to numbers are
// left out.
std::vector<OpOutput> read_outputs(Device &device, keel_op op, const keel_op_args *args);
// Overwrites an op's outputs with the outputs of the same call in the second pipeline. The outputs
// have the order of read_outputs().
void write_outputs(Device &device, keel_op op, const keel_op_args *args,
                   const std::vector<OpOutput> &outputs);

} // namespace keel

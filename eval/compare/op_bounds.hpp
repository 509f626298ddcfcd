#pragma once

#include <keel/backend.h>

#include <string>

namespace keel {

// The differences between two pipelines that determine the bound of an op.
struct OpDifference {
    // True if the parameter `compute` of at least one backend is "fast". With "fast" a backend
    // computes faster but less exactly.
    bool fast = false;
    keel_dtype weight_a = KEEL_DTYPE_NONE, weight_b = KEEL_DTYPE_NONE; // set only for matmul and
                                                                       // embed
    // For each pipeline, the less precise of the dtypes of K and V.
    keel_dtype kv_a = KEEL_DTYPE_NONE, kv_b = KEEL_DTYPE_NONE;
};

// The largest allowed error of an output element. The error is |a - b| / (1 + max|b| of the
// element's row). The source file explains the values. `output` is the less precise of the two
// outputs' dtypes. `is_kv_row` is true if the output is a row of the cache.
double op_bound(keel_op op, const OpDifference &difference, keel_dtype output, bool is_kv_row);

// Returns the dtype with the lower precision.
keel_dtype coarser(keel_dtype a, keel_dtype b);

} // namespace keel

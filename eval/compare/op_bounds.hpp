#pragma once

#include <keel/backend.h>

#include <string>

namespace keel {

// The differences of two pipelines that decide the bound of an op.
struct OpDifference {
    // At least one backend trades exactness for speed: its parameter `compute` is "fast".
    bool fast = false;
    keel_dtype weight_a = KEEL_DTYPE_NONE, weight_b = KEEL_DTYPE_NONE; // for matmul and embed
    // The coarser of the dtypes of K and V.
    keel_dtype kv_a = KEEL_DTYPE_NONE, kv_b = KEEL_DTYPE_NONE;
};

// The largest allowed error of an element of an output: |a - b| / (1 + max|b| of its row). The
// source file has the table with its reasons. `output`: the coarser of the two outputs' dtypes.
// `is_kv_row`: the output is a row of the cache.
double op_bound(keel_op op, const OpDifference &difference, keel_dtype output, bool is_kv_row);

// The dtype with the lower precision.
keel_dtype coarser(keel_dtype a, keel_dtype b);

} // namespace keel

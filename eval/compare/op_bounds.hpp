#pragma once

#include <keel/backend.h>

#include <string>

namespace keel {

// What two pipelines' ops differ in, where they are compared.
struct OpDifference {
    bool fast =
        false; // one of the two backends trades exactness for speed (its parameter compute is fast)
    keel_dtype weight_a = KEEL_DTYPE_NONE, weight_b = KEEL_DTYPE_NONE; // of matmul and embed
    keel_dtype kv_a = KEEL_DTYPE_NONE, kv_b = KEEL_DTYPE_NONE;         // the coarser of K and V
};

// The largest error that is no fault, of an element of an output: |a - b| / (1 + max|b| of its
// row). The table and its reasons are in the source. `output`: the coarser of the two outputs'
// dtypes; `is_kv_row`: it is a row of the cache.
double op_bound(keel_op op, const OpDifference &difference, keel_dtype output, bool is_kv_row);

// The one of two dtypes that holds less.
keel_dtype coarser(keel_dtype a, keel_dtype b);

} // namespace keel

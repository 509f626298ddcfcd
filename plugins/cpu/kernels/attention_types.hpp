// Arguments of the attention kernels: rows of a cache, and the state of a softmax. They are raw
// pointers, not tensors.
#pragma once

#include <keel/kv.h>

namespace keel_cpu {

// Number of slots in a tile. A tile of K or V in f32 fits the L1 or L2 cache of a core.
constexpr int64_t kTileSlots = 64;
// Rows in scratch memory are padded to a multiple of this many floats. The widest vector of all
// instruction sets has this many floats.
constexpr int64_t kPad = 16;

constexpr int64_t padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

// Dtypes of rows. The numbers are indices in the kernel tables.
enum RowType { kRowF32, kRowF16, kRowBf16, kRowQ8_0, kRowQ4_0, kRowTypes };

// Returns the RowType of a dtype, or -1 if rows cannot have this dtype.
inline int row_type(keel_dtype t) {
    switch (t) {
    case KEEL_DTYPE_F32: return kRowF32;
    case KEEL_DTYPE_F16: return kRowF16;
    case KEEL_DTYPE_BF16: return kRowBf16;
    case KEEL_DTYPE_Q8_0: return kRowQ8_0;
    case KEEL_DTYPE_Q4_0: return kRowQ4_0;
    default: return -1;
    }
}

// Memory that will be read next and is prefetched now. While a kernel processes a row, it
// prefetches row_bytes bytes of this memory. If `data` is NULL, nothing is prefetched.
struct Ahead {
    const uint8_t *data;
    int64_t row_bytes;
};

// The left operand of a product. Element (r, k) is data[r * stride + k * step]. With step 1 its
// rows are contiguous. With stride 1 it is a transposed matrix.
struct LeftMatrix {
    const float *data;
    int64_t stride, step;
};

// The state of an online softmax for the rows of a tile.
struct SoftmaxState {
    float *max, *sum; // [rows]; sum: sum of exp(logit - max); max is never NaN
    float *acc;       // [rows, acc_stride]: sum of exp(logit - max) * V; NULL: not computed
    int64_t acc_stride, dim;
};

// ---- products of bf16 ----
//
// Both products of attention have the form [rows, depth] x [depth, columns]: queries with keys, and
// probabilities with values. The left operand ("x") is stored in blocks of x_rows rows of 32
// columns. The right operand ("panels") is stored as [16 columns][depth / 2][16][2].

constexpr int64_t bf16_padded(int64_t n) { // rounds the depth of a product up to a multiple of 32
    return (n + 31) / 32 * 32;
}

struct Bf16Product {
    const uint16_t *x;
    int64_t rows, x_depth; // a block of x_rows rows of x has x_rows * x_depth elements
    int64_t depth;         // number of columns of x that are multiplied, a multiple of 32
    const uint16_t *w;
    // panel_stride: elements from one panel of w to the next. columns: a multiple of 16.
    int64_t panel_stride, columns;
    float *c; // result [rows, c_stride]
    int64_t c_stride;
    bool accumulate;
};

constexpr int64_t bf16_rows = 32; // upper limit of Bf16AttentionKernels::rows_at_once

// The arguments of Bf16AttentionKernels::walk: consecutive whole tiles of slots that all rows see.
// walk computes their logits and softmax, and adds the weighted values to state.acc.
struct Bf16Walk {
    const uint16_t *q;
    int64_t rows, head_dim, v_dim; // v_dim: a multiple of 16
    const uint16_t *keys, *values; // in panels, one tile after the other
    int64_t tiles;
    SoftmaxState state; // state.acc is not NULL
    float *lanes;
    float *s; // memory for bf16_rows rows of kTileSlots floats
    // Memory for bf16_walk_tiles tiles of probabilities, or for all tiles if the probabilities are
    // kept.
    uint16_t *p;
    // [tiles][bf16_rows]: the max after each tile; NULL: probabilities are not kept
    float *kept_max;
};
constexpr int64_t bf16_walk_tiles = 2;

} // namespace keel_cpu

// Arguments of the attention kernels: rows of a cache, and the state of a softmax. Raw pointers, no
// tensors.
#pragma once

#include <keel/kv.h>

namespace keel_cpu {

// Slots that attention handles at a time. A tile of K or V in f32 fits in a core's nearest caches.
constexpr int64_t kTileSlots = 64;
// Rows of scratch are padded to this many floats: the widest vector of any table.
constexpr int64_t kPad = 16;

constexpr int64_t padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }

// Dtypes of rows, numbered as in the tables.
enum RowType { kRowF32, kRowF16, kRowBf16, kRowQ8_0, kRowQ4_0, kRowTypes };

// The row type's number, or -1 if rows cannot have this dtype.
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

// Memory that is read next and prefetched now: row_bytes for each row that is handled. data NULL:
// no prefetch.
struct Ahead {
    const uint8_t *data;
    int64_t row_bytes;
};

// The running state of an online softmax over the rows of a tile.
struct SoftmaxState {
    float *max, *sum; // [rows]; sum is the sum of exp(logit - max). max is never NaN
    float *acc;       // [rows, acc_stride]: sum of exp(logit - max) * V, or NULL
    int64_t acc_stride, dim;
};

// ---- products of bf16 ----
//
// Both products of attention have one form, [rows, depth] x [depth, columns]: queries with keys,
// and probabilities with values. Left operands ("x") are stored in blocks of x_rows rows of 32
// columns, right operands ("panels") as [16 columns][depth / 2][16][2].

constexpr int64_t bf16_padded(int64_t n) { // rounds the depth of a product up to a multiple of 32
    return (n + 31) / 32 * 32;
}

struct Bf16Product {
    const uint16_t *x;
    int64_t rows, x_depth; // a block of x_rows rows of x has x_rows * x_depth elements
    int64_t depth;         // columns of x that are multiplied, a multiple of 32
    const uint16_t *w;
    // of w: elements from panel to panel; columns is a multiple of 16
    int64_t panel_stride, columns;
    float *c; // [rows, c_stride]
    int64_t c_stride;
    bool accumulate;
};

constexpr int64_t bf16_rows = 32; // Bf16AttentionKernels::rows_at_once is at most this

// Consecutive whole tiles of slots, all visible to all rows: their logits, softmax and values.
struct Bf16Walk {
    const uint16_t *q;
    int64_t rows, head_dim, v_dim; // v_dim is a multiple of 16
    const uint16_t *keys, *values; // in panels, one tile after the other
    int64_t tiles;
    SoftmaxState state; // acc is not NULL
    float *lanes;
    float *s; // room for bf16_rows rows of kTileSlots
    // room for bf16_walk_tiles tiles of probabilities, or for all tiles if probabilities are kept
    uint16_t *p;
    float *kept_max; // [tiles][bf16_rows]: the max after each tile; NULL: p is not kept
};
constexpr int64_t bf16_walk_tiles = 2;

} // namespace keel_cpu

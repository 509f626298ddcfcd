// Kernels behind the attention, cache and policy-input ops: one table per instruction set. They take raw pointers and know
// no tensors. "Rows" of queries and tiles are f32 in scratch, padded to kPad floats; K and V are rows in a cache dtype.
#pragma once

#include "cpu/features.hpp"

#include <keel/kv.h>

namespace keel_cpu {

// Slots that attention takes at a time: a tile of K or V in f32 stays in the nearest caches of one core.
constexpr int64_t kTileSlots = 64;
// Rows of scratch are padded to this many floats: the widest vector of any table.
constexpr int64_t kPad = 16;

constexpr int64_t padded(int64_t n) {
    return (n + kPad - 1) / kPad * kPad;
}

// Dtypes of rows, as indices of the tables below.
enum RowType { kRowF32, kRowF16, kRowBf16, kRowQ8_0, kRowQ4_0, kRowTypes };

// Place in the tables, -1 for a dtype that no row has.
inline int row_type(keel_dtype t) {
    switch (t) {
    case KEEL_DTYPE_F32:
        return kRowF32;
    case KEEL_DTYPE_F16:
        return kRowF16;
    case KEEL_DTYPE_BF16:
        return kRowBf16;
    case KEEL_DTYPE_Q8_0:
        return kRowQ8_0;
    case KEEL_DTYPE_Q4_0:
        return kRowQ4_0;
    default:
        return -1;
    }
}

// Memory that will be read next, for prefetching: row_bytes for each row that is handled now. data NULL: nothing.
struct Ahead {
    const uint8_t *data;
    int64_t row_bytes;
};

// The running state of an online softmax over the rows of a tile.
struct SoftmaxState {
    float *max, *sum; // [rows]; sum is that of exp(logit - max). max is never NaN, whatever the logits are
    float *acc;       // [rows, acc_stride]: sum of exp(logit - max) * V, or NULL
    int64_t acc_stride, dim;
};

struct AttentionKernels {
    const char *isa;      // word compiled into the file that the kernels come from
    int64_t few_rows;     // up to so many query rows `dots` and `mix` beat a tile in f32 and `gemm`
    int64_t few_rows_mix; // and up to so many, on rows in a block dtype: beyond, convert first

    // One row of n elements to f32, and back; n is a multiple of the dtype's block. store rounds as `cast` does.
    void (*load[kRowTypes])(const void *src, int64_t n, float *dst);
    void (*store[kRowTypes])(const float *src, int64_t n, void *dst);

    // s[r * s_stride + j] = q[r] . k[j], for `rows` queries and n keys that lie k_stride bytes apart.
    void (*dots[kRowTypes])(const float *q, int64_t q_stride, int64_t rows, const void *k, int64_t k_stride,
                            int64_t n, int64_t dim, float *s, int64_t s_stride, const Ahead &ahead);
    // acc[r * acc_stride + d] += sum_j p[r * p_stride + j] * v[j][d].
    void (*mix[kRowTypes])(const float *p, int64_t p_stride, int64_t rows, const void *v, int64_t v_stride,
                           int64_t n, int64_t dim, float *acc, int64_t acc_stride, const Ahead &ahead);

    // c[rows, cols] = or += a[rows, depth] * b[depth, cols]; strides in floats; cols is a multiple of kPad.
    void (*gemm)(const float *a, int64_t a_stride, int64_t rows, const float *b, int64_t b_stride,
                 int64_t depth, int64_t cols, float *c, int64_t c_stride, bool accumulate);
    // dst[c * dst_stride + r] = src[r * src_stride + c]; rows is a multiple of kPad.
    void (*transpose)(const float *src, int64_t src_stride, int64_t rows, int64_t cols, float *dst,
                      int64_t dst_stride);

    // One more tile of n logits (n <= kTileSlots, which s has room for): updates the state, scales acc, and leaves
    // exp(s - max) in s, zeros behind n. -inf is a key that is not seen; NaN stays NaN.
    void (*softmax)(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state);
    void (*softcap)(float *s, int64_t n, float cap); // s = cap * tanh(s / cap)
    void (*add)(float *to, const float *x, int64_t n);
    void (*max)(float *to, const float *x, int64_t n); // a NaN in either stays
    void (*add_scaled)(float *to, const float *x, int64_t n, float factor);
    void (*scale)(float *x, int64_t n, float factor);
    bool (*finite)(const float *x, int64_t n);
    float (*norm1)(const float *x, int64_t n); // sum of magnitudes
    float (*norm2)(const float *x, int64_t n); // root of the sum of squares

    // Rotates one head; out may be x. sign -1 rotates back.
    void (*rope)(const float *x, float *out, int64_t dim, int64_t rot, const float *cos, const float *sin,
                 float sign, keel_rope_mode mode);
    // out = x / sqrt(mean(x^2) + eps) * weight; out may be x.
    void (*rms_norm)(const float *x, const float *weight, float eps, int64_t n, float *out);
};

const AttentionKernels *attention_kernels_scalar();
const AttentionKernels *attention_kernels_avx2();
const AttentionKernels *attention_kernels_avx512();
const AttentionKernels *attention_kernels_neon();

// Of an instruction set that this machine has (choose.cpp).
const AttentionKernels *attention_kernels(Isa isa);

} // namespace keel_cpu

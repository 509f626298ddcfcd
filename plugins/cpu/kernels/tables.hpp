// The kernels as tables of functions, one table of each kind for an instruction set. Kernels take
// raw pointers, allocate nothing and start no threads. README.md of this plugin lists function and
// file for each op, dtype and instruction set.
//
// Names of matmul kernels: matmul_<weights>_<activations>[_few | _many]. few and many refer to the
// rows of x. Weights: quant is q8_0, q4_0, q4_k, q5_k and q6_k; float is f32, f16 and bf16; half is
// f16 and bf16; any is all of them. Activations: the type to which x is rounded before the product.
#pragma once

#include "cpu/features.hpp"
#include "cpu/kernels/attention_types.hpp"
#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

// Kernels of matmul and embed, and conversion of rows from one type to another.
struct MatmulKernels {
    const char *isa; // the instruction set's word, compiled into the kernel file
    int64_t group;   // R: rows of a group in the interleaved layout
    int64_t panel;   // rows of W that one call of matmul_any_f32 handles, a multiple of R
    // columns that matmul_any_f32 unpacks at a time; its scratch is panel * panel_k floats
    int64_t panel_k;

    // Rounds n / 32 blocks of activations.
    void (*quantize)(const float *x, int64_t n, ActBlock *out);
    // Integer products with interleaved W: groups g0..g1-1 with rows m0..m1-1 of x.
    void (*matmul_quant_int8)(const MatmulTask &, int64_t g0, int64_t g1, int64_t m0, int64_t m1);
    // f32 products with row-major W. Each row of W is read once: rows n0..n1-1.
    void (*matmul_float_f32_few)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0,
                                 int64_t m1);

    // 16-bit products summed in f32, with row-major W. half_few_types and half_many_types are the
    // types of W for which they exist (bits: 1 << WeightType). If the instruction set has none,
    // they are 0 and the functions are NULL. half_few_cols: fewest columns for which
    // matmul_half_half_few is used.
    uint32_t half_few_types;
    int64_t half_few_cols;
    uint32_t half_many_types;
    // Rounds a row of n elements to f16 or bf16 and pads it with zeros.
    void (*round_half)(WeightType to, const float *x, int64_t n, int64_t padded, uint16_t *out,
                       float *scale);
    // Each row of W is read once: rows n0..n1-1.
    void (*matmul_half_half_few)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0,
                                 int64_t m1);
    // x is rounded to bf16: rows n0..n1-1 of W; n0 is a multiple of half_tile_rows.
    void (*matmul_half_half_many)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0,
                                  int64_t m1);

    // f32 products for any type and layout. Rows n0..n0+count-1 (count <= panel, n0 a multiple of
    // panel) are unpacked to `scratch` piece by piece and multiplied with rows m0..m1-1 of x.
    void (*matmul_any_f32)(const MatmulTask &, int64_t n0, int64_t count, int64_t m0, int64_t m1,
                           float *scratch);

    // One row of W as f32, times `scale`.
    void (*unpack_row)(const WeightView &, int64_t row, float scale, float *out);
    // Converts n elements: f32, f16 and bf16 to each other, q8_0 and q4_0 to f32.
    void (*convert)(WeightType from, const uint8_t *x, WeightType to, uint8_t *out, int64_t n);
};

// matmul for many rows of x, with bf16 products and f32 sums. x is rounded and packed once per op.
// A block of W is unpacked to panels of bf16. The panels stay in the L2 cache while all rows of x
// are multiplied with them.
struct Bf16MatmulKernels {
    const char *isa;
    // The fewest rows of x for which these kernels are faster, by type of W (f16 and bf16
    // row-major, others interleaved); 0: these kernels are never faster.
    int64_t least_rows[weight_types];
    int64_t block; // most rows of W per call
    // Rows of x that are stored together. Packed x is [m / x_rows][k / 32][x_rows][32]. Zeros
    // follow a row's own columns.
    int64_t x_rows;
    int64_t rows_most;    // most rows of x per call, a multiple of x_rows
    int64_t worker_bytes; // bytes of memory that a call needs, a multiple of 64

    // Packs one row of x. `together` rows are stored together. `out` is the place of the row's
    // first columns.
    void (*pack_x)(const float *x, int64_t k, int64_t together, uint16_t *out);
    // Multiplies rows n0..n1-1 of W with rows m0..m1-1 of x. m0 is a multiple of x_rows. x points
    // to the first block of all rows. memory: worker_bytes bytes of the calling worker, aligned to
    // 64.
    void (*matmul_any_bf16)(const MatmulTask &, const uint16_t *x, int64_t n0, int64_t n1,
                            int64_t m0, int64_t m1, uint8_t *memory);
    // The same for f16 and bf16 with m <= few_rows rows of x, all stored together, without panels.
    // 0 and NULL if panels are faster for any number of rows.
    int64_t few_rows;
    void (*matmul_half_bf16_few)(const MatmulTask &, const uint16_t *x, int64_t n0, int64_t n1,
                                 int64_t m);
};

// Norms, activations, elementwise and row ops. Each call handles one contiguous row. `out` may be
// an input.
struct RowKernels {
    const char *isa;

    void (*rms_norm)(const float *x, float *residual, const float *weight, float eps, int64_t n,
                     float *out);
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float eps, int64_t n,
                       float *out);
    // up NULL: gate holds pairs (gate, up)
    void (*silu_mul)(const float *gate, const float *up, int64_t n, float *out);
    // up NULL and pairs false: gelu of gate only
    void (*gelu_mul)(const float *gate, const float *up, int64_t n, bool pairs, bool tanh,
                     float *out);
    void (*add)(const float *a, const float *b, int64_t n, float *out);
    void (*scale)(const float *a, float factor, int64_t n, float *out);
    void (*scaled_add)(const float *a, float factor, int64_t n, float *out);
    void (*softmax)(const float *x, int64_t n, float *out);
    int32_t (*argmax)(const float *x, int64_t n); // -1 if x has a NaN or an infinity
};

// Attention, cache and policy-input ops. Rows of queries and tiles are f32 in scratch memory,
// padded to kPad floats. K and V are rows in a cache dtype.
struct AttentionKernels {
    const char *isa;
    // most query rows for which `dots` and `mix` beat a tile in f32 and `gemm`
    int64_t few_rows;
    // the same for `mix` on rows in a block dtype; with more rows, convert first
    int64_t few_rows_mix;

    // Converts one row of n elements to f32, or back. n is a multiple of the dtype's block size.
    // store rounds like `cast`.
    void (*load[kRowTypes])(const void *src, int64_t n, float *dst);
    void (*store[kRowTypes])(const float *src, int64_t n, void *dst);

    // s[r * s_stride + j] = q[r] . k[j], for `rows` queries and n keys. Keys are k_stride bytes
    // apart.
    void (*dots[kRowTypes])(const float *q, int64_t q_stride, int64_t rows, const void *k,
                            int64_t k_stride, int64_t n, int64_t dim, float *s, int64_t s_stride,
                            const Ahead &ahead);
    // acc[r * acc_stride + d] += sum_j p[r * p_stride + j] * v[j][d].
    void (*mix[kRowTypes])(const float *p, int64_t p_stride, int64_t rows, const void *v,
                           int64_t v_stride, int64_t n, int64_t dim, float *acc, int64_t acc_stride,
                           const Ahead &ahead);

    // c[rows, cols] = or += a[rows, depth] * b[depth, cols]. Strides are in floats. cols is a
    // multiple of kPad.
    void (*gemm)(const float *a, int64_t a_stride, int64_t rows, const float *b, int64_t b_stride,
                 int64_t depth, int64_t cols, float *c, int64_t c_stride, bool accumulate);
    // dst[c * dst_stride + r] = src[r * src_stride + c]; rows is a multiple of kPad.
    void (*transpose)(const float *src, int64_t src_stride, int64_t rows, int64_t cols, float *dst,
                      int64_t dst_stride);

    // Processes one more tile of n logits (n <= kTileSlots; s has room for kTileSlots): updates the
    // state, scales acc, and leaves exp(s - max) in s, with zeros after n. -inf means a key that is
    // not seen. NaN stays NaN.
    void (*softmax)(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state);
    void (*softcap)(float *s, int64_t n, float cap); // s = cap * tanh(s / cap)
    void (*add)(float *to, const float *x, int64_t n);
    void (*max)(float *to, const float *x, int64_t n); // the result is NaN if either operand is
    void (*add_scaled)(float *to, const float *x, int64_t n, float factor);
    void (*scale)(float *x, int64_t n, float factor);
    bool (*finite)(const float *x, int64_t n);
    float (*norm1)(const float *x, int64_t n); // sum of magnitudes
    float (*norm2)(const float *x, int64_t n); // square root of the sum of squares

    // Rotates one head; out may be x. sign -1 rotates back.
    void (*rope)(const float *x, float *out, int64_t dim, int64_t rot, const float *cos,
                 const float *sin, float sign, keel_rope_mode mode);
    // out = x / sqrt(mean(x^2) + eps) * weight; out may be x.
    void (*rms_norm)(const float *x, const float *weight, float eps, int64_t n, float *out);
};

// Attention with bf16 products and f32 sums (`compute: fast`). A tile of keys and values is rounded
// once for all queries of a task.
struct Bf16AttentionKernels {
    const char *isa;
    int64_t least_rows; // with fewer query rows per KV head, f32 is faster
    // most query rows per KV head for which dots_few is used; 0: dots_few is NULL
    int64_t few_rows;
    int64_t x_rows; // rows of a block of x
    // a multiple of x_rows; the logits and sums of these rows stay in the L1 cache
    int64_t rows_at_once;

    // Packs `rows` rows of n elements as x, with zeros after n.
    void (*pack_rows)(const float *x, int64_t x_stride, int64_t rows, int64_t n, uint16_t *out);
    // Converts n rows of a cache dtype, k_stride bytes apart, to [n][bf16_padded(dim)], with zeros
    // after each row. NULL for a dtype that has no conversion. Prefetches n rows of `ahead`.
    void (*load_keys[kRowTypes])(const void *k, int64_t k_stride, int64_t n, int64_t dim,
                                 uint16_t *out, const Ahead &ahead);
    // Packs these rows into panels, one per 16 slots. n is a multiple of 16.
    void (*turn_keys)(const uint16_t *rows, int64_t n, int64_t dim, uint16_t *panels);
    // Packs slots first..first+n-1 of a tile of kTileSlots into panels of 16 elements of v,
    // kTileSlots deep. first is even. An odd n is allowed only at the end of the tile. Writes zeros
    // after dim and, with `last`, up to the next multiple of 32 slots.
    void (*load_values[kRowTypes])(const void *v, int64_t v_stride, int64_t first, int64_t n,
                                   int64_t dim, bool last, uint16_t *panels, const Ahead &ahead);
    // Multiplies at most rows_at_once rows. Call it between begin(rows) and end().
    void (*begin)(int64_t rows);
    void (*multiply)(const Bf16Product &);
    void (*end)();
    // Computes logits, softmax and values of whole tiles. NULL if this is not faster than separate
    // calls.
    void (*walk)(const Bf16Walk &);
    int64_t walk_rows; // fewest rows for which walk is used
    // Like AttentionKernels::softmax, with the result in p as x, kTileSlots deep, and zeros from n
    // to the next multiple of 32 slots. keep: the result is also left in s. Sums are added to
    // lanes[rows][16]. max need not be the largest logit, but exp(logit - max) never grows large.
    void (*softmax)(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state,
                    float *lanes, bool keep, uint16_t *p);
    void (*add_lanes)(const float *lanes, int64_t rows, float *sum);
    // sums[0..n) += by[i] * row (first + i * every) of a tile of p from softmax, for i < count. n
    // is a multiple of 32.
    void (*add_columns)(const uint16_t *p, int64_t first, int64_t every, int64_t count,
                        const float *by, int64_t n, float *sums);
    bool (*finite)(const uint16_t *x, int64_t n);

    // For few_rows: queries as packed by pack_few, and rows of keys as converted by load_keys.
    // Reads and writes up to the next multiple of 16 from n.
    void (*pack_few)(const float *q, int64_t q_stride, int64_t rows, int64_t dim, uint16_t *out);
    void (*dots_few)(const uint16_t *q, int64_t rows, const uint16_t *k, int64_t n, int64_t dim,
                     float *s, int64_t s_stride);
};

// The tables for an instruction set that this machine has (choose.cpp). The bf16 tables are NULL if
// the instruction set has none.
const MatmulKernels *matmul_kernels(Isa isa);
const RowKernels *row_kernels(Isa isa);
const AttentionKernels *attention_kernels(Isa isa);
const Bf16MatmulKernels *bf16_matmul_kernels(Isa isa);
const Bf16AttentionKernels *bf16_attention_kernels(Isa isa);

// All tables. Each file of kernels/build defines one.
const MatmulKernels *matmul_kernels_scalar();
const MatmulKernels *matmul_kernels_avx2();
const MatmulKernels *matmul_kernels_avx512();
const MatmulKernels *matmul_kernels_vnni();
const MatmulKernels *matmul_kernels_neon();
const MatmulKernels *matmul_kernels_dotprod();
const MatmulKernels *matmul_kernels_fp16();
const MatmulKernels *matmul_kernels_i8mm();
const RowKernels *row_kernels_scalar();
const RowKernels *row_kernels_avx2();
const RowKernels *row_kernels_avx512();
const RowKernels *row_kernels_neon();
const AttentionKernels *attention_kernels_scalar();
const AttentionKernels *attention_kernels_avx2();
const AttentionKernels *attention_kernels_avx512();
const AttentionKernels *attention_kernels_neon();
const Bf16MatmulKernels *bf16_matmul_kernels_avx512();
const Bf16MatmulKernels *bf16_matmul_kernels_amx();
const Bf16AttentionKernels *bf16_attention_kernels_avx512();
const Bf16AttentionKernels *bf16_attention_kernels_amx();

} // namespace keel_cpu

// The kernels as tables of functions. An instruction set has one table of each kind. Kernels take
// raw pointers, allocate nothing and start no threads. README.md of this plugin lists the function
// and the file for each op, dtype and instruction set.
//
// Names of matmul kernels: matmul_<weights>_<activations>[_few | _many]. "few" and "many" refer to
// the number of rows of x. Weights: "quant" is q8_0, q4_0, q4_k, q5_k and q6_k; "float" is f32, f16
// and bf16; "half" is f16 and bf16; "any" is all types. Activations: the type to which x is rounded
// before the product.
#pragma once

#include "cpu/features.hpp"
#include "cpu/kernels/attention_types.hpp"
#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

// Kernels of the ops matmul and embed, and conversion of rows from one type to another.
struct MatmulKernels {
    const char *isa; // name of the instruction set for which the kernel file was compiled
    int64_t group;   // R: number of rows in a group of the interleaved layout
    int64_t panel;   // number of rows of W that one call of matmul_any_f32 handles, a multiple of R
    // Number of columns that matmul_any_f32 unpacks at a time. The scratch memory of matmul_any_f32
    // is panel * panel_k floats.
    int64_t panel_k;

    // Rounds n activations to 8 bits, which gives n / 32 blocks.
    void (*quantize)(const float *x, int64_t n, ActBlock *out);
    // Integer products with interleaved W. Multiplies groups g0..g1-1 with rows m0..m1-1 of x.
    void (*matmul_quant_int8)(const MatmulTask &, int64_t g0, int64_t g1, int64_t m0, int64_t m1);
    // f32 products with row-major W. Multiplies rows n0..n1-1 with rows m0..m1-1 of x. Each row of
    // W is read once.
    void (*matmul_float_f32_few)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0,
                                 int64_t m1);

    // 16-bit products that are summed in f32, with row-major W. half_few_types and half_many_types
    // have a bit (1 << WeightType) for each type of W that the kernels take. If the instruction set
    // has no such kernels, the types are 0 and the functions are NULL. half_few_cols is the
    // smallest number of columns for which matmul_half_half_few is used.
    uint32_t half_few_types;
    int64_t half_few_cols;
    uint32_t half_many_types;
    // Rounds a row of n elements to f16 or bf16 and adds zeros up to `padded` elements.
    void (*round_half)(WeightType to, const float *x, int64_t n, int64_t padded, uint16_t *out,
                       float *scale);
    // Multiplies rows n0..n1-1 of W with rows m0..m1-1 of x. Each row of W is read once.
    void (*matmul_half_half_few)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0,
                                 int64_t m1);
    // Multiplies rows n0..n1-1 of W with rows m0..m1-1 of x, which is rounded to bf16. n0 is a
    // multiple of half_tile_rows.
    void (*matmul_half_half_many)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0,
                                  int64_t m1);

    // f32 products for W of any type and layout. The function unpacks rows n0..n0 + count - 1 of W
    // to `scratch` piece by piece, and multiplies them with rows m0..m1-1 of x. `count` is at most
    // panel, and n0 is a multiple of panel.
    void (*matmul_any_f32)(const MatmulTask &, int64_t n0, int64_t count, int64_t m0, int64_t m1,
                           float *scratch);

    // Converts one row of W to f32 and multiplies it by `scale`.
    void (*unpack_row)(const WeightView &, int64_t row, float scale, float *out);
    // Converts n elements: f32, f16 and bf16 to each other, or q8_0 and q4_0 to f32.
    void (*convert)(WeightType from, const uint8_t *x, WeightType to, uint8_t *out, int64_t n);
};

// matmul for many rows of x, with bf16 products and f32 sums. x is rounded and packed once per op.
// A block of W is unpacked to panels of bf16. The panels stay in the L2 cache while all rows of x
// are multiplied with them.
struct Bf16MatmulKernels {
    const char *isa;
    // For each type of W: smallest number of rows of x for which these kernels are faster. 0: these
    // kernels are never faster. f16 and bf16 weights are row-major, other types are interleaved.
    int64_t least_rows[weight_types];
    int64_t block; // most rows of W in a call
    // Number of rows of x that are stored together. Packed x has the shape [m / x_rows][k /
    // 32][x_rows][32]. Zeros follow the last column of a row.
    int64_t x_rows;
    int64_t rows_most;    // most rows of x in a call, a multiple of x_rows
    int64_t worker_bytes; // bytes of memory that a call needs, a multiple of 64

    // Packs one row of x. `together` rows are stored together. The first 32 columns of the row are
    // written to `out`.
    void (*pack_x)(const float *x, int64_t k, int64_t together, uint16_t *out);
    // Multiplies rows n0..n1-1 of W with rows m0..m1-1 of x. m0 is a multiple of x_rows. `x` points
    // to the first block of packed x. `memory` has worker_bytes bytes for the calling worker,
    // aligned to 64 bytes.
    void (*matmul_any_bf16)(const MatmulTask &, const uint16_t *x, int64_t n0, int64_t n1,
                            int64_t m0, int64_t m1, uint8_t *memory);
    // matmul_half_bf16_few multiplies f16 and bf16 weights with m <= few_rows rows of x, without
    // panels. All m rows are stored together. If panels are faster for any number of rows, few_rows
    // is 0 and the function is NULL.
    int64_t few_rows;
    void (*matmul_half_bf16_few)(const MatmulTask &, const uint16_t *x, int64_t n0, int64_t n1,
                                 int64_t m);
};

// Kernels for norms, activation functions, elementwise ops and rows. Each call processes one
// contiguous row. `out` can be one of the inputs.
struct RowKernels {
    const char *isa;

    void (*rms_norm)(const float *x, float *residual, const float *weight, float eps, int64_t n,
                     float *out);
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float eps, int64_t n,
                       float *out);
    // If `up` is NULL, `gate` holds pairs (gate, up).
    void (*silu_mul)(const float *gate, const float *up, int64_t n, float *out);
    // If `up` is NULL and `pairs` is false, computes gelu(gate) only. If `up` is NULL and `pairs`
    // is true, `gate` holds pairs (gate, up).
    void (*gelu_mul)(const float *gate, const float *up, int64_t n, bool pairs, bool tanh,
                     float *out);
    void (*add)(const float *a, const float *b, int64_t n, float *out);
    void (*scale)(const float *a, float factor, int64_t n, float *out);
    void (*scaled_add)(const float *a, float factor, int64_t n, float *out);
    void (*softmax)(const float *x, int64_t n, float *out);
    int32_t (*argmax)(const float *x, int64_t n); // -1 if x has a NaN or an infinity
};

// Kernels for attention, cache and policy-input ops. Rows of queries and tiles are f32 in scratch
// memory, padded to a multiple of kPad floats. K and V are rows in a dtype of the cache.
struct AttentionKernels {
    const char *isa;
    // Largest number of query rows for which `dots` and `mix` are faster than converting a tile to
    // f32 and calling `gemm`.
    int64_t few_rows;
    // The same limit for `mix` on rows in a block dtype. For more rows, converting the rows first
    // is faster.
    int64_t few_rows_mix;

    // `load` converts one row of n elements to f32. `store` converts it back and rounds like the op
    // `cast`. n is a multiple of the dtype's block size.
    void (*load[kRowTypes])(const void *src, int64_t n, float *dst);
    void (*store[kRowTypes])(const float *src, int64_t n, void *dst);

    // Computes s[r * s_stride + j] = q[r] . k[j] for `rows` queries and n keys. Keys are k_stride
    // bytes apart.
    void (*dots[kRowTypes])(const float *q, int64_t q_stride, int64_t rows, const void *k,
                            int64_t k_stride, int64_t n, int64_t dim, float *s, int64_t s_stride,
                            const Ahead &ahead);
    // Computes acc[r * acc_stride + d] += sum_j p[r * p_stride + j] * v[j][d].
    void (*mix[kRowTypes])(const float *p, int64_t p_stride, int64_t rows, const void *v,
                           int64_t v_stride, int64_t n, int64_t dim, float *acc, int64_t acc_stride,
                           const Ahead &ahead);

    // Computes c[rows, cols] = a[rows, depth] * b[depth, cols], or adds the product to c. Strides
    // are in floats. cols is a multiple of kPad.
    void (*gemm)(const LeftMatrix &a, int64_t rows, const float *b, int64_t b_stride, int64_t depth,
                 int64_t cols, float *c, int64_t c_stride, bool accumulate);
    // Transposes: dst[c * dst_stride + r] = src[r * src_stride + c]. rows is a multiple of kPad.
    void (*transpose)(const float *src, int64_t src_stride, int64_t rows, int64_t cols, float *dst,
                      int64_t dst_stride);

    // Adds a tile of n <= kTileSlots logits to an online softmax: updates the state and rescales
    // acc. s has memory for kTileSlots floats. It gets exp(s - max), then zeros after the first n
    // floats. A logit of -inf is a slot that the query does not see. NaN stays NaN.
    void (*softmax)(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state);
    void (*softcap)(float *s, int64_t n, float cap); // computes s = cap * tanh(s / cap)
    void (*add)(float *to, const float *x, int64_t n);
    void (*max)(float *to, const float *x, int64_t n); // the result is NaN if one operand is NaN
    void (*add_scaled)(float *to, const float *x, int64_t n, float factor);
    void (*scale)(float *x, int64_t n, float factor);
    bool (*finite)(const float *x, int64_t n);
    float (*norm1)(const float *x, int64_t n); // returns the sum of magnitudes
    float (*norm2)(const float *x, int64_t n); // returns the square root of the sum of squares

    // Rotates one head. `out` can be equal to x. If the sign is -1, the function rotates back.
    void (*rope)(const float *x, float *out, int64_t dim, int64_t rot, const float *cos,
                 const float *sin, float sign, keel_rope_mode mode);
    // Computes out = x / sqrt(mean(x^2) + eps) * weight. `out` can be equal to x.
    void (*rms_norm)(const float *x, const float *weight, float eps, int64_t n, float *out);

    // Dense attention (algo/attention_dense.inl). Each function takes rows of n elements. The rows
    // have room up to a multiple of kPad. A bias of -inf hides a pair of query and key.
    void (*exp_minus)(float *x, float lse, int64_t n); // x = exp(x - lse)
    void (*add_bias)(float *x, const float *bias, int64_t n);
    void (*hide)(float *x, const float *bias, int64_t n); // x = 0 for hidden pairs
    void (*drop)(float *x, const float *keep, int64_t n); // x *= keep; if keep is 0, x becomes 0
    // dp = p * (dp - delta)
    void (*logit_gradient)(float *dp, const float *p, float delta, int64_t n);
    void (*softcap_gradient)(float *dz, const float *capped, float cap, int64_t n);
};

// Attention with bf16 products and f32 sums (`compute: fast`). A tile of keys and values is rounded
// to bf16 once for all queries of a task.
struct Bf16AttentionKernels {
    const char *isa;
    int64_t least_rows; // with fewer query rows per KV head, f32 kernels are faster
    // Largest number of query rows per KV head for which dots_few is used. 0: dots_few is NULL.
    int64_t few_rows;
    int64_t x_rows; // number of rows in a block of x
    // Largest number of rows in a call, a multiple of x_rows. The logits and sums of this many rows
    // stay in the L1 cache.
    int64_t rows_at_once;

    // Packs `rows` rows of n elements as operand x. Zeros follow the n elements of each row.
    void (*pack_rows)(const float *x, int64_t x_stride, int64_t rows, int64_t n, uint16_t *out);
    // Converts n rows of a cache dtype, k_stride bytes apart, to [n][bf16_padded(dim)]. Zeros
    // follow each row. The pointer is NULL if the dtype has no conversion. The kernel also
    // prefetches n rows of `ahead`.
    void (*load_keys[kRowTypes])(const void *k, int64_t k_stride, int64_t n, int64_t dim,
                                 uint16_t *out, const Ahead &ahead);
    // Packs the rows that load_keys converted into panels, one for every 16 slots. n is a multiple
    // of 16.
    void (*turn_keys)(const uint16_t *rows, int64_t n, int64_t dim, uint16_t *panels);
    // Packs slots first .. first + n - 1 of a tile of values into panels. A panel has 16 elements
    // of v for kTileSlots slots. `first` is even. n can be odd only at the end of the tile. Writes
    // zeros after the dim elements of v. If `last` is true, also writes zeros up to the next
    // multiple of 32 slots.
    void (*load_values[kRowTypes])(const void *v, int64_t v_stride, int64_t first, int64_t n,
                                   int64_t dim, bool last, uint16_t *panels, const Ahead &ahead);
    // multiply() multiplies at most rows_at_once rows. multiply() and walk() may be called only
    // between begin(rows) and end().
    void (*begin)(int64_t rows);
    void (*multiply)(const Bf16Product &);
    void (*end)();
    // Computes the logits and the softmax of whole tiles and adds up their values. NULL if walk is
    // not faster than separate calls.
    void (*walk)(const Bf16Walk &);
    int64_t walk_rows; // smallest number of rows for which walk is used
    // Like AttentionKernels::softmax, but writes the result to p as operand x, with kTileSlots
    // columns. Writes zeros from n up to the next multiple of 32 slots. If `keep` is true, the
    // result is also left in s. The sums are added to lanes[rows][16]. max need not be the largest
    // logit, but exp(logit - max) never becomes large.
    void (*softmax)(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state,
                    float *lanes, bool keep, uint16_t *p);
    // The same with a relative error of 2e-7, for results whose sums are stored in f32. The error
    // of softmax is 8e-5.
    void (*softmax_fine)(float *s, int64_t s_stride, int64_t rows, int64_t n,
                         const SoftmaxState &state, float *lanes, bool keep, uint16_t *p);
    void (*add_lanes)(const float *lanes, int64_t rows, float *sum);
    // Adds weighted rows of p to `sums`. For each i < count and each c < n: sums[c] += by[i] *
    // p[first + i * every][c]. p is a tile of probabilities that softmax wrote, in the layout of
    // operand x. n is a multiple of 32.
    void (*add_columns)(const uint16_t *p, int64_t first, int64_t every, int64_t count,
                        const float *by, int64_t n, float *sums);
    bool (*finite)(const uint16_t *x, int64_t n);

    // For at most few_rows query rows: pack_few packs the queries, and dots_few multiplies them
    // with rows of keys from load_keys. dots_few reads and writes up to the next multiple of 16
    // after n.
    void (*pack_few)(const float *q, int64_t q_stride, int64_t rows, int64_t dim, uint16_t *out);
    void (*dots_few)(const uint16_t *q, int64_t rows, const uint16_t *k, int64_t n, int64_t dim,
                     float *s, int64_t s_stride);
};

// Return the tables for an instruction set that this machine has (choose.cpp). The bf16 tables are
// NULL if the instruction set has no bf16 kernels.
const MatmulKernels *matmul_kernels(Isa isa);
const RowKernels *row_kernels(Isa isa);
const AttentionKernels *attention_kernels(Isa isa);
const Bf16MatmulKernels *bf16_matmul_kernels(Isa isa);
const Bf16AttentionKernels *bf16_attention_kernels(Isa isa);

// All tables. Each file of kernels/build defines one of these functions.
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

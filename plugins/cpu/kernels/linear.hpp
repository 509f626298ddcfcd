// Kernels behind the linear, norm, activation, elementwise and row ops: one table per instruction set. Raw pointers only; nothing
// here allocates or starts threads.
#pragma once

#include "cpu/features.hpp"

namespace keel_cpu {

// 32 activations rounded to 8 bits: value = d * q.
struct ActBlock {
    int8_t q[32];
    float d; // largest magnitude / 127; NaN if an activation is no finite number
    int32_t
        shift; // 8 times the sum of q: by so much q4_0's nibbles, which stand for -8..7, make a product too large
    int32_t halves
        [2]; // -32 times the sum of each half of q: what q6_k's codes, which stand for -32..31, are to begin with
};

// How a weight lies in memory.
enum class Layout : uint32_t {
    rows,       // row-major, as in a file; rows may come from several sources
    interleaved // groups of R rows; for each block of 32 columns R f16 scales, then 4-byte pieces of the R rows in turn; K types:
                // for each 256 columns as k_blocks.hpp says
};

// Element types of weights, numbered for tables.
enum class WeightType : uint32_t {
    f32 = 0,
    f16 = 1,
    bf16 = 2,
    q8_0 = 3,
    q4_0 = 4,
    q4_k = 5,
    q5_k = 6,
    q6_k = 7
};
constexpr int weight_types = 8;
constexpr const char *weight_type_names[weight_types] = {"f32",  "f16",  "bf16", "q8_0",
                                                         "q4_0", "q4_k", "q5_k", "q6_k"};

// Types with scales, which matmul_quant_int8 takes once they are interleaved; K types have blocks of 256.
constexpr bool is_quantized(WeightType t) {
    return t >= WeightType::q8_0;
}
constexpr bool is_k(WeightType t) {
    return t >= WeightType::q4_k;
}

constexpr int64_t dot_unit =
    12; // rows of W that ranges of products in f32 begin at multiples of: kernels take 2, 3 or 4 together
constexpr int64_t half_tile_rows = 8; // rows of W that LinearKernels::matmul_half_half_many takes at a time

// Part of a row-major weight.
struct RowSource {
    const uint8_t *data;
    int64_t stride; // bytes from row to row
    int64_t rows;
};

// Where W's rows lie: what the kernels see of a keel_weight or of a plain tensor.
struct WeightView {
    WeightType type;
    Layout layout;
    int64_t rows, cols;
    const uint8_t *packed; // interleaved: group g at packed + g * group_bytes
    int64_t group_bytes;
    const RowSource *sources; // rows: n_sources of them
    uint32_t n_sources;
    uint32_t
        alternate; // 1: row r is row r / n_sources of source r % n_sources; 0: one source after the other
};

inline const uint8_t *row_of(const WeightView &w, int64_t row) {
    if (w.alternate != 0) {
        const RowSource &s = w.sources[row % w.n_sources];
        return s.data + row / w.n_sources * s.stride;
    }
    uint32_t i = 0;
    while (row >= w.sources[i].rows)
        row -= w.sources[i++].rows;
    return w.sources[i].data + row * w.sources[i].stride;
}

// Rows of activations rounded to a 16-bit type.
struct HalfRows {
    const uint16_t *data; // [m, stride]
    int64_t stride;       // elements, a multiple of 8; zeros behind a row's own
    const float *scale;   // [m]: what the elements must be multiplied by
};

// One matmul as the kernels see it; a call does some of W's rows for some of x's.
struct MatmulTask {
    WeightView w;
    const float *x;    // [m, k]
    int64_t x_stride;  // bytes from row to row
    const ActBlock *q; // [m, k / 32]: x, quantized; for the int8 kernels
    HalfRows half;     // x, rounded; for the 16-bit kernels
    float *out;
    int64_t out_stride; // bytes
    const float *bias;  // [n] or NULL
    bool accumulate;    // out += rather than out =
    bool prefetch;      // ask for weights ahead of reading them
    bool prefetch_rows; // the same where kernels read several rows of a row-major weight together
    bool pass_caches;   // out is larger than caches keep until it is read; AMX's kernel alone obeys this
};

struct LinearKernels {
    const char *isa; // word compiled into the file that the kernels come from
    int64_t group;   // R: rows of a group in the interleaved layout
    int64_t panel;   // rows of W that one call of matmul_any_f32 takes, a multiple of R
    int64_t panel_k; // columns unpacked at a time; scratch of matmul_any_f32 is panel * panel_k floats

    // Rounds n / 32 blocks of activations.
    void (*quantize)(const float *x, int64_t n, ActBlock *out);
    // int8 products, interleaved q8_0, q4_0 and K types: groups g0..g1-1 times x's rows m0..m1-1.
    void (*matmul_quant_int8)(const MatmulTask &, int64_t g0, int64_t g1, int64_t m0, int64_t m1);
    // f32 products with W's rows read once, row-major f32, f16, bf16, for few rows of x: rows n0..n1-1.
    void (*matmul_float_f32_few)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0, int64_t m1);
    // Products of 16 bits summed in f32, for row-major weights of the types (bits: 1 << WeightType) in half_few_types and half_many_types; 0 and NULL
    // where the instruction set has none. round_half rounds a row of n elements to f16 or bf16 and pads it with zeros.
    // half_few_cols: what columns are the least that half_few_types is for.
    uint32_t half_few_types;
    int64_t half_few_cols;
    uint32_t half_many_types;
    void (*round_half)(WeightType to, const float *x, int64_t n, int64_t padded, uint16_t *out, float *scale);
    // Few rows of x, rounded to 16 bits: rows n0..n1-1, each read once.
    void (*matmul_half_half_few)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0, int64_t m1);
    // Many rows of x, rounded to bf16: rows n0..n1-1, n0 a multiple of half_tile_rows.
    void (*matmul_half_half_many)(const MatmulTask &, int64_t n0, int64_t n1, int64_t m0, int64_t m1);
    // f32 products, any type and layout: rows n0..n0+count-1 (count <= panel, n0 a multiple of panel) are unpacked to `scratch` piece by piece and
    // used for x's rows m0..m1-1.
    void (*matmul_any_f32)(const MatmulTask &, int64_t n0, int64_t count, int64_t m0, int64_t m1,
                           float *scratch);
    // One row of W as f32, times `scale`.
    void (*unpack_row)(const WeightView &, int64_t row, float scale, float *out);

    void (*rms_norm)(const float *x, float *residual, const float *weight, float eps, int64_t n, float *out);
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float eps, int64_t n,
                       float *out);
    void (*silu_mul)(const float *gate, const float *up, int64_t n, float *out); // up NULL: pairs (gate, up)
    void (*gelu_mul)(const float *gate, const float *up, int64_t n, bool pairs, bool tanh,
                     float *out); // up NULL, no pairs: alone
    void (*add)(const float *a, const float *b, int64_t n, float *out);
    void (*scale)(const float *a, float factor, int64_t n, float *out);
    void (*scaled_add)(const float *a, float factor, int64_t n, float *out);
    void (*softmax)(const float *x, int64_t n, float *out);
    // n elements from one type to another: f32, f16 and bf16 among each other, q8_0 and q4_0 to f32.
    void (*convert)(WeightType from, const uint8_t *x, WeightType to, uint8_t *out, int64_t n);
    int32_t (*argmax)(const float *x, int64_t n); // -1 with a NaN or an infinity
};

const LinearKernels *linear_kernels_scalar();
const LinearKernels *linear_kernels_avx2();
const LinearKernels *linear_kernels_avx512();
const LinearKernels *linear_kernels_vnni();
const LinearKernels *linear_kernels_neon();
const LinearKernels *linear_kernels_dotprod();
const LinearKernels *linear_kernels_fp16();
const LinearKernels *linear_kernels_i8mm();

// Of an instruction set that this machine has (choose.cpp).
const LinearKernels *linear_kernels(Isa isa);

} // namespace keel_cpu

// Arguments of the matmul kernels: weights, activations and the task. Raw pointers, no tensors.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// 32 activations rounded to 8 bits: value = d * q.
struct ActBlock {
    int8_t q[32];
    float d; // largest magnitude / 127; NaN if an activation is NaN or infinite
    // 8 times the sum of q. The codes of q4_0 mean -8..7 but are multiplied as 0..15, so a product
    // is too large by this number.
    int32_t shift;
    // -32 times the sum of each half of q. The codes of q6_k mean -32..31 but are multiplied as
    // 0..63, so sums begin with these numbers.
    int32_t halves[2];
};

// The order of a weight in memory.
enum class Layout : uint32_t {
    rows, // row-major, as in a file; the rows may come from several sources
    // Groups of R rows. For each block of 32 columns: R f16 scales, then 4-byte pieces of the R
    // rows alternately. For K types: blocks of 256 columns, in the order of
    // cpu/weights/k_blocks.hpp.
    interleaved
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

// Types with scales; weight_prepare stores them interleaved.
constexpr bool is_quantized(WeightType t) { return t >= WeightType::q8_0; }
// Types in blocks of 256 columns.
constexpr bool is_k(WeightType t) { return t >= WeightType::q4_k; }

// Kernels are called for ranges of W's rows. The ranges begin at multiples of these numbers.
constexpr int64_t dot_unit = 12;      // f32 and half few: kernels handle 2, 3 or 4 rows together
constexpr int64_t half_tile_rows = 8; // half many: rows of a tile
constexpr int64_t few_unit = 24;      // bf16 few
constexpr int64_t bf16_unit = 32;     // bf16

// A part of a row-major weight.
struct RowSource {
    const uint8_t *data;
    int64_t stride; // bytes from row to row
    int64_t rows;
};

// W, from a keel_weight or from a plain tensor.
struct WeightView {
    WeightType type;
    Layout layout;
    int64_t rows, cols;
    const uint8_t *packed; // interleaved: group g at packed + g * group_bytes
    int64_t group_bytes;
    const RowSource *sources; // rows: number of sources
    uint32_t n_sources;
    // 1: row r is row r / n_sources of source r % n_sources. 0: the rows of one source after those
    // of the other.
    uint32_t alternate;
};

inline const uint8_t *row_of(const WeightView &w, int64_t row) {
    if (w.alternate != 0) {
        const RowSource &s = w.sources[row % w.n_sources];
        return s.data + row / w.n_sources * s.stride;
    }
    uint32_t i = 0;
    while (row >= w.sources[i].rows) row -= w.sources[i++].rows;
    return w.sources[i].data + row * w.sources[i].stride;
}

// Rows of activations rounded to a 16-bit type.
struct HalfRows {
    const uint16_t *data; // [m, stride]
    int64_t stride;       // elements, a multiple of 8; zeros follow the row's own elements
    const float *scale;   // [m]: factor of a row's elements
};

// One matmul: out = x * W', or out += x * W'. A kernel call computes some rows of W for some rows
// of x.
struct MatmulTask {
    WeightView w;      // [n, k]
    const float *x;    // [m, k]
    int64_t x_stride;  // bytes from row to row
    const ActBlock *q; // [m, k / 32]: x rounded to 8 bits, for matmul_quant_int8
    HalfRows half;     // x rounded to 16 bits, for matmul_half_half_few and _many
    float *out;
    int64_t out_stride; // bytes
    const float *bias;  // [n] or NULL
    bool accumulate;    // out += instead of out =
    bool prefetch;      // prefetch weights
    // the same for kernels that read several rows of a row-major weight together
    bool prefetch_rows;
    bool pass_caches; // out is too large for the caches; only the AMX kernel uses this
};

} // namespace keel_cpu

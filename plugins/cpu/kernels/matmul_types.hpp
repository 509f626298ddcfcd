// Arguments of the matmul kernels: weights, activations and the task. They are raw pointers, not
// tensors.
#pragma once

#include <stdint.h>

namespace keel_cpu {

// 32 activations that are rounded to 8 bits. An activation is d * q[i].
struct ActBlock {
    int8_t q[32];
    float d; // largest magnitude / 127; NaN if an activation is NaN or infinite
    // 8 times the sum of q. The codes of q4_0 stand for -8..7 but are multiplied as 0..15. So a sum
    // of products is too large by this number.
    int32_t shift;
    // -32 times the sum of each half of q. The codes of q6_k stand for -32..31 but are multiplied
    // as 0..63. So a sum of products begins with this number.
    int32_t halves[2];
};

// The order of a weight's elements in memory.
enum class Layout : uint32_t {
    rows, // row-major, as in a file; the rows can come from several sources
    // Groups of R rows. For each block of 32 columns, a group first stores R f16 scales. Then it
    // stores the first 4 bytes of each of the R rows, then the next 4 bytes of each row, and so on.
    // K types have blocks of 256 columns, in the order that cpu/weights/k_blocks.hpp describes.
    interleaved
};

// Element types of weights. The numbers are indices in the kernel tables.
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

// Returns true for types with scales. weight_prepare stores these types interleaved.
constexpr bool is_quantized(WeightType t) { return t >= WeightType::q8_0; }
// Returns true for types with blocks of 256 columns.
constexpr bool is_k(WeightType t) { return t >= WeightType::q4_k; }

// Kernels are called for ranges of W's rows. The ranges begin at multiples of the numbers below.
// dot_unit is for matmul_float_f32_few and matmul_half_half_few. Their kernels handle 2, 3 or 4
// rows together.
constexpr int64_t dot_unit = 12;
constexpr int64_t half_tile_rows = 8; // matmul_half_half_many: number of rows in a tile
constexpr int64_t few_unit = 24;      // for matmul_half_bf16_few
constexpr int64_t bf16_unit = 32;     // for matmul_any_bf16

// A row-major part of a weight.
struct RowSource {
    const uint8_t *data;
    int64_t stride; // bytes from one row to the next
    int64_t rows;
};

// The matrix W, from a keel_weight or from a plain tensor.
struct WeightView {
    WeightType type;
    Layout layout;
    int64_t rows, cols;
    const uint8_t *packed; // only for `interleaved`: group g is at packed + g * group_bytes
    int64_t group_bytes;
    const RowSource *sources; // only for `rows`: an array of n_sources
    uint32_t n_sources;
    // 1: the sources' rows alternate, so row r is row r / n_sources of source r % n_sources. 0: all
    // rows of the first source come first, then all rows of the next source.
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

// Rows of activations that are rounded to a 16-bit type.
struct HalfRows {
    const uint16_t *data; // [m, stride]
    int64_t stride; // in elements, a multiple of 8; the elements after the end of a row are zero
    const float *scale; // [m]: factor for the elements of each row
};

// One matmul: out = x * W', or out += x * W'. A kernel call computes the products of some rows of W
// with some rows of x.
struct MatmulTask {
    WeightView w;      // [n, k]
    const float *x;    // [m, k]
    int64_t x_stride;  // bytes from one row to the next
    const ActBlock *q; // [m, k / 32]: x rounded to 8 bits, for matmul_quant_int8
    HalfRows half;     // x rounded to 16 bits, for matmul_half_half_few and matmul_half_half_many
    float *out;
    int64_t out_stride; // in bytes
    const float *bias;  // [n] or NULL
    bool accumulate;    // true: the product is added to out
    bool prefetch;      // true: kernels prefetch weights
    // True: kernels that read several rows of a row-major weight together prefetch weights too.
    bool prefetch_rows;
    bool pass_caches; // true: out is too large for the caches; only the AMX kernel uses this
};

} // namespace keel_cpu

// Attention with AVX512_BF16. Each lane multiplies a pair of neighbouring elements. The sums stay
// in registers.
#include "cpu/kernels/isa/bf16_pairs.hpp"

namespace keel_cpu::avx512bf16 {
// With two panels, twelve rows give 24 independent sums. The other registers hold operands.
constexpr int64_t x_rows = 12;
} // namespace keel_cpu::avx512bf16

#include "cpu/kernels/algo/attention_bf16.inl"

namespace keel_cpu::avx512bf16 {
namespace {

KEEL_SIMD F dot_pairs(F sum, I x, I y) {
    return _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
}

KEEL_SIMD I spread_pair(const uint16_t *x) {
    int32_t pair;
    memcpy(&pair, x, 4);
    return _mm512_set1_epi32(pair);
}

// Multiplies M rows of a block of x with P panels.
template <int M, int P>
KEEL_SIMD void multiply_part(const Bf16Product &t, const uint16_t *x, const uint16_t *w, float *c) {
    F sum[M][P];
    KEEL_UNROLL
    for (int i = 0; i < M; ++i)
        KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        sum[i][p] = zero();
    const uint16_t *v = w;
    for (int64_t k = 0; k < t.depth; k += 32, x += x_rows * 32)
        for (int pair = 0; pair < 16; ++pair, v += 32) {
            I y[P];
            KEEL_UNROLL
            for (int p = 0; p < P; ++p)
                y[p] = _mm512_loadu_si512(v + p * t.panel_stride);
            KEEL_UNROLL
            for (int i = 0; i < M; ++i) {
                const I pairs = spread_pair(x + i * 32 + 2 * pair);
                KEEL_UNROLL
                for (int p = 0; p < P; ++p)
                    sum[i][p] = dot_pairs(sum[i][p], pairs, y[p]);
            }
        }
    KEEL_UNROLL
    for (int i = 0; i < M; ++i)
        KEEL_UNROLL
    for (int p = 0; p < P; ++p) {
        float *to = c + i * t.c_stride + 16 * p;
        store(to, t.accumulate ? add(load(to), sum[i][p]) : sum[i][p]);
    }
}

template <int M>
void multiply_rows(const Bf16Product &t, int64_t row, int64_t rows) {
    if constexpr (M > 0) {
        if (rows != M) return multiply_rows<M - 1>(t, row, rows);
        const uint16_t *x = t.x + row * t.x_depth, *w = t.w;
        float *c = t.c + row * t.c_stride;
        int64_t n = 0;
        for (; n + 32 <= t.columns; n += 32, w += 2 * t.panel_stride)
            multiply_part<M, 2>(t, x, w, c + n);
        if (n < t.columns) multiply_part<M, 1>(t, x, w, c + n);
    }
}

void multiply(const Bf16Product &t) {
    for (int64_t row = 0; row < t.rows; row += x_rows)
        multiply_rows<x_rows>(t, row, t.rows - row < x_rows ? t.rows - row : x_rows);
}

void nothing_to_begin(int64_t) {}
void nothing_to_end() {}

// ---- few rows ----
//
// Each pair of elements of a key is multiplied with all queries. So keys need not be transposed.
//
// A vector of packed queries holds U pairs of each of 16 / U queries: lane l is pair l % U of query
// l / U.

template <int U>
KEEL_SIMD void pack_units(const float *q, int64_t q_stride, int64_t rows, int64_t dim,
                          uint16_t *out) {
    const int64_t depth = bf16_padded(dim);
    for (int64_t d = 0; d < depth; d += 2 * U)
        for (int64_t lane = 0; lane < 16; ++lane)
            for (int64_t e = 0; e < 2; ++e) {
                const int64_t at = d + lane % U * 2 + e, r = lane / U;
                *out++ = r < rows && at < dim ? f32_to_bf16(q[r * q_stride + at]) : 0;
            }
}

void pack_few(const float *q, int64_t q_stride, int64_t rows, int64_t dim, uint16_t *out) {
    if (rows > 4)
        pack_units<2>(q, q_stride, rows, dim, out);
    else
        pack_units<4>(q, q_stride, rows, dim, out);
}

template <int U>
KEEL_SIMD I spread_unit(const uint16_t *x) {
    if constexpr (U == 2) {
        int64_t two;
        memcpy(&two, x, 8);
        return _mm512_set1_epi64(two);
    } else {
        return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x)));
    }
}

// Adds neighbouring lanes. Each 128-bit lane of the result has two sums of a, then two sums of b.
KEEL_SIMD F sum_pairs(F a, F b) {
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

// Stores the 128-bit lane q of each x[i] as lane i of row q of the output.
KEEL_SIMD void store_lanes(float *s, int64_t s_stride, int64_t rows, const F *x) {
    const F a = _mm512_shuffle_f32x4(x[0], x[1], 0x44), b = _mm512_shuffle_f32x4(x[2], x[3], 0x44),
            c = _mm512_shuffle_f32x4(x[0], x[1], 0xee), d = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
    store(s, _mm512_shuffle_f32x4(a, b, 0x88));
    if (rows > 1) store(s + s_stride, _mm512_shuffle_f32x4(a, b, 0xdd));
    if (rows > 2) store(s + 2 * s_stride, _mm512_shuffle_f32x4(c, d, 0x88));
    if (rows > 3) store(s + 3 * s_stride, _mm512_shuffle_f32x4(c, d, 0xdd));
}

// Computes the logits of 16 slots. Depth is the length of a key's row; if Depth is 0, the length is
// the argument any_depth.
template <int U, int Depth>
KEEL_SIMD void dots_16(const uint16_t *q, int64_t rows, const uint16_t *k, int64_t any_depth,
                       float *s, int64_t s_stride) {
    const int64_t depth = Depth != 0 ? Depth : any_depth;
    F sum[16];
    KEEL_UNROLL
    for (int j = 0; j < 16; ++j)
        sum[j] = zero();
    for (int64_t d = 0; d < depth; d += 2 * U, q += 32, k += 2 * U) {
        const I x = _mm512_loadu_si512(q);
        KEEL_UNROLL
        for (int j = 0; j < 16; ++j)
            sum[j] = dot_pairs(sum[j], x, spread_unit<U>(k + j * depth));
    }
    // U is the number of adjacent pairs of one query in a vector. After all additions, if U is 2:
    // each 128-bit lane of four[i] has the logits of two queries, for slots 2 i and 2 i + 1. If U
    // is 4: each 128-bit lane of four[i] has the logits of one query, for slots 4 i .. 4 i + 3.
    F four[8];
    for (int i = 0; i < 8; ++i)
        four[i] = sum_pairs(sum[2 * i], sum[2 * i + 1]);
    if constexpr (U == 4) {
        for (int i = 0; i < 4; ++i)
            four[i] = sum_pairs(four[2 * i], four[2 * i + 1]);
        store_lanes(s, s_stride, rows, four);
    } else {
        // In the 128-bit lane L of four[i], elements 0 and 2 are query 2 L for slots 2 i and 2 i +
        // 1. Elements 1 and 3 are query 2 L + 1 for the same slots.
        F even[4], odd[4];
        for (int i = 0; i < 4; ++i) {
            even[i] = _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0x88);
            odd[i] = _mm512_shuffle_ps(four[2 * i], four[2 * i + 1], 0xdd);
        }
        store_lanes(s, 2 * s_stride, (rows + 1) / 2, even);
        store_lanes(s + s_stride, 2 * s_stride, rows / 2, odd);
    }
}

template <int U, int Depth>
void dots_all(const uint16_t *q, int64_t rows, const uint16_t *k, int64_t n, int64_t depth,
              float *s, int64_t s_stride) {
    for (int64_t j = 0; j < n; j += 16)
        dots_16<U, Depth>(q, rows, k + j * depth, depth, s + j, s_stride);
}

void dots_few(const uint16_t *q, int64_t rows, const uint16_t *k, int64_t n, int64_t dim, float *s,
              int64_t s_stride) {
    const int64_t depth = bf16_padded(dim);
    const auto dots = rows > 4       ? depth == 64    ? dots_all<2, 64>
                                       : depth == 128 ? dots_all<2, 128>
                                                      : dots_all<2, 0>
                            : depth == 64 ? dots_all<4, 64>
                      : depth == 128 ? dots_all<4, 128>
                                     : dots_all<4, 0>;
    dots(q, rows, k, n, depth, s, s_stride);
}

const Bf16AttentionKernels table = {
    .isa = isa_word,
    .least_rows = 3,
    .few_rows = 8,
    .x_rows = x_rows,
    .rows_at_once = 24,
    .pack_rows = pack_rows,
    .load_keys = {nullptr, load_keys<F16Row>, load_keys<Bf16Row>, load_keys<Q8Row>,
                  load_keys<Q4Row>},
    .turn_keys = turn_keys,
    .load_values = {nullptr, load_values<F16Row>, load_values<Bf16Row>, load_values<Q8Row>,
                    load_values<Q4Row>},
    .begin = nothing_to_begin,
    .multiply = multiply,
    .end = nothing_to_end,
    .walk = nullptr,
    .walk_rows = 0,
    .softmax = softmax16<false>,
    .softmax_fine = softmax16<true>,
    .add_lanes = add_lanes,
    .add_columns = add_columns,
    .finite = finite16,
    .pack_few = pack_few,
    .dots_few = dots_few,
};

} // namespace
} // namespace keel_cpu::avx512bf16

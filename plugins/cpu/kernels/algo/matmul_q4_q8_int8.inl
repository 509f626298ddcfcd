// Products of interleaved q8_0 and q4_0 weights with activations that are rounded to 8 bits. Each
// lane is a row of W, so no sum goes across lanes. Four columns are multiplied at a time. A group
// of R rows is one contiguous stream.
#include "cpu/kernels/algo/matmul_task.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Adds bias and old values to the finished sums of a group, and writes `count` of the results to
// `out`.
KEEL_SIMD void finish_group(const float *sums, const float *bias, bool accumulate, float *out,
                            int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        float y = sums[i];
        if (bias != nullptr) y += bias[i];
        if (accumulate) y += out[i];
        out[i] = y;
    }
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

#if defined(KEEL_ARM_LEVEL)
#include "cpu/kernels/algo/matmul_q4_q8_int8_arm.inl"
namespace keel_cpu::KEEL_ISA_NAMESPACE {
constexpr int rows_at_once = 4;
}
#endif

namespace keel_cpu::KEEL_ISA_NAMESPACE {

#if defined(KEEL_INT8_DOT4)

// Largest number of rows of x that are multiplied together. Weights are unpacked once for all these
// rows, and the registers have room for their sums.
constexpr int rows_at_once = 8;

// Multiplies 32 columns of R rows of q4_0 with M <= 8 rows of x. If M is small, each row of x has
// two independent sums.
template <int M>
KEEL_SIMD void block_q4(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    constexpr int chains = M < 4 ? 2 : 1;
    I sum[M][chains];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        KEEL_UNROLL
    for (int c = 0; c < chains; ++c)
        sum[m][c] = zero_i();
    KEEL_UNROLL
    for (int piece = 0; piece < 4; ++piece) {
        const I both = load_bytes(bytes + piece * 4 * R);
        const I low = low_nibbles(both), high = high_nibbles(both);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            sum[m][0] = dot4(sum[m][0], low, spread4(q[m]->q + 4 * piece));
            sum[m][chains - 1] = dot4(sum[m][chains - 1], high, spread4(q[m]->q + 16 + 4 * piece));
        }
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        dot[m] = chains == 2 ? add32(sum[m][0], sum[m][chains - 1]) : sum[m][0];
        dot[m] = sub32(dot[m], set32(q[m]->shift));
    }
}

// Multiplies 32 columns of R rows of q8_0 with M rows of x. The weights are converted to unsigned
// bytes, which are 128 larger. So the sum is too large by 16 times ActBlock::shift. This number is
// subtracted.
template <int M>
KEEL_SIMD void block_q8(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m] = zero_i();
    for (int piece = 0; piece < 8; ++piece) {
        const I w = flip_signs(load_bytes(bytes + piece * 4 * R));
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            dot[m] = dot4(dot[m], w, spread4(q[m]->q + 4 * piece));
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m] = sub32(dot[m], set32(16 * q[m]->shift));
}

#elif !defined(KEEL_ARM_LEVEL)

constexpr int rows_at_once = 4;

// Multiplies 32 columns of R rows of q4_0 with one to four rows of x. The sums fit 16 bits: 8 * (2
// * 15 * 127) < 2^15.
template <int M>
KEEL_SIMD void block_q4(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m] = zero_i();
    KEEL_UNROLL
    for (int piece = 0; piece < 4; ++piece) {
        const I both = load_bytes(bytes + piece * 4 * R);
        const I low = low_nibbles(both), high = high_nibbles(both);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            dot[m] = dot2(dot[m], low, spread4(q[m]->q + 4 * piece));
            dot[m] = dot2(dot[m], high, spread4(q[m]->q + 16 + 4 * piece));
        }
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m] = sub32(pairs16(dot[m]), set32(q[m]->shift));
}

template <int M>
KEEL_SIMD void block_q8(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m] = zero_i();
    for (int piece = 0; piece < 8; ++piece) {
        const I w = load_bytes(bytes + piece * 4 * R);
        const I w_abs = abs8(w);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            dot[m] = dot4_signed(dot[m], w, w_abs, spread4(q[m]->q + 4 * piece));
    }
}

#endif

template <int M, bool Q4>
static void q4_q8_group(const MatmulTask &t, int64_t g, int64_t m0) {
    constexpr int64_t data_bytes = (Q4 ? 16 : 32) * R, block_bytes = 2 * R + data_bytes;
    const int64_t blocks = t.w.cols / 32, row = g * R;
    const uint8_t *w = t.w.packed + g * t.w.group_bytes;
    const ActBlock *q[M];
    G sums[M];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        q[m] = t.q + (m0 + m) * blocks, sums[m] = group_zero();
    for (int64_t b = 0; b < blocks; ++b, w += block_bytes) {
        prefetch_ahead(t, w, block_bytes);
        I dot[M];
        if constexpr (Q4)
            block_q4<M>(w + 2 * R, q, dot);
        else
            block_q8<M>(w + 2 * R, q, dot);
        const G scales = group_load_f16(reinterpret_cast<const uint16_t *>(w));
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            sums[m] = group_fma(group_mul(scales, group_set1(q[m]->d)), to_float(dot[m]), sums[m]);
            ++q[m];
        }
    }
    const int64_t count = t.w.rows - row < R ? t.w.rows - row : R;
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        float values[R];
        group_store(values, sums[m]);
        finish_group(values, t.bias != nullptr ? t.bias + row : nullptr, t.accumulate,
                     out_at(t, m0 + m, row), count);
    }
}

template <int M, bool Q4>
KEEL_SIMD void q4_q8_rows(const MatmulTask &t, int64_t g, int64_t m0) {
#if defined(KEEL_INT8_PAIRS)
    if constexpr (M > 1)
        q4_q8_pairs<M, Q4>(t, g, m0);
    else
#endif
        q4_q8_group<M, Q4>(t, g, m0);
}

// Handles the last rows of x. Their number is smaller than rows_at_once.
template <int M, bool Q4>
static void q4_q8_rest(const MatmulTask &t, int64_t g, int64_t m0, int64_t rows) {
    if constexpr (M > 0) {
        if (rows == M) return q4_q8_rows<M, Q4>(t, g, m0);
        q4_q8_rest<M - 1, Q4>(t, g, m0, rows);
    }
}

template <bool Q4>
static void q4_q8_groups(const MatmulTask &t, int64_t g0, int64_t g1, int64_t m0, int64_t m1) {
    for (int64_t g = g0; g < g1; ++g) {
        int64_t m = m0; // the group of W stays in the L1 cache for all rows of x
        for (; m + rows_at_once <= m1; m += rows_at_once)
            q4_q8_rows<rows_at_once, Q4>(t, g, m);
        q4_q8_rest<rows_at_once - 1, Q4>(t, g, m, m1 - m);
    }
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

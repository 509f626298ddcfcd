// Products of interleaved q4_k, q5_k and q6_k weights with activations that are rounded to 8 bits.
// weights/k_blocks.hpp describes the order of a block's words. Each lane is a row of W. The small
// scales of a block are converted to floats once for all rows of x in the call.
#include "cpu/kernels/algo/k_codes.inl"
#if defined(KEEL_INT8_PAIRS)
#include "cpu/kernels/algo/matmul_k_int8_arm.inl"
#endif

namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Adds the products of columns 4 P .. 4 End - 1 of a chunk to `dot`.
template <int M, WeightType T, bool High, int P, int End>
KEEL_SIMD void add_codes(const uint8_t *nibbles, const I *upper, const ActBlock *const *q,
                         int chunk, I *dot) {
    if constexpr (P < End) {
        const I u = codes<T, High, P>(nibbles, upper);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            const I x = all_rows4(q[m][chunk].q + 4 * P);
#if defined(KEEL_NARROW_DOTS)
            dot[m] = dot2(dot[m], u, x);
#else
            dot[m] = dot_bytes(dot[m], u, x);
#endif
        }
        add_codes<M, T, High, P + 1, End>(nibbles, upper, q, chunk, dot);
    }
}

#if defined(KEEL_NARROW_DOTS)
// Number of words whose products can be summed in 16 bits: 2 * words * (largest code) * 127 must be
// less than 2^15.
template <WeightType T>
constexpr int k_run = T == WeightType::q4_k   ? 8
                      : T == WeightType::q5_k ? 4
                                              : 2;

template <int M, WeightType T, bool High, int P, int End>
KEEL_SIMD void add_products(const uint8_t *nibbles, const I *upper, const ActBlock *const *q,
                            int chunk, I *dot) {
    if constexpr (P < End) {
        I part[M];
        for (int m = 0; m < M; ++m)
            part[m] = zero_i();
        add_codes<M, T, High, P, P + k_run<T>>(nibbles, upper, q, chunk, part);
        for (int m = 0; m < M; ++m)
            dot[m] = add_lanes(dot[m], pairs16(part[m]));
        add_products<M, T, High, P + k_run<T>, End>(nibbles, upper, q, chunk, dot);
    }
}
#else
template <int M, WeightType T, bool High, int P, int End>
KEEL_SIMD void add_products(const uint8_t *nibbles, const I *upper, const ActBlock *const *q,
                            int chunk, I *dot) {
    add_codes<M, T, High, P, End>(nibbles, upper, q, chunk, dot);
}
#endif

// Multiplies a chunk of 32 columns of R rows of W with M rows of x.
template <int M, WeightType T, bool High>
KEEL_SIMD void add_chunk(const uint8_t *upper_words, const uint8_t *nibbles, const KScales &s,
                         int chunk, const ActBlock *const *q, G *sums) {
    I upper[2], dot[M];
    for (int i = 0; i < k_form(T).upper_words; ++i)
        upper[i] = load_bytes(upper_words + 4 * R * i);
    G part[M];
    if constexpr (T == WeightType::q6_k) {
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            dot[m] = set32(q[m][chunk].halves[0]);
        add_products<M, T, High, 0, 4>(nibbles, upper, q, chunk, dot);
        const G first = group_load(s.scale[2 * chunk]), second = group_load(s.scale[2 * chunk + 1]);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            part[m] = group_mul(first, to_float(dot[m]));
            dot[m] = set32(q[m][chunk].halves[1]);
        }
        add_products<M, T, High, 4, 8>(nibbles, upper, q, chunk, dot);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            part[m] = group_fma(second, to_float(dot[m]), part[m]);
    } else {
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            dot[m] = set32(0);
        add_products<M, T, High, 0, 8>(nibbles, upper, q, chunk, dot);
        const G scale = group_load(s.scale[chunk]), least = group_load(s.least[chunk]);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            part[m] = group_fma(scale, to_float(dot[m]),
                                group_mul(least, to_float(set32(q[m][chunk].shift))));
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        sums[m] = group_fma(part[m], group_set1(q[m][chunk].d), sums[m]);
}

template <int M, WeightType T>
static void k_group(const MatmulTask &t, int64_t g, int64_t m0) {
    constexpr int64_t upper_bytes = 4 * R * k_form(T).upper_words,
                      pair_bytes = 4 * R * k_form(T).pair_words();
    const int64_t blocks = t.w.cols / k_columns, row = g * R;
    const uint8_t *w = t.w.packed + g * t.w.group_bytes;
    const ActBlock *q[M];
    G sums[M];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        q[m] = t.q + (m0 + m) * 8 * blocks, sums[m] = group_zero();
    for (int64_t b = 0; b < blocks; ++b, w += k_group_bytes<T>) {
        prefetch_ahead(t, w, k_pairs_at<T>);
        KScales s;
        read_scales<T>(w, s);
        const uint8_t *pair = w + k_pairs_at<T>;
        for (int i = 0; i < 4; ++i, pair += pair_bytes) {
            prefetch_ahead(t, pair, pair_bytes);
            const uint8_t *nibbles = pair + 2 * upper_bytes;
            add_chunk<M, T, false>(pair, nibbles, s, 2 * i, q, sums);
            add_chunk<M, T, true>(pair + upper_bytes, nibbles, s, 2 * i + 1, q, sums);
        }
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            q[m] += 8;
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

template <int M, WeightType T>
static void k_rest(const MatmulTask &t, int64_t g, int64_t m0, int64_t rows) {
    if constexpr (M > 0) {
        if (rows == M) return k_group<M, T>(t, g, m0);
        k_rest<M - 1, T>(t, g, m0, rows);
    }
}

template <WeightType T>
static void k_groups(const MatmulTask &t, int64_t g0, int64_t g1, int64_t m0, int64_t m1) {
    for (int64_t g = g0; g < g1; ++g) {
        int64_t m = m0;
#if defined(KEEL_INT8_PAIRS)
        for (int64_t end; m1 - m >= k_panel_from; m = end) {
            end = m1 - m < k_panel_rows ? m1 : m + k_panel_rows;
            k_panel_group<T>(t, g, m, end);
        }
#endif
        for (; m + rows_at_once <= m1; m += rows_at_once)
            k_group<rows_at_once, T>(t, g, m);
        k_rest<rows_at_once - 1, T>(t, g, m, m1 - m);
    }
}

static void matmul_k_int8(const MatmulTask &t, int64_t g0, int64_t g1, int64_t m0, int64_t m1) {
    if (t.w.type == WeightType::q4_k)
        k_groups<WeightType::q4_k>(t, g0, g1, m0, m1);
    else if (t.w.type == WeightType::q5_k)
        k_groups<WeightType::q5_k>(t, g0, g1, m0, m1);
    else
        k_groups<WeightType::q6_k>(t, g0, g1, m0, m1);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

// Products of row-major 16-bit weights with a few rows of x, for example one row for each of
// several sequences in a decode step. Several rows of W at a time are multiplied directly from the
// file's mapping. So both W and x are read few times. Unpacking W into panels would take longer
// than the products. This file needs matmul_any_bf16.inl.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

constexpr int64_t few_rows = 12; // with more rows of x, unpacking W into panels is faster

// Number of rows of W that are multiplied together with M rows of x. The registers have room for
// the sums of this many rows.
template <int M>
constexpr int few_together = M > 6   ? 3
                             : M > 4 ? 4
                                     : 6;

// Multiplies N rows of W (n, n + step, n + 2 step, ...) with M rows of x. `x` points to the first
// 32 columns of these rows of x. The next 32 columns are x_step elements after the previous ones.
template <WeightType T, int M, int N>
static void multiply_few(const MatmulTask &t, const uint16_t *x, int64_t x_step, int64_t m0,
                         int64_t n, int64_t step) {
    const uint8_t *w[N];
    F sum[M][N];
    KEEL_WHOLE
    for (int j = 0; j < N; ++j)
        w[j] = row_of(t.w, n + j * step);
    KEEL_WHOLE
    for (int i = 0; i < M; ++i)
        KEEL_WHOLE
    for (int j = 0; j < N; ++j)
        sum[i][j] = zero();
    const auto add_products = [&](const uint8_t *const *rows, int64_t offset)
        __attribute__((always_inline)) {
        I v[N];
        KEEL_WHOLE
        for (int j = 0; j < N; ++j)
            v[j] = load_row32<T>(rows[j] + offset);
        KEEL_WHOLE
        for (int i = 0; i < M; ++i) {
            const I a = _mm512_loadu_si512(x + 32 * i);
            KEEL_WHOLE
            for (int j = 0; j < N; ++j)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], (__m512bh)v[j], (__m512bh)a);
        }
    };
    const int64_t whole = t.w.cols / 32 * 32, left = t.w.cols - whole;
    for (int64_t k = 0; k < whole; k += 32, x += x_step) {
        // these rows of W are in the cache when the later rows of x are multiplied
        if (t.prefetch_rows && m0 == 0) {
            const int64_t ahead = ahead_in_rows<N>(2 * k, 2 * t.w.cols);
            KEEL_WHOLE
            for (int j = 0; j < N; ++j)
                prefetch(w[j] + ahead);
        }
        add_products(w, 2 * k);
    }
    if (left != 0) {
        uint8_t rest[N][64] = {};
        const uint8_t *rows[N];
        KEEL_WHOLE
        for (int j = 0; j < N; ++j) {
            memcpy(rest[j], w[j] + 2 * whole, static_cast<size_t>(left) * 2);
            rows[j] = rest[j];
        }
        add_products(rows, 0);
    }
    constexpr int padded = (N + 3) / 4 * 4;
    float y[M][padded];
    KEEL_WHOLE
    for (int i = 0; i < M; ++i)
        KEEL_WHOLE
    for (int j = 0; j < N; j += 4)
        reduce_add4(y[i] + j, sum[i][j], j + 1 < N ? sum[i][j + 1 < N ? j + 1 : 0] : zero(),
                    j + 2 < N ? sum[i][j + 2 < N ? j + 2 : 0] : zero(),
                    j + 3 < N ? sum[i][j + 3 < N ? j + 3 : 0] : zero());
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            float *out = out_at(t, m0 + i, n + j * step);
            *out = y[i][j] + (t.bias != nullptr ? t.bias[n + j * step] : 0.0f) +
                   (t.accumulate ? *out : 0.0f);
        }
}

template <WeightType T, int M>
static void few_of(const MatmulTask &t, const uint16_t *x, int64_t x_step, int64_t n0, int64_t n1,
                   int64_t m0, int64_t rows) {
    if constexpr (M > 1) {
        if (rows != M) return few_of<T, M - 1>(t, x, x_step, n0, n1, m0, rows);
    }
    // If the rows of W alternate between sources, one source is processed after the other, so that
    // rows that are multiplied together are neighbours in memory.
    const int64_t step = t.w.alternate != 0 ? t.w.n_sources : 1;
    for (int64_t source = 0; source < step; ++source) {
        constexpr int N = few_together<M>;
        int64_t n = n0 + source;
        for (; n + (N - 1) * step < n1; n += N * step)
            multiply_few<T, M, N>(t, x + 32 * m0, x_step, m0, n, step);
        for (; n < n1; n += step)
            multiply_few<T, M, 1>(t, x + 32 * m0, x_step, m0, n, step);
    }
}

// Multiplies rows n0..n1-1 of W with all m rows of x. x is divided into parts of equal size. A
// block of W stays in the cache until the last part.
static void matmul_half_bf16_few(const MatmulTask &t, const uint16_t *x, int64_t n0, int64_t n1,
                                 int64_t m) {
    const int64_t parts = (m + 7) / 8;
    for (int64_t n = n0; n < n1; n += few_unit)
        for (int64_t i = 0; i < parts; ++i) {
            const int64_t m0 = m * i / parts, rows = m * (i + 1) / parts - m0, end = n + few_unit;
            if (t.w.type == WeightType::f16)
                few_of<WeightType::f16, 8>(t, x, 32 * m, n, end < n1 ? end : n1, m0, rows);
            else
                few_of<WeightType::bf16, 8>(t, x, 32 * m, n, end < n1 ? end : n1, m0, rows);
        }
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

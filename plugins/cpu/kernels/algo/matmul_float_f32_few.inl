// Products of row-major f32, f16 and bf16 weights with few rows of x. Each row of W is read once
// from front to back, directly from the file's mapping.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

template <WeightType T>
constexpr int64_t element_bytes = T == WeightType::f32 ? 4 : 2;

// A row in a file can have any address, so loads must not assume alignment.
template <WeightType T>
KEEL_SIMD F load_weights(const uint8_t *p) {
    if constexpr (W == 1) {
        if constexpr (T == WeightType::f32) {
            float f;
            memcpy(&f, p, 4);
            return set1(f);
        } else {
            uint16_t h;
            memcpy(&h, p, 2);
            return set1(T == WeightType::f16 ? f16_to_f32(h) : bf16_to_f32(h));
        }
    } else if constexpr (T == WeightType::f32) {
        return load(reinterpret_cast<const float *>(p));
    } else if constexpr (T == WeightType::f16) {
        return load_f16(reinterpret_cast<const uint16_t *>(p));
    } else {
        return load_bf16(reinterpret_cast<const uint16_t *>(p));
    }
}

template <WeightType T>
KEEL_SIMD float one_weight(const uint8_t *p) {
    if constexpr (T == WeightType::f32) {
        float f;
        memcpy(&f, p, 4);
        return f;
    } else {
        uint16_t h;
        memcpy(&h, p, 2);
        return T == WeightType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
}

// x is f32, or f16 if an f32 row would not fit the L1 cache.
KEEL_SIMD F load_x(const float *x) {
    return load(x);
}
KEEL_SIMD float one_x(const float *x) {
    return *x;
}
#if !defined(KEEL_CPU_SCALAR_KERNELS)
KEEL_SIMD F load_x(const uint16_t *x) {
    return load_f16(x);
}
KEEL_SIMD float one_x(const uint16_t *x) {
    return f16_to_f32(*x);
}
#endif

template <WeightType T, int M, class X>
KEEL_SIMD void dot_row(const MatmulTask &t, const uint8_t *w, const X *const *x, int64_t k,
                       float *y) {
    constexpr int64_t size = element_bytes<T>;
    // Several independent sums hide the latency of multiply-adds. Each iteration reads one cache
    // line, because the hardware prefetcher follows a single stream better than several lines at
    // once.
    constexpr int line = static_cast<int>(64 / (W * size));
    constexpr int chains = M > 4 ? 1 : W == 1 ? 4 : M == 1 && line > 2 ? line : 2;
    constexpr int64_t step = chains * W;
    F sum[M][chains];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        KEEL_UNROLL
    for (int c = 0; c < chains; ++c)
        sum[m][c] = zero();
    int64_t i = 0;
    for (; i + step <= k; i += step) {
        const uint8_t *p = w + i * size;
        prefetch_ahead(t, p, step * size);
        KEEL_UNROLL
        for (int c = 0; c < chains; ++c) {
            const F v = load_weights<T>(p + c * W * size);
            KEEL_UNROLL
            for (int m = 0; m < M; ++m)
                sum[m][c] = fma(v, load_x(x[m] + i + c * W), sum[m][c]);
        }
    }
    for (; i + W <= k; i += W) {
        const F v = load_weights<T>(w + i * size);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            sum[m][0] = fma(v, load_x(x[m] + i), sum[m][0]);
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        KEEL_UNROLL
        for (int c = 1; c < chains; ++c)
            sum[m][0] = add(sum[m][0], sum[m][c]);
        y[m] = reduce_add(sum[m][0]);
    }
    for (; i < k; ++i)
        KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        y[m] += one_weight<T>(w + i * size) * one_x(x[m] + i);
}

#if !defined(KEEL_CPU_SCALAR_KERNELS)
// Returns the number of rows of W that are multiplied together with M rows of x, so that x is read
// fewer times. The registers have room for the sums of this many rows. The number is 1 for up to
// two rows of x, because two rows fit the L1 cache. All numbers divide dot_unit. So only the last
// rows of the matrix can be left over and summed in another order. This does not depend on the
// number of threads. On ARM64 the numbers were not measured.
template <int M>
#if defined(KEEL_ARM_LEVEL)
constexpr int rows_together = 1;
#else
constexpr int rows_together = W == 16 && M == 3           ? 4
                              : W == 16 && M > 3          ? 3
                              : W == 8 && M > 2 && M <= 4 ? 2
                                                          : 1;
#endif
template <int M>
constexpr bool rows_divide_unit = dot_unit % rows_together<M> == 0;
static_assert(rows_divide_unit<3> && rows_divide_unit<4> && rows_divide_unit<8>);

// Computes y[M][N], the products of M rows of x with N rows of W. With 512-bit vectors and up to
// four rows of x, the order of summation is the same as in dot_row. So the result for a row of x is
// bitwise the same as for this row alone.
template <WeightType T, int M, int N, class X>
KEEL_SIMD void dot_block(const MatmulTask &t, const uint8_t *const *w, const X *const *x, int64_t k,
                         float (*y)[N]) {
    constexpr int64_t size = element_bytes<T>;
    constexpr int chains = W == 16 && M <= 4 ? 2 : 1;
    F sum[chains][M][N];
    KEEL_UNROLL
    for (int c = 0; c < chains; ++c)
        KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        KEEL_UNROLL
    for (int n = 0; n < N; ++n)
        sum[c][m][n] = zero();
    const auto add_products = [&](F(*sums)[N], int64_t i) __attribute__((always_inline)) {
        F v[N];
        KEEL_UNROLL
        for (int n = 0; n < N; ++n)
            v[n] = load_weights<T>(w[n] + i * size);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            const F a = load_x(x[m] + i);
            KEEL_UNROLL
            for (int n = 0; n < N; ++n)
                sums[m][n] = fma(v[n], a, sums[m][n]);
        }
    };
    int64_t i = 0;
    for (; i + chains * W <= k; i += chains * W) {
        if (t.prefetch_rows && i * size % 64 == 0) {
            const int64_t ahead = ahead_in_rows<N>(i * size, k * size);
            KEEL_UNROLL
            for (int n = 0; n < N; ++n)
                for (int64_t line = 0; line < chains * W * size; line += 64)
                    prefetch(w[n] + ahead + line);
        }
        KEEL_UNROLL
        for (int c = 0; c < chains; ++c)
            add_products(sum[c], i + c * W);
    }
    for (; i + W <= k; i += W)
        add_products(sum[0], i);
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        KEEL_UNROLL
    for (int n = 0; n < N; ++n)
        y[m][n] = reduce_add(chains == 2 ? add(sum[0][m][n], sum[chains - 1][m][n]) : sum[0][m][n]);
    for (; i < k; ++i)
        for (int m = 0; m < M; ++m)
            for (int n = 0; n < N; ++n)
                y[m][n] += one_weight<T>(w[n] + i * size) * one_x(x[m] + i);
}
#endif

template <class X>
KEEL_SIMD const X *row_of_x(const MatmulTask &t, int64_t m) {
    if constexpr (sizeof(X) == 2)
        return t.half.data + m * t.half.stride;
    else
        return x_at(t, m);
}

// Multiplies rows n0..n1-1 of W with rows m0..m0+M-1 of x.
template <WeightType T, int M, class X>
static void dot_rows(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0) {
    const X *x[M];
    float *out[M], scale[M];
    for (int m = 0; m < M; ++m) {
        x[m] = row_of_x<X>(t, m0 + m);
        out[m] = out_at(t, m0 + m, 0);
        scale[m] = sizeof(X) == 2 ? t.half.scale[m0 + m] : 1.0f;
    }
    // Stores y[0..count), the results for rows n .. n + count - 1 of W.
    const auto finish = [&](int m, int64_t n, float *y, int64_t count) {
        if constexpr (sizeof(X) == 2)
            for (int64_t i = 0; i < count; ++i)
                y[i] *= scale[m];
        finish_group(y, t.bias != nullptr ? t.bias + n : nullptr, t.accumulate, out[m] + n, count);
    };
    int64_t n = n0;
#if !defined(KEEL_CPU_SCALAR_KERNELS)
    if constexpr (constexpr int N = rows_together<M>; N > 1)
        for (; n + N <= n1; n += N) {
            const uint8_t *w[N];
            float y[M][N];
            for (int i = 0; i < N; ++i)
                w[i] = row_of(t.w, n + i);
            dot_block<T, M, N>(t, w, x, t.w.cols, y);
            for (int m = 0; m < M; ++m)
                finish(m, n, y[m], N);
        }
#endif
    // If the rows of W alternate between two sources (gate and up), one source is processed after
    // the other. If both were processed together, each row would be a separate stream. This would
    // cost 16-bit weights up to half of the memory's speed.
    const int64_t sources = t.w.alternate != 0 ? t.w.n_sources : 1;
    for (int64_t source = 0; source < sources; ++source)
        for (int64_t i = n + source; i < n1; i += sources) {
            float y[M];
            dot_row<T, M>(t, row_of(t.w, i), x, t.w.cols, y);
            for (int m = 0; m < M; ++m)
                finish(m, i, &y[m], 1);
        }
}

// Handles the last rows of x, at most M.
template <WeightType T, int M, class X>
static void dot_rest(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m, int64_t rows) {
    if constexpr (M > 0) {
        if (rows == M)
            dot_rows<T, M, X>(t, n0, n1, m);
        else
            dot_rest<T, M - 1, X>(t, n0, n1, m, rows);
    }
}

template <WeightType T, int most, class X>
static void dot_all(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0, int64_t m1) {
    int64_t m = m0;
    for (; m + most <= m1; m += most)
        dot_rows<T, most, X>(t, n0, n1, m);
    dot_rest<T, most - 1, X>(t, n0, n1, m, m1 - m);
}

static void matmul_float_f32_few(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0,
                                 int64_t m1) {
    if (t.w.type == WeightType::f32)
        dot_all<WeightType::f32, 8, float>(t, n0, n1, m0, m1);
    else if (t.w.type == WeightType::f16)
        dot_all<WeightType::f16, 8, float>(t, n0, n1, m0, m1);
    else
        dot_all<WeightType::bf16, 8, float>(t, n0, n1, m0, m1);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

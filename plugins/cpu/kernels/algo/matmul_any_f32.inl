// The f32 matrix product for many rows of x. A panel of W is unpacked once and multiplied with all
// rows of x. The sums of one tile of `out` stay in registers. Columns are processed in ranges. So
// the panel stays in the L1 cache, and the range of x stays in the L2 cache.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

// tile_rows times panel_vectors sums fill the registers.
constexpr int tile_rows = W == 1 ? 2 : W == 8 ? 6 : 12;
constexpr int64_t panel_k = 256;

// Returns the start value of the sums. `first` is true for the first range of columns.
KEEL_SIMD float start_value(const MatmulTask &t, const float *out, int64_t n, bool first) {
    if (!first) return *out;
    return (t.accumulate ? *out : 0.0f) + (t.bias != nullptr ? t.bias[n] : 0.0f);
}

template <int M>
static void tile(const MatmulTask &t, int64_t n0, int64_t count, int64_t m0, int64_t k0, int64_t k,
                 const float *panel) {
    const float *x[M];
    float *out[M];
    F sum[M][panel_vectors];
    const bool whole = count == panel_rows, plain = k0 == 0 && !t.accumulate && t.bias == nullptr;
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        x[m] = x_at(t, m0 + m) + k0;
        out[m] = out_at(t, m0 + m, n0);
        KEEL_UNROLL
        for (int v = 0; v < panel_vectors; ++v)
            sum[m][v] = zero();
    }
    for (int64_t i = 0; i < k; ++i) {
        F w[panel_vectors];
        KEEL_UNROLL
        for (int v = 0; v < panel_vectors; ++v)
            w[v] = load(panel + i * panel_rows + v * W);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            const F a = set1(x[m][i]);
            KEEL_UNROLL
            for (int v = 0; v < panel_vectors; ++v)
                sum[m][v] = fma(a, w[v], sum[m][v]);
        }
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        if (whole && (plain || k0 != 0)) {
            KEEL_UNROLL
            for (int v = 0; v < panel_vectors; ++v) {
                const F y = plain ? sum[m][v] : add(sum[m][v], load(out[m] + v * W));
                store(out[m] + v * W, y);
            }
            continue;
        }
        float values[panel_rows];
        KEEL_UNROLL
        for (int v = 0; v < panel_vectors; ++v)
            store(values + v * W, sum[m][v]);
        for (int64_t n = 0; n < count; ++n)
            out[m][n] = values[n] + start_value(t, out[m] + n, n0 + n, k0 == 0);
    }
}

// Handles the last rows of x. Their number is smaller than tile_rows.
template <int M>
static void tile_rest(const MatmulTask &t, int64_t rest, int64_t n0, int64_t count, int64_t m0,
                      int64_t k0, int64_t k, const float *panel) {
    if constexpr (M > 0) {
        if (rest == M)
            tile<M>(t, n0, count, m0, k0, k, panel);
        else
            tile_rest<M - 1>(t, rest, n0, count, m0, k0, k, panel);
    }
}

static void matmul_any_f32(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0, int64_t m1,
                           float *panel) {
    int64_t k0 = 0;
    do { // runs once even if there are no columns, because bias and zeros must be written
        const int64_t k = t.w.cols - k0 < panel_k ? t.w.cols - k0 : panel_k;
        for (int64_t n = n0; n < n1; n += panel_rows) {
            const int64_t count = n1 - n < panel_rows ? n1 - n : panel_rows;
            unpack_panel(t.w, n, count, k0, k, panel);
            int64_t m = m0;
            for (; m + tile_rows <= m1; m += tile_rows)
                tile<tile_rows>(t, n, count, m, k0, k, panel);
            tile_rest<tile_rows - 1>(t, m1 - m, n, count, m, k0, k, panel);
        }
        k0 += k;
    } while (k0 < t.w.cols);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

// Products of 16-bit weights with activations that are rounded to 16 bits. The sums are f32. For
// few rows of x, f16 is multiplied with f16 (fp16) and bf16 with bf16 (i8mm). Each row of W is then
// read once, directly from the file's mapping. For many rows of x, the kernels multiply tiles of
// bf16 matrices (i8mm), and f16 weights are rounded to bf16.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Returns the bit of a type in MatmulKernels::half_few_types and half_many_types.
constexpr uint32_t type_bit(WeightType t) {
    return 1u << static_cast<uint32_t>(t);
}

#if KEEL_ARM_LEVEL < KEEL_ARM_FP16

constexpr uint32_t half_few_types = 0, half_many_types = 0;
constexpr int64_t half_few_cols = 0;
constexpr auto round_half = nullptr;
constexpr auto matmul_half_half_few = nullptr;
constexpr auto matmul_half_half_many = nullptr;

#else

// 0, so these kernels are used for rows of any length. One instruction computes twice as many
// products as in f32, so they are always faster.
constexpr int64_t half_few_cols = 0;
constexpr uint32_t half_few_types =
    type_bit(WeightType::f16) | (KEEL_ARM_LEVEL >= KEEL_ARM_I8MM ? type_bit(WeightType::bf16) : 0);

static void round_half(WeightType type, const float *x, int64_t n, int64_t padded, uint16_t *out,
                       float *scale) {
    if (type == WeightType::f16) return round_f16(x, n, padded, out, scale);
    *scale = 1.0f;
    int64_t i = 0;
    for (; i + W <= n; i += W)
        store_bf16(out + i, load(x + i));
    for (; i < n; ++i)
        out[i] = f32_to_bf16(x[i]);
    for (; i < padded; ++i)
        out[i] = 0;
}

// Adds eight products to a vector of four sums.
template <WeightType T>
KEEL_SIMD float32x4_t add_half(float32x4_t sum, uint16x8_t w, uint16x8_t x) {
#if KEEL_ARM_LEVEL >= KEEL_ARM_I8MM
    if constexpr (T == WeightType::bf16)
        return vbfdotq_f32(sum, vreinterpretq_bf16_u16(w), vreinterpretq_bf16_u16(x));
#endif
    const float16x8_t a = vreinterpretq_f16_u16(w), b = vreinterpretq_f16_u16(x);
    return vfmlalq_high_f16(vfmlalq_low_f16(sum, a, b), a, b);
}

// Loads the last n < 8 weights of a row, followed by zeros.
KEEL_SIMD uint16x8_t load_rest(const uint8_t *p, int64_t n) {
    uint16_t x[8] = {};
    memcpy(x, p, static_cast<size_t>(n) * 2);
    return vld1q_u16(x);
}

template <WeightType T, int M>
static void half_row(const MatmulTask &t, const uint8_t *w, const uint16_t *const *x, int64_t k,
                     float *y) {
    constexpr int chains = M == 1 ? 4 : 2;
    float32x4_t sum[M][chains];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        KEEL_UNROLL
    for (int c = 0; c < chains; ++c)
        sum[m][c] = vdupq_n_f32(0);
    int64_t i = 0;
    for (; i + 8 * chains <= k; i += 8 * chains) {
        if (2 * i % 64 == 0) prefetch_ahead(t, w + 2 * i, 64);
        KEEL_UNROLL
        for (int c = 0; c < chains; ++c) {
            const uint16x8_t v = vld1q_u16(reinterpret_cast<const uint16_t *>(w + 2 * i) + 8 * c);
            KEEL_UNROLL
            for (int m = 0; m < M; ++m)
                sum[m][c] = add_half<T>(sum[m][c], v, vld1q_u16(x[m] + i + 8 * c));
        }
    }
    for (; i < k; i += 8) {
        const uint16x8_t v = k - i >= 8 ? vld1q_u16(reinterpret_cast<const uint16_t *>(w + 2 * i))
                                        : load_rest(w + 2 * i, k - i);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            sum[m][0] = add_half<T>(sum[m][0], v, vld1q_u16(x[m] + i));
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        KEEL_UNROLL
        for (int c = 1; c < chains; ++c)
            sum[m][0] = vaddq_f32(sum[m][0], sum[m][c]);
        y[m] = vaddvq_f32(sum[m][0]);
    }
}

template <WeightType T, int M>
static void half_rows(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0) {
    const uint16_t *x[M];
    for (int m = 0; m < M; ++m)
        x[m] = t.half.data + (m0 + m) * t.half.stride;
    // If the rows of W alternate between sources, one source is processed after the other, as in
    // dot_rows. So each source is read as one stream.
    const int64_t sources = t.w.alternate != 0 ? t.w.n_sources : 1;
    for (int64_t source = 0; source < sources; ++source)
        for (int64_t n = n0 + source; n < n1; n += sources) {
            float y[M];
            half_row<T, M>(t, row_of(t.w, n), x, t.w.cols, y);
            for (int m = 0; m < M; ++m) {
                y[m] *= t.half.scale[m0 + m];
                finish_group(&y[m], t.bias != nullptr ? t.bias + n : nullptr, t.accumulate,
                             out_at(t, m0 + m, n), 1);
            }
        }
}

template <WeightType T>
static void half_all(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0, int64_t m1) {
    int64_t m = m0;
    for (; m + 4 <= m1; m += 4)
        half_rows<T, 4>(t, n0, n1, m);
    if (m1 - m == 3) half_rows<T, 3>(t, n0, n1, m);
    if (m1 - m == 2) half_rows<T, 2>(t, n0, n1, m);
    if (m1 - m == 1) half_rows<T, 1>(t, n0, n1, m);
}

static void matmul_half_half_few(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0,
                                 int64_t m1) {
#if KEEL_ARM_LEVEL >= KEEL_ARM_I8MM
    if (t.w.type == WeightType::bf16) return half_all<WeightType::bf16>(t, n0, n1, m0, m1);
#endif
    half_all<WeightType::f16>(t, n0, n1, m0, m1);
}

#if KEEL_ARM_LEVEL < KEEL_ARM_I8MM

constexpr uint32_t half_many_types = 0;
constexpr auto matmul_half_half_many = nullptr;

#else

constexpr uint32_t half_many_types = type_bit(WeightType::f16) | type_bit(WeightType::bf16);
// columns packed at a time; eight rows of W with this many columns stay in the L1 cache
constexpr int64_t half_k = 512;

// Loads eight weights of a row as bf16. If fewer weights are left at the end of the row, zeros
// follow them.
template <WeightType T>
KEEL_SIMD uint16x8_t eight_bf16(const uint8_t *p, int64_t n) {
    const uint16x8_t v =
        n >= 8 ? vld1q_u16(reinterpret_cast<const uint16_t *>(p)) : load_rest(p, n);
    if constexpr (T == WeightType::bf16) return v;
    const float16x8_t h = vreinterpretq_f16_u16(v);
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(
        vcvtq_low_bf16_f32(vcvt_f32_f16(vget_low_f16(h))), vcvt_high_f32_f16(h)));
}

// Joins four columns of two rows: the first four of eight columns (low), or the last four (high).
KEEL_SIMD uint16x8_t join_low(uint16x8_t a, uint16x8_t b) {
    return vreinterpretq_u16_u64(vzip1q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}
KEEL_SIMD uint16x8_t join_high(uint16x8_t a, uint16x8_t b) {
    return vreinterpretq_u16_u64(vzip2q_u64(vreinterpretq_u64_u16(a), vreinterpretq_u64_u16(b)));
}

// Packs columns k0 .. k0 + k - 1 of rows n .. n + 7 of W. For every eight columns, `packed` gets 64
// numbers: first columns 0 to 3 of each pair of rows, then columns 4 to 7 of each pair. Within a
// pair, the four numbers of the first row come before those of the second row. If count < 8, the
// missing rows repeat row n.
template <WeightType T>
static void pack_bf16(const WeightView &w, int64_t n, int64_t count, int64_t k0, int64_t k,
                      uint16_t *packed) {
    const uint8_t *row[8];
    for (int64_t r = 0; r < 8; ++r)
        row[r] = row_of(w, n + (r < count ? r : 0)) + 2 * k0;
    for (int64_t i = 0; i < k; i += 8, packed += 64)
        for (int p = 0; p < 4; ++p) {
            const uint16x8_t a = eight_bf16<T>(row[2 * p] + 2 * i, k - i),
                             b = eight_bf16<T>(row[2 * p + 1] + 2 * i, k - i);
            vst1q_u16(packed + 8 * p, join_low(a, b));
            vst1q_u16(packed + 32 + 8 * p, join_high(a, b));
        }
}

template <int P>
KEEL_SIMD void add_tile(const uint16x8_t *x, const uint16_t *w, float32x4_t (*sum)[4]) {
    KEEL_UNROLL
    for (int r = 0; r < 4; ++r) {
        const bfloat16x8_t b = vreinterpretq_bf16_u16(vld1q_u16(w + 8 * r));
        KEEL_UNROLL
        for (int p = 0; p < P; ++p)
            sum[p][r] = vbfmmlaq_f32(sum[p][r], vreinterpretq_bf16_u16(x[p]), b);
    }
}

// Multiplies up to 2 P rows of x, beginning at row m0, with eight rows of W. `rows` is the number
// of these rows of x that exist.
template <int P>
static void half_tile(const MatmulTask &t, int64_t n, int64_t count, int64_t m0, int64_t rows,
                      int64_t k0, int64_t k, const uint16_t *packed) {
    const uint16_t *x[2 * P];
    float32x4_t sum[P][4];
    for (int64_t m = 0; m < 2 * P; ++m)
        x[m] = t.half.data + (m0 + (m < rows ? m : rows - 1)) * t.half.stride + k0;
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        KEEL_UNROLL
    for (int r = 0; r < 4; ++r)
        sum[p][r] = vdupq_n_f32(0);
    for (int64_t i = 0; i < k; i += 8, packed += 64) {
        uint16x8_t low[P], high[P];
        KEEL_UNROLL
        for (int p = 0; p < P; ++p) {
            const uint16x8_t a = vld1q_u16(x[2 * p] + i), b = vld1q_u16(x[2 * p + 1] + i);
            low[p] = join_low(a, b), high[p] = join_high(a, b);
        }
        add_tile<P>(low, packed, sum);
        add_tile<P>(high, packed + 32, sum);
    }
    for (int64_t m = 0; m < rows; ++m) {
        const float32x4_t *s = sum[m / 2];
        float values[8];
        KEEL_UNROLL
        for (int r = 0; r < 4; ++r)
            vst1_f32(values + 2 * r, m % 2 == 0 ? vget_low_f32(s[r]) : vget_high_f32(s[r]));
        finish_group(values, k0 == 0 && t.bias != nullptr ? t.bias + n : nullptr,
                     t.accumulate || k0 != 0, out_at(t, m0 + m, n), count);
    }
}

static void matmul_half_half_many(const MatmulTask &t, int64_t n0, int64_t n1, int64_t m0,
                                  int64_t m1) {
    alignas(64) uint16_t packed[8 * half_k];
    int64_t k0 = 0;
    do { // runs once even if there are no columns, because bias and zeros must be written
        const int64_t k = t.w.cols - k0 < half_k ? t.w.cols - k0 : half_k;
        for (int64_t n = n0; n < n1; n += 8) {
            const int64_t count = n1 - n < 8 ? n1 - n : 8;
            if (t.w.type == WeightType::bf16)
                pack_bf16<WeightType::bf16>(t.w, n, count, k0, k, packed);
            else
                pack_bf16<WeightType::f16>(t.w, n, count, k0, k, packed);
            int64_t m = m0;
            for (; m + 7 <= m1; m += 8)
                half_tile<4>(t, n, count, m, m1 - m < 8 ? m1 - m : 8, k0, k, packed);
            if (m1 - m > 4)
                half_tile<3>(t, n, count, m, m1 - m, k0, k, packed);
            else if (m1 - m > 2)
                half_tile<2>(t, n, count, m, m1 - m, k0, k, packed);
            else if (m1 > m)
                half_tile<1>(t, n, count, m, m1 - m, k0, k, packed);
        }
        k0 += k;
    } while (k0 < t.w.cols);
}

#endif
#endif

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

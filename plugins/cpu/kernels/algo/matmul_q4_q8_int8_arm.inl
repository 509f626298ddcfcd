// Sums of a block of interleaved weights on ARM64, for matmul_q4_q8_int8.inl. A register holds four
// bytes of each of four rows of W. With the dotprod instructions, each lane of a sum is a row of W,
// and the four activations are one lane of the other operand. The matrix instructions of i8mm take
// eight bytes of two rows. Zip instructions make these operands from two pieces of the layout
// above.
namespace keel_cpu::KEEL_ISA_NAMESPACE {

// Piece P of a block: 4 columns of rows 0..3 (a) and of rows 4..7 (b).
struct Piece {
    int8x16_t a, b;
};
KEEL_SIMD Piece piece_at(const uint8_t *bytes, int p) {
    return {vld1q_s8(reinterpret_cast<const int8_t *>(bytes) + 32 * p),
            vld1q_s8(reinterpret_cast<const int8_t *>(bytes) + 32 * p + 16)};
}
KEEL_SIMD int8x16_t low_half(int8x16_t x) { // returns the low nibbles, 0..15
    return vandq_s8(x, vdupq_n_s8(15));
}
KEEL_SIMD int8x16_t high_half(int8x16_t x) {
    return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(x), 4));
}

#if KEEL_ARM_LEVEL >= KEEL_ARM_DOTPROD

template <int P, int M>
KEEL_SIMD void add_piece(int8x16_t a, int8x16_t b, const int8x16_t *x, I *dot) {
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m] = {vdotq_laneq_s32(dot[m].a, a, x[m], P), vdotq_laneq_s32(dot[m].b, b, x[m], P)};
}

template <int P, int M>
KEEL_SIMD void add_nibbles(const uint8_t *bytes, const int8x16_t *low, const int8x16_t *high,
                           I *dot) {
    const Piece w = piece_at(bytes, P);
    add_piece<P, M>(low_half(w.a), low_half(w.b), low, dot);
    add_piece<P, M>(high_half(w.a), high_half(w.b), high, dot);
}

template <int M>
KEEL_SIMD void block_q4(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    int8x16_t low[M], high[M];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        low[m] = vld1q_s8(q[m]->q), high[m] = vld1q_s8(q[m]->q + 16);
        dot[m].a = dot[m].b = vdupq_n_s32(-q[m]->shift);
    }
    add_nibbles<0, M>(bytes, low, high, dot);
    add_nibbles<1, M>(bytes, low, high, dot);
    add_nibbles<2, M>(bytes, low, high, dot);
    add_nibbles<3, M>(bytes, low, high, dot);
}

template <int P, int M>
KEEL_SIMD void add_bytes(const uint8_t *bytes, const int8x16_t *x, I *dot) {
    const Piece w = piece_at(bytes, P);
    add_piece<P, M>(w.a, w.b, x, dot);
}

template <int M>
KEEL_SIMD void block_q8(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m].a = dot[m].b = vdupq_n_s32(0);
    KEEL_UNROLL
    for (int half = 0; half < 2; ++half) {
        int8x16_t x[M];
        KEEL_UNROLL
        for (int m = 0; m < M; ++m)
            x[m] = vld1q_s8(q[m]->q + 16 * half);
        add_bytes<0, M>(bytes + 128 * half, x, dot);
        add_bytes<1, M>(bytes + 128 * half, x, dot);
        add_bytes<2, M>(bytes + 128 * half, x, dot);
        add_bytes<3, M>(bytes + 128 * half, x, dot);
    }
}

#else

// Without dotprod, products have 16 bits. Sum i holds pairs of products for rows 2 i and 2 i + 1;
// each pair is added at the end.
KEEL_SIMD int8x16_t spread4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

KEEL_SIMD void add_products(int8x16_t a, int8x16_t b, int8x16_t x, int16x8_t *sum) {
    sum[0] = vmlal_s8(sum[0], vget_low_s8(a), vget_low_s8(x));
    sum[1] = vmlal_high_s8(sum[1], a, x);
    sum[2] = vmlal_s8(sum[2], vget_low_s8(b), vget_low_s8(x));
    sum[3] = vmlal_high_s8(sum[3], b, x);
}

// Multiplies 32 columns of q4_0. The sums fit 16 bits: 8 * (15 * 127) < 2^15.
template <int M>
KEEL_SIMD void block_q4(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    int16x8_t sum[M][4];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        KEEL_UNROLL
    for (int i = 0; i < 4; ++i)
        sum[m][i] = vdupq_n_s16(0);
    KEEL_UNROLL
    for (int p = 0; p < 4; ++p) {
        const Piece w = piece_at(bytes, p);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            add_products(low_half(w.a), low_half(w.b), spread4(q[m]->q + 4 * p), sum[m]);
            add_products(high_half(w.a), high_half(w.b), spread4(q[m]->q + 16 + 4 * p), sum[m]);
        }
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m) {
        const int32x4_t shift = vdupq_n_s32(q[m]->shift);
        dot[m].a = vsubq_s32(vpaddq_s32(vpaddlq_s16(sum[m][0]), vpaddlq_s16(sum[m][1])), shift);
        dot[m].b = vsubq_s32(vpaddq_s32(vpaddlq_s16(sum[m][2]), vpaddlq_s16(sum[m][3])), shift);
    }
}

// Multiplies 32 columns of q8_0. The sum of two products fits 16 bits: 2 * (128 * 127) < 2^15.
template <int M>
KEEL_SIMD void block_q8(const uint8_t *bytes, const ActBlock *const *q, I *dot) {
    int32x4_t sum[M][4];
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        KEEL_UNROLL
    for (int i = 0; i < 4; ++i)
        sum[m][i] = vdupq_n_s32(0);
    for (int p = 0; p < 8; p += 2) {
        const Piece first = piece_at(bytes, p), second = piece_at(bytes, p + 1);
        KEEL_UNROLL
        for (int m = 0; m < M; ++m) {
            const int8x16_t x = spread4(q[m]->q + 4 * p);
            int16x8_t two[4] = {
                vmull_s8(vget_low_s8(first.a), vget_low_s8(x)), vmull_high_s8(first.a, x),
                vmull_s8(vget_low_s8(first.b), vget_low_s8(x)), vmull_high_s8(first.b, x)};
            add_products(second.a, second.b, spread4(q[m]->q + 4 * p + 4), two);
            KEEL_UNROLL
            for (int i = 0; i < 4; ++i)
                sum[m][i] = vpadalq_s16(sum[m][i], two[i]);
        }
    }
    KEEL_UNROLL
    for (int m = 0; m < M; ++m)
        dot[m] = {vpaddq_s32(sum[m][0], sum[m][1]), vpaddq_s32(sum[m][2], sum[m][3])};
}

#endif

#if KEEL_ARM_LEVEL >= KEEL_ARM_I8MM
#define KEEL_INT8_PAIRS

// Eight columns of the row pairs 0 1, 2 3, 4 5 and 6 7 of W.
struct RowPairs {
    int8x16_t pair[4];
};
KEEL_SIMD RowPairs zip(Piece first, Piece second) {
    const int32x4_t a = vreinterpretq_s32_s8(first.a), a2 = vreinterpretq_s32_s8(second.a);
    const int32x4_t b = vreinterpretq_s32_s8(first.b), b2 = vreinterpretq_s32_s8(second.b);
    return {{vreinterpretq_s8_s32(vzip1q_s32(a, a2)), vreinterpretq_s8_s32(vzip2q_s32(a, a2)),
             vreinterpretq_s8_s32(vzip1q_s32(b, b2)), vreinterpretq_s8_s32(vzip2q_s32(b, b2))}};
}

// Adds the products of P pairs of rows of x with four pairs of rows of W to `dot`. The lanes of a
// sum are, for rows n and n + 1 of W and rows m and m + 1 of x: (n, m), (n, m + 1), (n + 1, m), (n
// + 1, m + 1).
template <int P>
KEEL_SIMD void add_pairs(const RowPairs &w, const int8x16_t *x, int32x4_t (*dot)[4]) {
    KEEL_UNROLL
    for (int r = 0; r < 4; ++r)
        KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        dot[p][r] = vmmlaq_s32(dot[p][r], w.pair[r], x[p]);
}

// Loads columns c .. c + 7 of two rows of x.
KEEL_SIMD int8x16_t two_rows(const ActBlock *first, const ActBlock *second, int c) {
    return vcombine_s8(vld1_s8(first->q + c), vld1_s8(second->q + c));
}

template <int P, bool Q4>
KEEL_SIMD void block_pairs(const uint8_t *bytes, const ActBlock *const *q, int32x4_t (*dot)[4]) {
    KEEL_UNROLL
    for (int p = 0; p < P; ++p) {
        const int32_t s[4] = {-q[2 * p]->shift, -q[2 * p + 1]->shift, -q[2 * p]->shift,
                              -q[2 * p + 1]->shift};
        KEEL_UNROLL
        for (int r = 0; r < 4; ++r)
            dot[p][r] = Q4 ? vld1q_s32(s) : vdupq_n_s32(0);
    }
    KEEL_UNROLL
    for (int i = 0; i < (Q4 ? 2 : 4); ++i) {
        const RowPairs w = zip(piece_at(bytes, 2 * i), piece_at(bytes, 2 * i + 1));
        int8x16_t x[P];
        KEEL_UNROLL
        for (int p = 0; p < P; ++p)
            x[p] = two_rows(q[2 * p], q[2 * p + 1], 8 * i);
        if constexpr (Q4) {
            RowPairs low, high;
            KEEL_UNROLL
            for (int r = 0; r < 4; ++r)
                low.pair[r] = low_half(w.pair[r]), high.pair[r] = high_half(w.pair[r]);
            add_pairs<P>(low, x, dot);
            KEEL_UNROLL
            for (int p = 0; p < P; ++p)
                x[p] = two_rows(q[2 * p], q[2 * p + 1], 16 + 8 * i);
            add_pairs<P>(high, x, dot);
        } else {
            add_pairs<P>(w, x, dot);
        }
    }
}

// Writes the finished sums of a group to the outputs of row m of x. `row` is the first row of W of
// the group. If `second` is true, also writes the sums of row m + 1.
KEEL_SIMD void finish_pair(const MatmulTask &t, int64_t row, int64_t m, bool second,
                           const float32x4_t *s) {
    const int64_t count = t.w.rows - row < R ? t.w.rows - row : R;
    const float *bias = t.bias != nullptr ? t.bias + row : nullptr;
    const F of_rows[2] = {{vuzp1q_f32(s[0], s[1]), vuzp1q_f32(s[2], s[3])},
                          {vuzp2q_f32(s[0], s[1]), vuzp2q_f32(s[2], s[3])}};
    KEEL_UNROLL
    for (int i = 0; i < 2; ++i) {
        if (i == 1 && !second) return;
        float values[R];
        store(values, of_rows[i]);
        finish_group(values, bias, t.accumulate, out_at(t, m + i, row), count);
    }
}

// Like q4_q8_group, for two to four rows of x, which are handled in pairs. The last of three rows
// forms a pair with itself.
template <int M, bool Q4>
static void q4_q8_pairs(const MatmulTask &t, int64_t g, int64_t m0) {
    constexpr int P = (M + 1) / 2;
    constexpr int64_t block_bytes = 2 * R + (Q4 ? 16 : 32) * R;
    const int64_t blocks = t.w.cols / 32, row = g * R;
    const uint8_t *w = t.w.packed + g * t.w.group_bytes;
    const ActBlock *q[2 * P];
    float32x4_t sums[P][4];
    KEEL_UNROLL
    for (int m = 0; m < 2 * P; ++m)
        q[m] = t.q + (m0 + (m < M ? m : M - 1)) * blocks;
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        KEEL_UNROLL
    for (int r = 0; r < 4; ++r)
        sums[p][r] = vdupq_n_f32(0);
    for (int64_t b = 0; b < blocks; ++b, w += block_bytes) {
        prefetch_ahead(t, w, block_bytes);
        int32x4_t dot[P][4];
        block_pairs<P, Q4>(w + 2 * R, q, dot);
        const F scales = load_f16(reinterpret_cast<const uint16_t *>(w));
        const float32x4_t of_rows[4] = {
            vzip1q_f32(scales.a, scales.a), vzip2q_f32(scales.a, scales.a),
            vzip1q_f32(scales.b, scales.b), vzip2q_f32(scales.b, scales.b)};
        KEEL_UNROLL
        for (int p = 0; p < P; ++p) {
            const float32x2_t two = vld1_lane_f32(&q[2 * p + 1]->d, vld1_dup_f32(&q[2 * p]->d), 1);
            const float32x4_t of_x = vcombine_f32(two, two);
            KEEL_UNROLL
            for (int r = 0; r < 4; ++r)
                sums[p][r] =
                    vfmaq_f32(sums[p][r], vmulq_f32(of_rows[r], of_x), vcvtq_f32_s32(dot[p][r]));
        }
        KEEL_UNROLL
        for (int m = 0; m < 2 * P; ++m)
            ++q[m];
    }
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        finish_pair(t, row, m0 + 2 * p, 2 * p + 1 < M, sums[p]);
}

#endif

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

// Products of interleaved q4_k, q5_k and q6_k weights with several rows of x on ARM64, with the
// matrix instructions of i8mm. The codes are extracted from their words and zipped into pairs of
// rows once for all rows of x. This is done for a few blocks at a time. These blocks stay in the L1
// cache together with their scales. Each sum is computed in the order of k_group, so the result for
// a row of x does not depend on the other rows.
#include <stddef.h>

namespace keel_cpu::KEEL_ISA_NAMESPACE {

constexpr int64_t k_panel_blocks = 4; // number of blocks unpacked at a time, which take 12 KiB
constexpr int64_t k_panel_rows = 64; // most rows of x for which a panel is unpacked once
// Smallest number of rows of x for these kernels. For fewer rows, unpacking takes more instructions
// than it saves.
constexpr int64_t k_panel_from = 4;

// One unpacked block of a group. codes: the registers hold the row pairs 0 1, 2 3, 4 5 and 6 7. The
// factors are KScales::scale. For q4_k and q5_k there are eight factors, followed by
// KScales::least. The factor of each row is stored twice, for two rows of x.
struct KPairs {
    float32x4_t factors[16][4];
    // [chunk][eight columns at a time][...]; for q6_k the codes have their sign
    int8_t codes[8][4][4 * 16];
};

// Puts words p and p2 of a block side by side for each row.
KEEL_SIMD RowPairs zip_words(const uint8_t *words, int p, int p2) {
    return zip(piece_at(words, p), piece_at(words, p2));
}

// Returns columns 8 i .. 8 i + 7 of a chunk, for two rows. `nibbles` are from words 2 i and 2 i +
// 1, side by side. `upper` has the word with the upper bits of these columns twice.
template <WeightType T>
KEEL_SIMD int8x16_t whole_codes(int8x16_t nibbles, int8x16_t upper, int i) {
    if constexpr (T == WeightType::q4_k) return nibbles;
    constexpr int bits = T == WeightType::q5_k ? 1 : 2;
    const int first = T == WeightType::q5_k ? 4 - 2 * i : i % 2 == 0 ? 4 : 0;
    const int32_t by[4] = {first, first - bits, first, first - bits};
    const uint8x16_t moved =
        vreinterpretq_u8_u32(vshlq_u32(vreinterpretq_u32_s8(upper), vld1q_s32(by)));
    const int8x16_t code = vreinterpretq_s8_u8(vbslq_u8(
        vdupq_n_u8(T == WeightType::q5_k ? 0x10 : 0x30), moved, vreinterpretq_u8_s8(nibbles)));
    return T == WeightType::q6_k ? vsubq_s8(code, vdupq_n_s8(32)) : code;
}

template <WeightType T>
static void unpack_k_pairs(const uint8_t *w, KPairs &out) {
    constexpr int64_t upper_bytes = 4 * R * k_form(T).upper_words,
                      pair_bytes = 4 * R * k_form(T).pair_words();
    // Number of steps of eight columns whose upper bits are in one word.
    constexpr int steps = T == WeightType::q6_k ? 2 : 4;
    KScales s;
    read_scales<T>(w, s);
    KEEL_UNROLL
    for (int i = 0; i < 16; ++i) {
        const F x = load(T == WeightType::q6_k || i < 8 ? s.scale[i] : s.least[i - 8]);
        out.factors[i][0] = vzip1q_f32(x.a, x.a), out.factors[i][1] = vzip2q_f32(x.a, x.a);
        out.factors[i][2] = vzip1q_f32(x.b, x.b), out.factors[i][3] = vzip2q_f32(x.b, x.b);
    }
    const uint8_t *pair = w + k_pairs_at<T>;
    for (int c = 0; c < 8; c += 2, pair += pair_bytes) {
        const uint8_t *nibbles = pair + 2 * upper_bytes;
        RowPairs first = {}, second = {};
        KEEL_UNROLL
        for (int i = 0; i < 4; ++i) {
            if (i % steps == 0 && T != WeightType::q4_k)
                first = zip_words(pair, i / steps, i / steps),
                second = zip_words(pair + upper_bytes, i / steps, i / steps);
            const RowPairs both = zip_words(nibbles, 2 * i, 2 * i + 1);
            KEEL_UNROLL
            for (int r = 0; r < 4; ++r)
                vst1q_s8(out.codes[c][i] + 16 * r,
                         whole_codes<T>(low_half(both.pair[r]), first.pair[r], i));
            KEEL_UNROLL
            for (int r = 0; r < 4; ++r)
                vst1q_s8(out.codes[c + 1][i] + 16 * r,
                         whole_codes<T>(high_half(both.pair[r]), second.pair[r], i));
        }
    }
}

// Loads 32 columns of two rows of x, eight columns at a time.
KEEL_SIMD void two_rows32(const ActBlock &first, const ActBlock &second, int8x16_t *x) {
    const int8x16x2_t a = vld1q_s8_x2(first.q), b = vld1q_s8_x2(second.q);
    KEEL_UNROLL
    for (int half = 0; half < 2; ++half) {
        const int64x2_t c = vreinterpretq_s64_s8(a.val[half]),
                        d = vreinterpretq_s64_s8(b.val[half]);
        x[2 * half] = vreinterpretq_s8_s64(vzip1q_s64(c, d));
        x[2 * half + 1] = vreinterpretq_s8_s64(vzip2q_s64(c, d));
    }
}

// The members of two ActBlocks: the same columns of two rows of x.
struct TwoRows {
    float32x4_t d, shift; // lanes: first row, second row, first row, second row
};
KEEL_SIMD TwoRows of_two_rows(const ActBlock &first, const ActBlock &second) {
    constexpr size_t at = offsetof(ActBlock, d);
    static_assert(offsetof(ActBlock, shift) == at + 4);
    const int32x4_t both =
        vreinterpretq_s32_u8(vcombine_u8(vld1_u8(reinterpret_cast<const uint8_t *>(&first) + at),
                                         vld1_u8(reinterpret_cast<const uint8_t *>(&second) + at)));
    return {vreinterpretq_f32_s32(vuzp1q_s32(both, both)), vcvtq_f32_s32(vuzp2q_s32(both, both))};
}

// Multiplies columns 8 Begin .. 8 End - 1 of a chunk with P pairs of rows of x.
template <int P, int Begin, int End>
KEEL_SIMD void k_dots(const int8_t (*codes)[4 * 16], const int8x16_t (*x)[4], int32x4_t (*dot)[4]) {
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        KEEL_UNROLL
    for (int r = 0; r < 4; ++r)
        dot[p][r] = vdupq_n_s32(0);
    KEEL_UNROLL
    for (int i = Begin; i < End; ++i) {
        const int8x16x4_t w = vld1q_s8_x4(codes[i]);
        KEEL_UNROLL
        for (int r = 0; r < 4; ++r)
            KEEL_UNROLL
        for (int p = 0; p < P; ++p)
            dot[p][r] = vmmlaq_s32(dot[p][r], w.val[r], x[p][i]);
    }
}

// Multiplies a chunk of 32 columns of R rows of W with P pairs of rows of x.
template <int P, WeightType T>
KEEL_SIMD void add_k_chunk(const KPairs &w, int chunk, const ActBlock *const *q,
                           float32x4_t (*sums)[4]) {
    int8x16_t x[P][4];
    int32x4_t dot[P][4];
    float32x4_t part[P][4], d[P];
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        two_rows32(q[2 * p][chunk], q[2 * p + 1][chunk], x[p]);
    if constexpr (T == WeightType::q6_k) {
        const float32x4_t *first = w.factors[2 * chunk], *second = w.factors[2 * chunk + 1];
        k_dots<P, 0, 2>(w.codes[chunk], x, dot);
        KEEL_UNROLL
        for (int p = 0; p < P; ++p)
            KEEL_UNROLL
        for (int r = 0; r < 4; ++r)
            part[p][r] = vmulq_f32(first[r], vcvtq_f32_s32(dot[p][r]));
        k_dots<P, 2, 4>(w.codes[chunk], x, dot);
        KEEL_UNROLL
        for (int p = 0; p < P; ++p) {
            d[p] = of_two_rows(q[2 * p][chunk], q[2 * p + 1][chunk]).d;
            KEEL_UNROLL
            for (int r = 0; r < 4; ++r)
                part[p][r] = vfmaq_f32(part[p][r], second[r], vcvtq_f32_s32(dot[p][r]));
        }
    } else {
        const float32x4_t *scale = w.factors[chunk], *least = w.factors[8 + chunk];
        k_dots<P, 0, 4>(w.codes[chunk], x, dot);
        KEEL_UNROLL
        for (int p = 0; p < P; ++p) {
            const TwoRows of_x = of_two_rows(q[2 * p][chunk], q[2 * p + 1][chunk]);
            d[p] = of_x.d;
            KEEL_UNROLL
            for (int r = 0; r < 4; ++r)
                part[p][r] =
                    vfmaq_f32(vmulq_f32(least[r], of_x.shift), scale[r], vcvtq_f32_s32(dot[p][r]));
        }
    }
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        KEEL_UNROLL
    for (int r = 0; r < 4; ++r)
        sums[p][r] = vfmaq_f32(sums[p][r], part[p][r], d[p]);
}

// Multiplies a panel with P pairs of rows of x and adds the products to the sums of these rows.
template <int P, WeightType T>
static void add_k_panel(const KPairs *panel, int64_t blocks, const ActBlock *const *rows,
                        float32x4_t (*sums)[4]) {
    const ActBlock *q[2 * P];
    float32x4_t s[P][4];
    KEEL_UNROLL
    for (int m = 0; m < 2 * P; ++m)
        q[m] = rows[m];
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        KEEL_UNROLL
    for (int r = 0; r < 4; ++r)
        s[p][r] = sums[p][r];
    for (int64_t b = 0; b < blocks; ++b) {
        for (int chunk = 0; chunk < 8; ++chunk)
            add_k_chunk<P, T>(panel[b], chunk, q, s);
        KEEL_UNROLL
        for (int m = 0; m < 2 * P; ++m)
            q[m] += 8;
    }
    KEEL_UNROLL
    for (int p = 0; p < P; ++p)
        KEEL_UNROLL
    for (int r = 0; r < 4; ++r)
        sums[p][r] = s[p][r];
}

// Multiplies group g of W with rows m0..m1-1 of x, at most k_panel_rows. If their number is odd,
// the last row forms a pair with itself. The sums stay in memory while the panels of the group are
// processed.
template <WeightType T>
static void k_panel_group(const MatmulTask &t, int64_t g, int64_t m0, int64_t m1) {
    const int64_t blocks = t.w.cols / k_columns, x_blocks = 8 * blocks, pairs = (m1 - m0 + 1) / 2;
    const uint8_t *w = t.w.packed + g * t.w.group_bytes;
    KPairs panel[k_panel_blocks];
    float32x4_t sums[k_panel_rows / 2][4];
    for (int64_t p = 0; p < pairs; ++p)
        for (int r = 0; r < 4; ++r)
            sums[p][r] = vdupq_n_f32(0);
    for (int64_t b = 0; b < blocks; b += k_panel_blocks) {
        const int64_t count = blocks - b < k_panel_blocks ? blocks - b : k_panel_blocks;
        for (int64_t i = 0; i < count; ++i, w += k_group_bytes<T>) {
            prefetch_ahead(t, w, k_group_bytes<T>);
            unpack_k_pairs<T>(w, panel[i]);
        }
        for (int64_t p = 0; p < pairs; p += 2) {
            const ActBlock *rows[4];
            for (int64_t m = 0; m < 4; ++m) {
                const int64_t row = m0 + 2 * p + m;
                rows[m] = t.q + (row < m1 ? row : m1 - 1) * x_blocks + 8 * b;
            }
            if (p + 1 < pairs)
                add_k_panel<2, T>(panel, count, rows, sums + p);
            else
                add_k_panel<1, T>(panel, count, rows, sums + p);
        }
    }
    for (int64_t p = 0; p < pairs; ++p)
        finish_pair(t, g * R, m0 + 2 * p, m0 + 2 * p + 1 < m1, sums[p]);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

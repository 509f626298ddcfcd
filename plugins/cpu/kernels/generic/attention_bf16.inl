// Packing and softmax of bf16 attention. The including file has bf16_pairs.hpp's primitives, x_rows, and gives multiply().
#include "../attention_bf16.hpp"

#include <math.h>

#include "kv_row_types.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {
namespace {

// Where row r of x begins, `depth` wide; its columns c.. lie c / 32 * x_rows * 32 further.
KEEL_SIMD uint16_t *x_row(uint16_t *x, int64_t r, int64_t depth) {
    return x + r / x_rows * x_rows * depth + r % x_rows * 32;
}

// A row of what will be read next.
KEEL_SIMD void prefetch_row(const Ahead &ahead, int64_t row) {
    for (int64_t b = 0; b < ahead.row_bytes; b += 64)
        prefetch_far(ahead.data + row * ahead.row_bytes + b);
}

// n <= 32 elements, zeros behind.
KEEL_SIMD void store_rest(uint16_t *out, const float *x, int64_t n) {
    float rest[32] = {};
    memcpy(rest, x, static_cast<size_t>(n) * 4);
    store_row(out, load(rest), load(rest + 16));
}

void pack_rows(const float *x, int64_t x_stride, int64_t rows, int64_t n, uint16_t *out) {
    for (int64_t r = 0; r < rows; ++r, x += x_stride) {
        uint16_t *to = x_row(out, r, bf16_padded(n));
        int64_t i = 0;
        for (; i + 32 <= n; i += 32, to += x_rows * 32)
            store_row(to, load(x + i), load(x + i + 16));
        if (i < n) store_rest(to, x + i, n - i);
    }
}

template <class Row>
void load_keys(const void *keys, int64_t k_stride, int64_t n, int64_t dim, uint16_t *out) {
    const uint8_t *k = static_cast<const uint8_t *>(keys);
    const int64_t whole = dim / 32 * 32, rest = dim - whole;
    for (int64_t j = 0; j < n; ++j, k += k_stride) {
        for (int64_t c = 0; c < whole; c += 32, out += 32) {
            const auto d = Row::scale(k, c / 32);
            store_row(out, Row::vec(k, c, 0, d), Row::vec(k, Row::blocks ? c : c + 16, 1, d));
        }
        if constexpr (!Row::blocks) {
            if (rest == 0) continue;
            store_row(out, tail<Row>(k, whole, rest < 16 ? rest : 16),
                      rest > 16 ? tail<Row>(k, whole + 16, rest - 16) : zero());
            out += 32;
        }
    }
}

void turn_keys(const uint16_t *rows, int64_t n, int64_t dim, uint16_t *panels) {
    const int64_t depth = bf16_padded(dim);
    for (int64_t j = 0; j < n; j += 16) {
        const uint8_t *row[16];
        for (int64_t r = 0; r < 16; ++r)
            row[r] = reinterpret_cast<const uint8_t *>(rows + (j + r) * depth);
        for (int64_t c = 0; c < depth; c += 32, panels += tile_elements)
            pack_tile<WeightType::bf16>(row, 2 * c, panels);
    }
}

constexpr int64_t value_panel = 16 * kTileSlots; // elements of a panel of v

// A pair of slots; the second NULL: zeros.
template <class Row>
KEEL_SIMD void load_pair(const uint8_t *even, const uint8_t *odd, int64_t dim, uint16_t *out) {
    const int64_t whole = dim / 32 * 32;
    for (int64_t c = 0; c < whole; c += 32) {
        const auto d = Row::scale(even, c / 32), e = Row::scale(odd != nullptr ? odd : even, c / 32);
        KEEL_UNROLL
        for (int i = 0; i < 2; ++i) {
            const int64_t at = Row::blocks ? c : c + 16 * i;
            store_pairs(out + (c / 16 + i) * value_panel, Row::vec(even, at, i, d),
                        odd != nullptr ? Row::vec(odd, at, i, e) : zero());
        }
    }
    if constexpr (!Row::blocks)
        for (int64_t c = whole; c < dim; c += 16) {
            const int64_t n = dim - c < 16 ? dim - c : 16;
            store_pairs(out + c / 16 * value_panel, tail<Row>(even, c, n),
                        odd != nullptr ? tail<Row>(odd, c, n) : zero());
        }
}

template <class Row>
void load_values(const void *values, int64_t v_stride, int64_t first, int64_t n, int64_t dim, bool last,
                 uint16_t *panels) {
    const uint8_t *v = static_cast<const uint8_t *>(values);
    uint16_t *out = panels + first * 16;
    int64_t j = 0;
    for (; j + 2 <= n; j += 2, out += 32)
        load_pair<Row>(v + j * v_stride, v + (j + 1) * v_stride, dim, out);
    if (j < n) load_pair<Row>(v + j * v_stride, nullptr, dim, out), j += 2, out += 32;
    if (!last) return;
    for (int64_t slot = first + j; slot < bf16_padded(first + n); slot += 2, out += 32)
        for (int64_t c = 0; c < dim; c += 16)
            memset(out + c / 16 * value_panel, 0, 64);
}

bool finite16(const uint16_t *x, int64_t n) {
    bool all = true;
    for (int64_t i = 0; i < n; ++i)
        all &= (x[i] & 0x7f80) != 0x7f80;
    return all;
}

#if !defined(KEEL_CPU_EMULATED_AVX512)
// 2^x for x <= 0 within 3e-6 of itself, which is far below what bf16 holds; 0 for -inf, NaN for NaN.
KEEL_SIMD F exp2_of(F x) {
    const F r = _mm512_reduce_ps(x, 0x09); // x - floor(x), and scalef goes by floor(x)
    F p = set1(0x1.bb7cd4p-7f);
    p = fma(p, r, set1(0x1.aa13f2p-5f));
    p = fma(p, r, set1(0x1.ee798ap-3f));
    p = fma(p, r, set1(0x1.62d166p-1f));
    p = fma(p, r, set1(0x1.00002cp+0f));
    return _mm512_scalef_ps(p, x);
}
#else
KEEL_SIMD F exp2_of(F x) {
    float v[16];
    store(v, x);
    for (float &f : v)
        f = __builtin_exp2f(f);
    return load(v);
}
#endif

// Brings what came before of a row to a larger maximum: seldom.
__attribute__((noinline, cold)) void raise_max(float tile_max, int64_t r, const SoftmaxState &state) {
    const float none = -__builtin_inff(), old = state.max[r];
    state.max[r] = tile_max;
    if (old == none) return; // nothing did
    const float shrink = expf(old - tile_max);
    state.sum[r] *= shrink;
    for (int64_t d = 0; state.acc != nullptr && d < state.dim; d += 16) {
        float *acc = state.acc + r * state.acc_stride + d;
        store(acc, mul(load(acc), set1(shrink)));
    }
}

#if !defined(KEEL_CPU_EMULATED_AVX512)
constexpr int softmax_rows = 4;
// Halves of two vectors at once: 128-bit lane r has four values of x[r] in the end.
template <class Op>
KEEL_SIMD F fold_rows(const F *x, Op op) {
    const F a = op(_mm512_shuffle_f32x4(x[0], x[1], 0x44), _mm512_shuffle_f32x4(x[0], x[1], 0xee)),
            b = op(_mm512_shuffle_f32x4(x[2], x[3], 0x44), _mm512_shuffle_f32x4(x[2], x[3], 0xee));
    F c = op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    c = op(c, _mm512_permute_ps(c, 0x4e));
    return op(c, _mm512_permute_ps(c, 0xb1));
}
KEEL_SIMD void store_rows(float *out, F x) {
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, x)));
}
KEEL_SIMD void largest_of(const F (&x)[4], float *out) {
    store_rows(out, fold_rows(x, [](F a, F b) __attribute__((always_inline)) { return max(a, b); }));
}
KEEL_SIMD void sums_of(const F (&x)[4], float *out) {
    store_rows(out, fold_rows(x, [](F a, F b) __attribute__((always_inline)) { return add(a, b); }));
}
#else
constexpr int softmax_rows = 1;
#endif
KEEL_SIMD void largest_of(const F (&x)[1], float *out) {
    *out = reduce_max(x[0]);
}
KEEL_SIMD void sums_of(const F (&x)[1], float *out) {
    *out = reduce_add(x[0]);
}

// R rows whose n logits have something behind them up to the next 32.
template <int R, bool Keep>
KEEL_SIMD void softmax_part(float *s, int64_t s_stride, int64_t row, int64_t whole, const SoftmaxState &state,
                            uint16_t *p) {
    constexpr float log2_e = 1.44269504f;
    F high[R], sum[R];
    KEEL_UNROLL
    for (int r = 0; r < R; ++r) {
        high[r] = set1(-__builtin_inff());
        for (int64_t j = 0; j < whole; j += 16)
            high[r] = max(load(s + r * s_stride + j), high[r]); // passes over NaN, which stays in s
    }
    float largest[R], base[R], sums[R];
    largest_of(high, largest);
    KEEL_UNROLL
    for (int r = 0; r < R; ++r) {
        if (largest[r] > state.max[row + r]) raise_max(largest[r], row + r, state);
        const float m = state.max[row + r];
        base[r] = m == -__builtin_inff() ? 0.0f : -m * log2_e;
    }
    KEEL_UNROLL
    for (int r = 0; r < R; ++r) {
        const F minus = set1(base[r]);
        float *from = s + r * s_stride;
        uint16_t *to = x_row(p, row + r, kTileSlots);
        sum[r] = zero();
        for (int64_t j = 0; j < whole; j += 32, to += x_rows * 32) {
            const F a = exp2_of(fma(load(from + j), set1(log2_e), minus)),
                    b = exp2_of(fma(load(from + j + 16), set1(log2_e), minus));
            sum[r] = add(sum[r], add(a, b));
            if constexpr (Keep) store(from + j, a), store(from + j + 16, b);
            store_row(to, a, b);
        }
    }
    sums_of(sum, sums);
    KEEL_UNROLL
    for (int r = 0; r < R; ++r)
        state.sum[row + r] += sums[r];
}

template <bool Keep>
KEEL_SIMD void softmax_all(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state,
                           uint16_t *p) {
    const int64_t whole = bf16_padded(n);
    for (int64_t r = 0; n != whole && r < rows; ++r)
        for (int64_t j = n; j < whole; ++j)
            s[r * s_stride + j] = -__builtin_inff();
    int64_t r = 0;
    for (; r + softmax_rows <= rows; r += softmax_rows)
        softmax_part<softmax_rows, Keep>(s + r * s_stride, s_stride, r, whole, state, p);
    for (; r < rows; ++r)
        softmax_part<1, Keep>(s + r * s_stride, s_stride, r, whole, state, p);
}

void softmax16(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state, bool keep,
               uint16_t *p) {
    if (keep)
        softmax_all<true>(s, s_stride, rows, n, state, p);
    else
        softmax_all<false>(s, s_stride, rows, n, state, p);
}

} // namespace
} // namespace keel_cpu::KEEL_ISA_NAMESPACE

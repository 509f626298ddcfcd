// Packing and softmax of bf16 attention. The file that includes this one must define the primitives
// of bf16_pairs.hpp, x_rows and multiply().
#include "cpu/kernels/tables.hpp"

#include <math.h>

#include "cpu/kernels/algo/kv_row_types.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {
namespace {

// Returns the start of row r of packed x. A row has `depth` columns. The elements of a row are not
// contiguous: column c is c / 32 * x_rows * 32 + c % 32 elements after the row's start.
KEEL_SIMD uint16_t *x_row(uint16_t *x, int64_t r, int64_t depth) {
    return x + r / x_rows * x_rows * depth + r % x_rows * 32;
}

// Prefetches row `row` of the memory that is read later.
KEEL_SIMD void prefetch_row(const Ahead &ahead, int64_t row) {
    for (int64_t b = 0; ahead.data != nullptr && b < ahead.row_bytes; b += 64)
        prefetch_far(ahead.data + row * ahead.row_bytes + b);
}

// Stores n <= 32 elements as bf16, then zeros up to 32 elements.
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
void load_keys(const void *keys, int64_t k_stride, int64_t n, int64_t dim, uint16_t *out,
               const Ahead &ahead) {
    const uint8_t *k = static_cast<const uint8_t *>(keys);
    const int64_t whole = dim / 32 * 32, rest = dim - whole;
    for (int64_t j = 0; j < n; ++j, k += k_stride) {
        prefetch_row(ahead, j);
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

constexpr int64_t value_panel = 16 * kTileSlots; // number of elements of a panel of values

// Packs the rows of two neighbouring slots as pairs of elements. If the second row is NULL, zeros
// take its place.
template <class Row>
KEEL_SIMD void load_pair(const uint8_t *even, const uint8_t *odd, int64_t dim, uint16_t *out) {
    const int64_t whole = dim / 32 * 32;
    for (int64_t c = 0; c < whole; c += 32) {
        const auto d = Row::scale(even, c / 32),
                   e = Row::scale(odd != nullptr ? odd : even, c / 32);
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
void load_values(const void *values, int64_t v_stride, int64_t first, int64_t n, int64_t dim,
                 bool last, uint16_t *panels, const Ahead &ahead) {
    const uint8_t *v = static_cast<const uint8_t *>(values);
    uint16_t *out = panels + first * 16;
    int64_t j = 0;
    for (; j + 2 <= n; j += 2, out += 32) {
        prefetch_row(ahead, j), prefetch_row(ahead, j + 1);
        load_pair<Row>(v + j * v_stride, v + (j + 1) * v_stride, dim, out);
    }
    if (j < n) load_pair<Row>(v + j * v_stride, nullptr, dim, out), j += 2, out += 32;
    if (!last) return;
    for (int64_t slot = first + j; slot < bf16_padded(first + n); slot += 2, out += 32)
        for (int64_t c = 0; c < dim; c += 16)
            memset(out + c / 16 * value_panel, 0, 64);
}

// Returns true if all n elements are finite. n is a multiple of 32.
bool finite16(const uint16_t *x, int64_t n) {
#if !defined(KEEL_CPU_EMULATED_AVX512)
    const I exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 any = 0;
    for (int64_t i = 0; i < n; i += 32)
        any |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(_mm512_loadu_si512(x + i), exponent),
                                       exponent);
    return any == 0;
#else
    bool all = true;
    for (int64_t i = 0; i < n; ++i)
        all &= (x[i] & 0x7f80) != 0x7f80;
    return all;
#endif
}

#if !defined(KEEL_CPU_EMULATED_AVX512)
// Returns 2^x with a relative error below 8e-5, which is less than the 2e-3 of bf16. For -inf the
// result is 0, for NaN it is NaN.
KEEL_SIMD F exp2_of(F x) {
    // r = x - floor(x); scalef below multiplies by 2^floor(x)
    const F r = _mm512_reduce_ps(x, 0x09);
    F p = set1(0x1.3f96a4p-4f);
    p = fma(p, r, set1(0x1.cefc4cp-3f));
    p = fma(p, r, set1(0x1.64444cp-1f));
    p = fma(p, r, set1(0x1.fff632p-1f));
    return _mm512_scalef_ps(p, x);
}
// Like exp2_of, with a relative error below 2e-7.
KEEL_SIMD F exp2_fine(F x) {
    const F r = _mm512_reduce_ps(x, 0x09);
    F p = set1(0x1.ec3206p-10f);
    p = fma(p, r, set1(0x1.26900ep-7f));
    p = fma(p, r, set1(0x1.c95446p-5f));
    p = fma(p, r, set1(0x1.ebd5a8p-3f));
    p = fma(p, r, set1(0x1.62e4f6p-1f));
    p = fma(p, r, set1(0x1.fffffep-1f));
    return _mm512_scalef_ps(p, x);
}
KEEL_SIMD bool any_above(F x, F limit) {
    return _mm512_cmp_ps_mask(x, limit, _CMP_GT_OQ) != 0;
}
#else
KEEL_SIMD F exp2_of(F x) {
    float v[16];
    store(v, x);
    for (float &f : v)
        f = __builtin_exp2f(f);
    return load(v);
}
KEEL_SIMD F exp2_fine(F x) {
    return exp2_of(x);
}
KEEL_SIMD bool any_above(F x, F limit) {
    float v[16], most[16];
    store(v, x), store(most, limit);
    bool any = false;
    for (int i = 0; i < 16; ++i)
        any |= v[i] > most[i];
    return any;
}
#endif

// Returns the largest logit of a row in a tile, ignoring NaN.
KEEL_SIMD float largest_of(const float *s, int64_t whole) {
    F high = set1(-__builtin_inff());
    for (int64_t j = 0; j < whole; j += 16)
        high = max(load(s + j), high);
    return reduce_max(high);
}

// Called if a logit in a tile exceeds the row's max by too much. Raises the max, rescales the row's
// sums, and returns the scaling factor. This happens rarely, except at the start of a row.
__attribute__((noinline, cold)) float raise_max(const float *s, int64_t whole, int64_t r,
                                                const SoftmaxState &state, float *lanes) {
    const float none = -__builtin_inff(), old = state.max[r], largest = largest_of(s, whole);
    if (!(largest > old)) return 1;
    state.max[r] = largest;
    if (old == none) return 1; // the row had no logits so far, so nothing must be rescaled
    const float shrink = expf(old - largest);
    state.sum[r] *= shrink;
    store(lanes + 16 * r, mul(load(lanes + 16 * r), set1(shrink)));
    for (int64_t d = 0; state.acc != nullptr && d < state.dim; d += 16) {
        float *acc = state.acc + r * state.acc_stride + d;
        store(acc, mul(load(acc), set1(shrink)));
    }
    return shrink;
}

// Stores exp(logit - max) of one row to p. Returns the sum of these values in 16 lanes.
template <bool Keep, bool Fine>
KEEL_SIMD F exp_row(float *s, int64_t whole, float row_max, uint16_t *p) {
    constexpr float log2_e = 1.44269504f;
    const F minus = set1(row_max == -__builtin_inff() ? 0.0f : -row_max * log2_e);
    F sum = zero();
    for (int64_t j = 0; j < whole; j += 32, p += x_rows * 32) {
        const F x = fma(load(s + j), set1(log2_e), minus),
                y = fma(load(s + j + 16), set1(log2_e), minus);
        const F a = Fine ? exp2_fine(x) : exp2_of(x), b = Fine ? exp2_fine(y) : exp2_of(y);
        sum = add(sum, add(a, b));
        if constexpr (Keep) store(s + j, a), store(s + j + 16, b);
        store_row(p, a, b);
    }
    return sum;
}

// Multiplies probabilities of a row by `by`: those in the `tiles` tiles before p, which have not
// been multiplied with values yet.
KEEL_SIMD void shrink_row(uint16_t *p, int64_t tiles, int64_t r, float by) {
    for (int64_t tile = 0; tile < tiles; ++tile, p += bf16_rows * kTileSlots)
        for (int64_t c = 0; c < kTileSlots; c += 32) {
            uint16_t *at = x_row(p, r, kTileSlots) + c / 32 * x_rows * 32;
            store_row(at, mul(load_bf16(at), set1(by)), mul(load_bf16(at + 16), set1(by)));
        }
}

// Computes the softmax of rows that see all of their `whole` logits; `whole` is a multiple of 32.
// Finding the largest logit of each tile would cost as much as computing exp. So a row keeps the
// max of its first tile until its sums become large (256). f32 and bf16 have enough range for this.
// `before` is the number of tiles before p that have not been multiplied with values yet.
template <bool Keep, bool Fine = false>
KEEL_SIMD void softmax_rows(float *s, int64_t s_stride, int64_t from, int64_t rows, int64_t whole,
                            const SoftmaxState &state, float *lanes, uint16_t *p, int64_t before) {
    for (int64_t r = from; r < from + rows; ++r) {
        float *row = s + r * s_stride;
        uint16_t *to = x_row(p, r, kTileSlots);
        if (Keep || state.max[r] == -__builtin_inff()) raise_max(row, whole, r, state, lanes);
        F sum = exp_row<Keep, Fine>(row, whole, state.max[r], to);
        if (!Keep && any_above(sum, set1(256.0f))) {
            const float shrink = raise_max(row, whole, r, state, lanes);
            shrink_row(p - before * bf16_rows * kTileSlots, before, r, shrink);
            sum = exp_row<Keep, Fine>(row, whole, state.max[r], to);
        }
        store(lanes + 16 * r, add(load(lanes + 16 * r), sum));
    }
}

template <bool Fine>
void softmax16(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state,
               float *lanes, bool keep, uint16_t *p) {
    const int64_t whole = bf16_padded(n);
    for (int64_t r = 0; n != whole && r < rows; ++r)
        for (int64_t j = n; j < whole; ++j)
            s[r * s_stride + j] = -__builtin_inff();
    if (keep)
        softmax_rows<true, Fine>(s, s_stride, 0, rows, whole, state, lanes, p, 0);
    else if (whole == kTileSlots)
        softmax_rows<false, Fine>(s, s_stride, 0, rows, kTileSlots, state, lanes, p, 0);
    else
        softmax_rows<false, Fine>(s, s_stride, 0, rows, whole, state, lanes, p, 0);
}

// Adds the probabilities of `count` rows, for V vectors of columns.
template <int V>
KEEL_SIMD void add_columns_part(const uint16_t *p, int64_t first, int64_t every, int64_t count,
                                const float *by, float *sums) {
    F sum[V];
    KEEL_UNROLL
    for (int v = 0; v < V; ++v)
        sum[v] = load(sums + 16 * v);
    for (int64_t i = 0, r = first; i < count; ++i, r += every) {
        const uint16_t *row = p + r / x_rows * x_rows * kTileSlots + r % x_rows * 32;
        const F factor = set1(by[i]);
        KEEL_UNROLL
        for (int v = 0; v < V; ++v)
            sum[v] = fma(factor, load_bf16(row + v / 2 * x_rows * 32 + v % 2 * 16), sum[v]);
    }
    KEEL_UNROLL
    for (int v = 0; v < V; ++v)
        store(sums + 16 * v, sum[v]);
}

void add_columns(const uint16_t *p, int64_t first, int64_t every, int64_t count, const float *by,
                 int64_t n, float *sums) {
    if (n == kTileSlots)
        add_columns_part<kTileSlots / 16>(p, first, every, count, by, sums);
    else
        add_columns_part<kTileSlots / 32>(p, first, every, count, by, sums);
}

void add_lanes(const float *lanes, int64_t rows, float *sum) {
    for (int64_t r = 0; r < rows; ++r)
        sum[r] += reduce_add(load(lanes + 16 * r));
}

} // namespace
} // namespace keel_cpu::KEEL_ISA_NAMESPACE

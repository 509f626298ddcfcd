// The attention kernels, written with the primitives of simd_*.hpp. This file is compiled once for
// each instruction set.
#include <math.h>

#include "cpu/kernels/algo/kv_rows.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {
namespace {

// Prefetches the part of `ahead` that belongs to rows first..first+n-1.
KEEL_SIMD void prefetch_rows(const Ahead &ahead, int64_t first, int64_t n) {
    if (ahead.data == nullptr) return;
    for (int64_t b = first * ahead.row_bytes; b < (first + n) * ahead.row_bytes; b += 64)
        prefetch_far(ahead.data + b);
}

// Computes s[r][j], the products of R queries with J keys. J is 4 or 1.
template <class Row, int R, int J>
KEEL_SIMD void dots_part(const float *q, int64_t q_stride, const uint8_t *k, int64_t k_stride,
                         int64_t dim, float *s, int64_t s_stride) {
    F sum[R][J];
    KEEL_UNROLL
    for (int r = 0; r < R; ++r)
        KEEL_UNROLL
    for (int j = 0; j < J; ++j)
        sum[r][j] = zero();
    const int64_t whole = dim / kBlock * kBlock;
    for (int64_t c = 0; c < whole; c += kBlock) {
        typename Row::Scale d[J];
        KEEL_UNROLL
        for (int j = 0; j < J; ++j)
            d[j] = Row::scale(k + j * k_stride, c / kBlock);
        KEEL_UNROLL
        for (int i = 0; i < kSteps; ++i) {
            F x[R];
            KEEL_UNROLL
            for (int r = 0; r < R; ++r)
                x[r] = load(q + r * q_stride + c + i * W);
            KEEL_UNROLL
            for (int j = 0; j < J; ++j) {
                const F y = Row::vec(k + j * k_stride, Row::blocks ? c : c + i * W, i, d[j]);
                KEEL_UNROLL
                for (int r = 0; r < R; ++r)
                    sum[r][j] = fma(x[r], y, sum[r][j]);
            }
        }
    }
    if constexpr (!Row::blocks)
        for (int64_t e = whole; e < dim; e += W)
            KEEL_UNROLL
    for (int j = 0; j < J; ++j) {
        const F y = tail<Row>(k + j * k_stride, e, dim - e);
        KEEL_UNROLL
        for (int r = 0; r < R; ++r)
            sum[r][j] = fma(load(q + r * q_stride + e), y, sum[r][j]);
    }
#if defined(KEEL_REDUCE_ADD_4X4)
    if constexpr (R == 4 && J == 4) return reduce_add4x4(s, s_stride, sum);
#endif
    KEEL_UNROLL
    for (int r = 0; r < R; ++r) {
        if constexpr (J == 4)
            reduce_add4(s + r * s_stride, sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        else
            s[r * s_stride] = reduce_add(sum[r][0]);
    }
}

// dots_step: number of query rows that share the conversion of a key to f32. mix_step: number of
// rows of sums that share the conversion of a value. The registers have room for these numbers of
// rows.
constexpr int dots_step = W == 16 ? 4 : 3, mix_step = W == 16 ? 8 : 3;

// Handles the last rows of `rows`. There are at most R of them.
template <class Row, int R, int J>
KEEL_SIMD void dots_rest(const float *q, int64_t q_stride, int64_t rows, const uint8_t *k,
                         int64_t k_stride, int64_t dim, float *s, int64_t s_stride) {
    if constexpr (R > 0) {
        if (rows == R)
            dots_part<Row, R, J>(q, q_stride, k, k_stride, dim, s, s_stride);
        else
            dots_rest<Row, R - 1, J>(q, q_stride, rows, k, k_stride, dim, s, s_stride);
    }
}

template <class Row, int J>
KEEL_SIMD void dots_rows(const float *q, int64_t q_stride, int64_t rows, const uint8_t *k,
                         int64_t k_stride, int64_t dim, float *s, int64_t s_stride) {
    int64_t r = 0;
    for (; r + dots_step <= rows; r += dots_step)
        dots_part<Row, dots_step, J>(q + r * q_stride, q_stride, k, k_stride, dim, s + r * s_stride,
                                     s_stride);
    dots_rest<Row, dots_step - 1, J>(q + r * q_stride, q_stride, rows - r, k, k_stride, dim,
                                     s + r * s_stride, s_stride);
}

template <class Row>
void dots(const float *q, int64_t q_stride, int64_t rows, const void *keys, int64_t k_stride,
          int64_t n, int64_t dim, float *s, int64_t s_stride, const Ahead &ahead) {
    const uint8_t *k = static_cast<const uint8_t *>(keys);
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        prefetch_rows(ahead, j, 4);
        dots_rows<Row, 4>(q, q_stride, rows, k + j * k_stride, k_stride, dim, s + j, s_stride);
    }
    for (; j < n; ++j)
        dots_rows<Row, 1>(q, q_stride, rows, k + j * k_stride, k_stride, dim, s + j, s_stride);
}

// Computes acc[r][c .. c + P*W) += sum_j p[r][j] * v[j][c ..], for R rows. The conversion of v
// yields 32 elements at a time, from c on. P vectors of these elements are used, beginning with
// vector `first`.
template <class Row, int R, int P>
KEEL_SIMD void mix_part(const float *p, int64_t p_stride, const uint8_t *v, int64_t v_stride,
                        int64_t n, int64_t c, int first, float *acc, int64_t acc_stride,
                        const Ahead &ahead) {
    F sum[R][P];
    KEEL_UNROLL
    for (int r = 0; r < R; ++r)
        KEEL_UNROLL
    for (int i = 0; i < P; ++i)
        sum[r][i] = load(acc + r * acc_stride + c + (first + i) * W);
    for (int64_t j = 0; j < n; ++j) {
        prefetch_rows(ahead, j, 1);
        const uint8_t *row = v + j * v_stride;
        const auto d = Row::scale(row, c / kBlock);
        F y[P];
        KEEL_UNROLL
        for (int i = 0; i < P; ++i)
            y[i] = Row::vec(row, Row::blocks ? c : c + (first + i) * W, first + i, d);
        KEEL_UNROLL
        for (int r = 0; r < R; ++r) {
            const F x = set1(p[r * p_stride + j]);
            KEEL_UNROLL
            for (int i = 0; i < P; ++i)
                sum[r][i] = fma(x, y[i], sum[r][i]);
        }
    }
    KEEL_UNROLL
    for (int r = 0; r < R; ++r)
        KEEL_UNROLL
    for (int i = 0; i < P; ++i)
        store(acc + r * acc_stride + c + (first + i) * W, sum[r][i]);
}

template <class Row, int R>
KEEL_SIMD void mix_rows(const float *p, int64_t p_stride, const uint8_t *v, int64_t v_stride,
                        int64_t n, int64_t dim, float *acc, int64_t acc_stride,
                        const Ahead &ahead) {
    constexpr int part = kSteps < 4 ? kSteps : 4;
    const int64_t whole = dim / kBlock * kBlock;
    for (int64_t c = 0; c < whole; c += kBlock)
        for (int i = 0; i < kSteps; i += part)
            mix_part<Row, R, part>(p, p_stride, v, v_stride, n, c, i, acc, acc_stride,
                                   // prefetches only once per row
                                   c + i == 0 ? ahead : Ahead{nullptr, 0});
    if constexpr (!Row::blocks)
        for (int64_t e = whole; e < dim; e += W)
            for (int64_t j = 0; j < n; ++j) {
                const F y = tail<Row>(v + j * v_stride, e, dim - e);
                for (int r = 0; r < R; ++r) {
                    float *to = acc + r * acc_stride + e;
                    store(to, fma(set1(p[r * p_stride + j]), y, load(to)));
                }
            }
}

template <class Row, int R>
KEEL_SIMD void mix_rest(const float *p, int64_t p_stride, int64_t rows, const uint8_t *v,
                        int64_t v_stride, int64_t n, int64_t dim, float *acc, int64_t acc_stride,
                        const Ahead &ahead) {
    if constexpr (R > 0) {
        if (rows == R)
            mix_rows<Row, R>(p, p_stride, v, v_stride, n, dim, acc, acc_stride, ahead);
        else
            mix_rest<Row, R - 1>(p, p_stride, rows, v, v_stride, n, dim, acc, acc_stride, ahead);
    }
}

template <class Row>
void mix(const float *p, int64_t p_stride, int64_t rows, const void *values, int64_t v_stride,
         int64_t n, int64_t dim, float *acc, int64_t acc_stride, const Ahead &ahead) {
    const uint8_t *v = static_cast<const uint8_t *>(values);
    const Ahead nothing = {nullptr, 0};
    int64_t r = 0;
    for (; r + mix_step <= rows; r += mix_step)
        mix_rows<Row, mix_step>(p + r * p_stride, p_stride, v, v_stride, n, dim,
                                acc + r * acc_stride, acc_stride, r == 0 ? ahead : nothing);
    mix_rest<Row, mix_step - 1>(p + r * p_stride, p_stride, rows - r, v, v_stride, n, dim,
                                acc + r * acc_stride, acc_stride, r == 0 ? ahead : nothing);
}

// Computes c[R][P vectors] = a[R][depth] * b[depth][P vectors], or adds the product to c.
template <int R, int P>
KEEL_SIMD void gemm_part(const LeftMatrix &a, const float *b, int64_t b_stride, int64_t depth,
                         float *c, int64_t c_stride, bool accumulate) {
    F sum[R][P];
    KEEL_UNROLL
    for (int r = 0; r < R; ++r)
        KEEL_UNROLL
    for (int i = 0; i < P; ++i)
        sum[r][i] = zero();
    const float *column = a.data;
    for (int64_t k = 0; k < depth; ++k, column += a.step) {
        F y[P];
        KEEL_UNROLL
        for (int i = 0; i < P; ++i)
            y[i] = load(b + k * b_stride + i * W);
        KEEL_UNROLL
        for (int r = 0; r < R; ++r) {
            const F x = set1(column[r * a.stride]);
            KEEL_UNROLL
            for (int i = 0; i < P; ++i)
                sum[r][i] = fma(x, y[i], sum[r][i]);
        }
    }
    KEEL_UNROLL
    for (int r = 0; r < R; ++r)
        KEEL_UNROLL
    // The sum of the products above is added to the old value at the end. If each product were
    // added to the old value, rounding would lose more.
    for (int i = 0; i < P; ++i) {
        float *to = c + r * c_stride + i * W;
        store(to, accumulate ? keel_cpu::KEEL_ISA_NAMESPACE::add(load(to), sum[r][i]) : sum[r][i]);
    }
}

template <int P>
KEEL_SIMD void gemm_panel(const LeftMatrix &a, int64_t rows, const float *b, int64_t b_stride,
                          int64_t depth, float *c, int64_t c_stride, bool accumulate) {
    int64_t r = 0;
    const auto from = [&](int64_t row) {
        return LeftMatrix{a.data + row * a.stride, a.stride, a.step};
    };
    for (; r + 6 <= rows; r += 6)
        gemm_part<6, P>(from(r), b, b_stride, depth, c + r * c_stride, c_stride, accumulate);
    for (; r + 2 <= rows; r += 2)
        gemm_part<2, P>(from(r), b, b_stride, depth, c + r * c_stride, c_stride, accumulate);
    if (r < rows)
        gemm_part<1, P>(from(r), b, b_stride, depth, c + r * c_stride, c_stride, accumulate);
}

void gemm(const LeftMatrix &a, int64_t rows, const float *b, int64_t b_stride, int64_t depth,
          int64_t cols, float *c, int64_t c_stride, bool accumulate) {
    // Number of vectors in a row of a panel. With six rows, the sums fill the registers.
    constexpr int wide = W == 16 ? 4 : W == 8 ? 2 : 4;
    int64_t i = 0;
    for (; i + wide * W <= cols; i += wide * W)
        gemm_panel<wide>(a, rows, b + i, b_stride, depth, c + i, c_stride, accumulate);
    for (; i < cols; i += W)
        gemm_panel<1>(a, rows, b + i, b_stride, depth, c + i, c_stride, accumulate);
}

void transpose(const float *src, int64_t src_stride, int64_t rows, int64_t cols, float *dst,
               int64_t dst_stride) {
    int64_t c = 0;
    for (; c + 8 <= cols; c += 8)
        for (int64_t r = 0; r < rows; r += 8)
            transpose8(src + r * src_stride + c, src_stride, dst + c * dst_stride + r, dst_stride);
    for (; c < cols; ++c)
        for (int64_t r = 0; r < rows; ++r)
            dst[c * dst_stride + r] = src[r * src_stride + c];
}

// Returns e^x for softmax. x is <= 0, NaN or infinite.
KEEL_SIMD F exp_of(F x) {
    return exp(x);
}

KEEL_SIMD float first_lane(F x) {
    float lanes[W];
    store(lanes, x);
    return lanes[0];
}

KEEL_SIMD void softmax_row(float *s, int64_t n, float &row_max, float &row_sum, float *acc,
                           int64_t dim) {
    const float none = -__builtin_inff();
    const int64_t whole = (n + W - 1) / W * W;
    for (int64_t j = n; j < whole; ++j)
        s[j] = none;
    F largest = set1(none);
    for (int64_t j = 0; j < whole; j += W)
        largest = max(load(s + j), largest); // a NaN does not change the max, and stays in s
    const float tile_max = reduce_max(largest);
    const float new_max = tile_max > row_max ? tile_max : row_max;
    if (new_max != row_max) {
        const F shrink = exp_of(set1(row_max - new_max)); // the factor is 0 for the first tile
        row_sum *= first_lane(shrink);
        if (acc != nullptr && row_max != none)
            for (int64_t d = 0; d < dim; d += W)
                store(acc + d, mul(load(acc + d), shrink));
        row_max = new_max;
    }
    const F base = set1(new_max == none ? 0.0f : new_max);
    F sum = zero();
    for (int64_t j = 0; j < whole; j += W) {
        const F p = exp_of(sub(load(s + j), base));
        sum = add(sum, p);
        store(s + j, p);
    }
    row_sum += reduce_add(sum);
}

void softmax(float *s, int64_t s_stride, int64_t rows, int64_t n, const SoftmaxState &state) {
    for (int64_t r = 0; r < rows; ++r)
        softmax_row(s + r * s_stride, n, state.max[r], state.sum[r],
                    state.acc == nullptr ? nullptr : state.acc + r * state.acc_stride, state.dim);
}

// Computes tanh with a rational approximation that is accurate to 2 ulp.
KEEL_SIMD F tanh_of(F x) {
    x = max(set1(-7.90531110763549805f), min(set1(7.90531110763549805f), x));
    const F z = mul(x, x);
    F p = set1(-2.76076847742355e-16f);
    p = fma(p, z, set1(2.00018790482477e-13f));
    p = fma(p, z, set1(-8.60467152213735e-11f));
    p = fma(p, z, set1(5.12229709037114e-08f));
    p = fma(p, z, set1(1.48572235717979e-05f));
    p = fma(p, z, set1(6.37261928875436e-04f));
    p = mul(x, fma(p, z, set1(4.89352455891786e-03f)));
    F q = set1(1.19825839466702e-06f);
    q = fma(q, z, set1(1.18534705686654e-04f));
    q = fma(q, z, set1(2.26843463243900e-03f));
    q = fma(q, z, set1(4.89352518554385e-03f));
    return div(p, q);
}

void softcap(float *s, int64_t n, float cap) {
    const F factor = set1(1.0f / cap), by = set1(cap);
    for (int64_t j = 0; j < n; j += W)
        store(s + j, mul(tanh_of(mul(load(s + j), factor)), by));
}

void add_to(float *to, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
        to[i] += x[i];
}

void max_to(float *to, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
        to[i] = to[i] >= x[i] || to[i] != to[i] ? to[i] : x[i];
}

void add_scaled(float *to, const float *x, int64_t n, float factor) {
    for (int64_t i = 0; i < n; ++i)
        to[i] += x[i] * factor;
}

void scale_by(float *x, int64_t n, float factor) {
    for (int64_t i = 0; i < n; ++i)
        x[i] *= factor;
}

bool finite(const float *x, int64_t n) {
    F sum = zero();
    int64_t i = 0;
    for (; i + W <= n; i += W)
        sum = fma(load(x + i), zero(), sum);
    float rest = 0;
    for (; i < n; ++i)
        rest += x[i] * 0.0f;
    return !any_nan(sum) && rest == rest;
}

#include "cpu/kernels/algo/attention_dense.inl"

const AttentionKernels attention_table = {
    isa_word,
    8,
    W == 16 ? 8 : 3,
    {load_row<F32Row>, load_row<F16Row>, load_row<Bf16Row>, load_row<Q8Row>, load_row<Q4Row>},
    {store_f32, store_row_f16, store_row_bf16, store_row_q8, store_row_q4},
    {dots<F32Row>, dots<F16Row>, dots<Bf16Row>, dots<Q8Row>, dots<Q4Row>},
    {mix<F32Row>, mix<F16Row>, mix<Bf16Row>, mix<Q8Row>, mix<Q4Row>},
    gemm,
    transpose,
    softmax,
    softcap,
    add_to,
    max_to,
    add_scaled,
    scale_by,
    finite,
    norm1_row,
    norm2_row,
    rope_head,
    rms_norm_head,
    exp_minus,
    add_bias,
    hide,
    drop,
    logit_gradient,
    softcap_gradient,
};

} // namespace
} // namespace keel_cpu::KEEL_ISA_NAMESPACE

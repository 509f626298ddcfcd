// Conversion of cache rows to and from f32, and rotation and normalization of heads. attention.inl
// includes this file.
#include "cpu/kernels/algo/kv_row_types.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {
namespace {

template <class Row>
void load_row(const void *src, int64_t n, float *dst) {
    const uint8_t *row = static_cast<const uint8_t *>(src);
    const int64_t whole = n / kBlock * kBlock;
    for (int64_t c = 0; c < whole; c += kBlock) {
        const auto d = Row::scale(row, c / kBlock);
        for (int i = 0; i < kSteps; ++i)
            keel_cpu::KEEL_ISA_NAMESPACE::store(dst + c + i * W,
                                                Row::vec(row, Row::blocks ? c : c + i * W, i, d));
    }
    if constexpr (!Row::blocks)
        for (int64_t e = whole; e < n; ++e)
            dst[e] = Row::one(row, e);
}

void store_f32(const float *src, int64_t n, void *dst) {
    if (n != 0) memcpy(dst, src, static_cast<size_t>(n) * 4);
}

void store_row_f16(const float *src, int64_t n, void *dst) {
    uint16_t *out = static_cast<uint16_t *>(dst);
    int64_t i = 0;
    for (; i + W <= n; i += W)
        store_f16(out + i, load(src + i));
    for (; i < n; ++i)
        out[i] = f32_to_f16(src[i]);
}

void store_row_bf16(const float *src, int64_t n, void *dst) {
    uint16_t *out = static_cast<uint16_t *>(dst);
    int64_t i = 0;
    for (; i + W <= n; i += W)
        store_bf16(out + i, load(src + i));
    for (; i < n; ++i)
        out[i] = f32_to_bf16(src[i]);
}

// Returns the largest magnitude of a block. Returns NaN if the block contains NaN.
KEEL_SIMD float magnitude(const float *x) {
    float largest = 0;
    bool nan = false;
    for (int i = 0; i < kBlock; ++i) {
        const float a = fabsf(x[i]);
        largest = a > largest ? a : largest;
        nan |= a != a;
    }
    return nan ? __builtin_nanf("") : largest;
}

// The scale of a block as f16 bits, and its inverse. The inverse is 0 for a block of zeros. The
// scale is NaN if it does not fit f16.
struct BlockScale {
    uint16_t d;
    float inverse;
};
KEEL_SIMD BlockScale scale_of(float d) {
    if (!(fabsf(d) <= 65504.0f)) return {0x7e00, 0.0f};
    const float inverse = d != 0 ? 1.0f / d : 0.0f;
    if (fabsf(inverse) > 3.402823466e+38f) return {0, 0.0f};
    return {f32_to_f16(d), inverse};
}

// The following functions give the same bits as GGML's reference quantizers.
void store_row_q8(const float *src, int64_t n, void *dst) {
    uint8_t *out = static_cast<uint8_t *>(dst);
    for (int64_t b = 0; b < n / kBlock; ++b, src += kBlock, out += 34) {
        const BlockScale s = scale_of(magnitude(src) / 127.0f);
        memcpy(out, &s.d, 2);
        if (s.inverse == 0) {
            memset(out + 2, 0, 32);
            continue;
        }
        int8_t q[kBlock];
        for (int i = 0; i < kBlock; ++i) { // rounds to the nearest integer, ties away from zero
            const float x = src[i] * s.inverse;
            const int whole = static_cast<int>(x);
            const float rest = x - static_cast<float>(whole);
            q[i] = static_cast<int8_t>(whole + (rest >= 0.5f) - (rest <= -0.5f));
        }
        memcpy(out + 2, q, 32);
    }
}

void store_row_q4(const float *src, int64_t n, void *dst) {
    uint8_t *out = static_cast<uint8_t *>(dst);
    for (int64_t b = 0; b < n / kBlock; ++b, src += kBlock, out += 18) {
        const float largest = magnitude(src);
        // becomes the first value with the largest magnitude, with its sign
        float with_sign = largest;
        for (int i = kBlock - 1; i >= 0; --i)
            with_sign = fabsf(src[i]) == largest ? src[i] : with_sign;
        const BlockScale s = scale_of(with_sign / -8.0f);
        memcpy(out, &s.d, 2);
        if (s.inverse == 0) {
            memset(out + 2, 0x88, 16);
            continue;
        }
        for (int i = 0; i < 16; ++i) {
            const int low = static_cast<int>(src[i] * s.inverse + 8.5f);
            const int high = static_cast<int>(src[i + 16] * s.inverse + 8.5f);
            out[2 + i] = static_cast<uint8_t>((low < 15 ? low : 15) | (high < 15 ? high : 15) << 4);
        }
    }
}

void rotate_pairs(const float *x, float *out, int64_t half, const float *c, const float *s,
                  float sign) {
    for (int64_t i = 0; i < half; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1], sine = s[i] * sign;
        out[2 * i] = a * c[i] - b * sine;
        out[2 * i + 1] = b * c[i] + a * sine;
    }
}

void rotate_halves(const float *x, float *out, int64_t half, const float *c, const float *s,
                   float sign) {
    const F direction = set1(sign);
    int64_t i = 0;
    for (; i + W <= half; i += W) {
        const F a = load(x + i), b = load(x + half + i), cosine = load(c + i),
                sine = mul(load(s + i), direction);
        store(out + i, sub(mul(a, cosine), mul(b, sine)));
        store(out + half + i, add(mul(b, cosine), mul(a, sine)));
    }
    for (; i < half; ++i) {
        const float a = x[i], b = x[half + i], sine = s[i] * sign;
        out[i] = a * c[i] - b * sine;
        out[half + i] = b * c[i] + a * sine;
    }
}

void rope_head(const float *x, float *out, int64_t dim, int64_t rot, const float *c, const float *s,
               float sign, keel_rope_mode mode) {
    if (mode == KEEL_ROPE_INTERLEAVED)
        rotate_pairs(x, out, rot / 2, c, s, sign);
    else
        rotate_halves(x, out, rot / 2, c, s, sign);
    if (out != x && dim > rot) memcpy(out + rot, x + rot, static_cast<size_t>(dim - rot) * 4);
}

float sum_of_squares(const float *x, int64_t n) {
    F sum = zero();
    int64_t i = 0;
    for (; i + W <= n; i += W)
        sum = fma(load(x + i), load(x + i), sum);
    float total = reduce_add(sum);
    for (; i < n; ++i)
        total += x[i] * x[i];
    return total;
}

void rms_norm_head(const float *x, const float *weight, float eps, int64_t n, float *out) {
    const float factor = 1.0f / sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps);
    for (int64_t i = 0; i < n; ++i)
        out[i] = x[i] * factor * weight[i];
}

float norm2_row(const float *x, int64_t n) {
    const float sum = sum_of_squares(x, n);
    if (sum < 1e30f && sum > 1e-30f) return sqrtf(sum);
    double exact = 0; // f32 cannot hold the squares, so they are summed in f64
    for (int64_t i = 0; i < n; ++i)
        exact += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    return static_cast<float>(__builtin_sqrt(exact));
}

float norm1_row(const float *x, int64_t n) {
    F sum = zero();
    int64_t i = 0;
    for (; i + W <= n; i += W)
        sum = keel_cpu::KEEL_ISA_NAMESPACE::add(abs(load(x + i)), sum);
    float total = reduce_add(sum);
    for (; i < n; ++i)
        total += fabsf(x[i]);
    return total;
}

} // namespace
} // namespace keel_cpu::KEEL_ISA_NAMESPACE

// Primitives for vectors of eight floats, with AVX2, FMA and F16C. simd_scalar.hpp describes the
// functions.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define KEEL_SIMD static inline __attribute__((always_inline, unused))
#define KEEL_UNROLL // simd_neon.hpp describes the use of this macro
#define KEEL_ISA_NAMESPACE avx2

namespace keel_cpu::avx2 {

using F = __m256;
constexpr int W = 8;
constexpr const char *isa_word = "avx2";

KEEL_SIMD F set1(float x) { return _mm256_set1_ps(x); }
KEEL_SIMD F zero() { return _mm256_setzero_ps(); }
KEEL_SIMD F load(const float *p) { return _mm256_loadu_ps(p); }
KEEL_SIMD void store(float *p, F x) { _mm256_storeu_ps(p, x); }
KEEL_SIMD __m256i lanes_below(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
KEEL_SIMD F load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, lanes_below(n)); }
KEEL_SIMD void store_n(float *p, F x, int64_t n) { _mm256_maskstore_ps(p, lanes_below(n), x); }
KEEL_SIMD F add(F a, F b) { return _mm256_add_ps(a, b); }
KEEL_SIMD F sub(F a, F b) { return _mm256_sub_ps(a, b); }
KEEL_SIMD F mul(F a, F b) { return _mm256_mul_ps(a, b); }
KEEL_SIMD F div(F a, F b) { return _mm256_div_ps(a, b); }
KEEL_SIMD F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
KEEL_SIMD F max(F a, F b) { return _mm256_max_ps(a, b); }
KEEL_SIMD F min(F a, F b) { return _mm256_min_ps(a, b); }
KEEL_SIMD F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
KEEL_SIMD F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
KEEL_SIMD float reduce_add(F a) {
    const __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 y = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
KEEL_SIMD float reduce_max(F a) {
    const __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 y = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}
KEEL_SIMD bool any_nan(F a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }

KEEL_SIMD float f16_to_f32(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
KEEL_SIMD uint16_t f32_to_f16(float f) {
    return static_cast<uint16_t>(_mm_cvtsi128_si32(
        _mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)));
}
KEEL_SIMD float bf16_to_f32(uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
KEEL_SIMD uint16_t f32_to_bf16(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

KEEL_SIMD F load_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}
KEEL_SIMD F load_bf16(const uint16_t *p) {
    const __m256i wide =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
KEEL_SIMD F load_i8(const int8_t *p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))));
}
KEEL_SIMD void store_f16(uint16_t *p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
KEEL_SIMD void store_bf16(uint16_t *p, F x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i picked = _mm256_blendv_epi8(rounded, quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(picked, picked), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_castsi256_si128(packed));
}

KEEL_SIMD F load_nibbles(const uint8_t *p, bool high) {
    const __m256i bytes =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)));
    const __m256i code =
        high ? _mm256_srli_epi32(bytes, 4) : _mm256_and_si256(bytes, _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(8)));
}
KEEL_SIMD void reduce_add4(float *out, F a, F b, F c, F d) {
    const __m256 x = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}
KEEL_SIMD void transpose8(const float *src, int64_t src_stride, float *dst, int64_t dst_stride) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(src + i * src_stride);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(dst + i * dst_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * dst_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}
KEEL_SIMD void prefetch(const void *p) { _mm_prefetch(static_cast<const char *>(p), _MM_HINT_T0); }
// Prefetches data that is needed later to the L2 cache. A prefetch to L2 does not delay the loads
// that miss the L1 cache.
KEEL_SIMD void prefetch_far(const void *p) {
    _mm_prefetch(static_cast<const char *>(p), _MM_HINT_T1);
}

// Returns e^x, accurate to 2 ulp. The result is 0 below -104, infinity above 88.8, and NaN for NaN.
KEEL_SIMD F exp(F x) {
    // max and min return the second operand if one operand is NaN.
    x = max(set1(-105.0f), min(set1(89.0f), x));
    const F n = round(mul(x, set1(1.44269504f)));
    F r = fma(n, set1(-0.693359375f), x); // subtracts n * ln 2 in two parts, for accuracy
    r = fma(n, set1(2.12194440e-4f), r);
    F p = set1(1.9875691500e-4f);
    p = fma(p, r, set1(1.3981999507e-3f));
    p = fma(p, r, set1(8.3334519073e-3f));
    p = fma(p, r, set1(4.1665795894e-2f));
    p = fma(p, r, set1(1.6666665459e-1f));
    p = fma(p, r, set1(5.0000001201e-1f));
    p = add(fma(mul(p, r), r, r), set1(1.0f));
    // 2^n is multiplied in as two factors, so that subnormal results and n = 128 are correct.
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const F first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const F second = _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
    return mul(mul(p, first), second);
}

} // namespace keel_cpu::avx2

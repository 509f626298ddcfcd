// Primitives for vectors of sixteen floats, with AVX-512 F, BW, VL and DQ. simd_scalar.hpp
// describes the functions. In the emulated test build (KEEL_CPU_EMULATED_AVX512), the same code is
// compiled to narrower instructions.
#pragma once

#if defined(KEEL_CPU_EMULATED_AVX512)
#include "cpu/kernels/isa/simd_avx512_emulated.hpp"
#else
#include <immintrin.h>
#endif
#include <stdint.h>
#include <string.h>

#define KEEL_SIMD static inline __attribute__((always_inline, unused))
#define KEEL_UNROLL // simd_neon.hpp describes the use of this macro
// A kernel file for an instruction set above AVX-512 defines one of these macros, because its
// products differ.
#if defined(KEEL_CPU_VNNI)
#define KEEL_ISA_NAMESPACE vnni
#elif defined(KEEL_CPU_BF16)
#define KEEL_ISA_NAMESPACE avx512bf16
#elif defined(KEEL_CPU_AMX)
#define KEEL_ISA_NAMESPACE amx
#else
#define KEEL_ISA_NAMESPACE avx512
#endif

namespace keel_cpu::KEEL_ISA_NAMESPACE {

using F = __m512;
constexpr int W = 16;
#if defined(KEEL_CPU_EMULATED_AVX512) && defined(KEEL_CPU_AMX)
constexpr const char *isa_word = "amx-emulated";
#elif defined(KEEL_CPU_EMULATED_AVX512)
constexpr const char *isa_word = "avx512-emulated";
#elif defined(KEEL_CPU_VNNI)
constexpr const char *isa_word = "vnni";
#elif defined(KEEL_CPU_BF16)
constexpr const char *isa_word = "avx512bf16";
#elif defined(KEEL_CPU_AMX)
constexpr const char *isa_word = "amx";
#else
constexpr const char *isa_word = "avx512";
#endif

KEEL_SIMD F set1(float x) { return _mm512_set1_ps(x); }
KEEL_SIMD F zero() { return _mm512_setzero_ps(); }
KEEL_SIMD F load(const float *p) { return _mm512_loadu_ps(p); }
KEEL_SIMD void store(float *p, F x) { _mm512_storeu_ps(p, x); }
KEEL_SIMD __mmask16 lanes_below(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
KEEL_SIMD F load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(lanes_below(n), p); }
KEEL_SIMD void store_n(float *p, F x, int64_t n) { _mm512_mask_storeu_ps(p, lanes_below(n), x); }
KEEL_SIMD F add(F a, F b) { return _mm512_add_ps(a, b); }
KEEL_SIMD F sub(F a, F b) { return _mm512_sub_ps(a, b); }
KEEL_SIMD F mul(F a, F b) { return _mm512_mul_ps(a, b); }
KEEL_SIMD F div(F a, F b) { return _mm512_div_ps(a, b); }
KEEL_SIMD F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
KEEL_SIMD F max(F a, F b) { return _mm512_max_ps(a, b); }
KEEL_SIMD F min(F a, F b) { return _mm512_min_ps(a, b); }
KEEL_SIMD F abs(F a) { return _mm512_abs_ps(a); }
KEEL_SIMD F round(F a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
KEEL_SIMD float reduce_add(F a) { return _mm512_reduce_add_ps(a); }
KEEL_SIMD float reduce_max(F a) { return _mm512_reduce_max_ps(a); }
KEEL_SIMD bool any_nan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }

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
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
}
KEEL_SIMD F load_bf16(const uint16_t *p) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
KEEL_SIMD F load_i8(const int8_t *p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))));
}
KEEL_SIMD void store_f16(uint16_t *p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
KEEL_SIMD void store_bf16(uint16_t *p, F x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const __m512i picked =
        _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), rounded, quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtepi32_epi16(picked));
}

KEEL_SIMD F load_nibbles(const uint8_t *p, bool high) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    const __m128i code = _mm_and_si128(high ? _mm_srli_epi16(bytes, 4) : bytes, _mm_set1_epi8(15));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(code, _mm_set1_epi8(8))));
}
KEEL_SIMD __m256 fold(F a) {
    const __m512d d = _mm512_castps_pd(a);
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm256_castpd_ps(_mm512_extractf64x4_pd(d, 1)));
}
KEEL_SIMD void reduce_add4(float *out, F a, F b, F c, F d) {
    const __m256 x =
        _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}
#if !defined(KEEL_CPU_EMULATED_AVX512)
#define KEEL_REDUCE_ADD_4X4 // this macro shows that the instruction set defines reduce_add4x4
// Sets out[r * stride + j] to the sum of the lanes of x[r][j]. Two vectors are reduced together:
// their halves are added, then their quarters, and so on.
KEEL_SIMD void reduce_add4x4(float *out, int64_t stride, const F (*x)[4]) {
    F lanes[4]; // lanes[j]: 128-bit lane r has four partial sums of row r for key j
    for (int j = 0; j < 4; ++j) {
        const F a = _mm512_add_ps(_mm512_shuffle_f32x4(x[0][j], x[1][j], 0x44),
                                  _mm512_shuffle_f32x4(x[0][j], x[1][j], 0xee));
        const F b = _mm512_add_ps(_mm512_shuffle_f32x4(x[2][j], x[3][j], 0x44),
                                  _mm512_shuffle_f32x4(x[2][j], x[3][j], 0xee));
        lanes[j] =
            _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    }
    const F c = _mm512_add_ps(_mm512_unpacklo_ps(lanes[0], lanes[1]),
                              _mm512_unpackhi_ps(lanes[0], lanes[1]));
    const F d = _mm512_add_ps(_mm512_unpacklo_ps(lanes[2], lanes[3]),
                              _mm512_unpackhi_ps(lanes[2], lanes[3]));
    const F all = _mm512_add_ps(_mm512_shuffle_ps(c, d, 0x44), _mm512_shuffle_ps(c, d, 0xee));
    _mm_storeu_ps(out, _mm512_castps512_ps128(all));
    _mm_storeu_ps(out + stride, _mm512_extractf32x4_ps(all, 1));
    _mm_storeu_ps(out + 2 * stride, _mm512_extractf32x4_ps(all, 2));
    _mm_storeu_ps(out + 3 * stride, _mm512_extractf32x4_ps(all, 3));
}
#endif
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

// Returns e^x with the algorithm and the accuracy of simd_avx2.hpp.
KEEL_SIMD F exp(F x) {
    x = max(set1(-105.0f), min(set1(89.0f), x));
    const F n = round(mul(x, set1(1.44269504f)));
    F r = fma(n, set1(-0.693359375f), x);
    r = fma(n, set1(2.12194440e-4f), r);
    F p = set1(1.9875691500e-4f);
    p = fma(p, r, set1(1.3981999507e-3f));
    p = fma(p, r, set1(8.3334519073e-3f));
    p = fma(p, r, set1(4.1665795894e-2f));
    p = fma(p, r, set1(1.6666665459e-1f));
    p = fma(p, r, set1(5.0000001201e-1f));
    p = add(fma(mul(p, r), r, r), set1(1.0f));
#if !defined(KEEL_CPU_EMULATED_AVX512)
    return _mm512_scalef_ps(p, n);
#else
    const __m512i whole = _mm512_cvtps_epi32(n), half = _mm512_srai_epi32(whole, 1);
    const __m512i bias = _mm512_set1_epi32(127);
    const F first = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23));
    const F second = _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(whole, half), bias), 23));
    return mul(mul(p, first), second);
#endif
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

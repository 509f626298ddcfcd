// AVX-512 intrinsics made of narrower instructions, for tests on machines without AVX-512. Most of
// them come from SIMDe. This file adds functions that SIMDe 0.7.4 does not have. The shipped plugin
// does not use this file.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace keel_cpu::emulated {

#define KEEL_EMULATED static inline __attribute__((unused))

struct Halves {
    __m256i low, high;
};
template <class T> static inline Halves split(T x) {
    Halves h;
    static_assert(sizeof h == sizeof x);
    memcpy(&h, &x, sizeof h);
    return h;
}
template <class T> static inline T join(__m256i low, __m256i high) {
    const Halves h = {low, high};
    T x;
    memcpy(&x, &h, sizeof x);
    return x;
}
static inline __m256i bits(__m256 x) { return _mm256_castps_si256(x); }
static inline __m256 floats(__m256i x) { return _mm256_castsi256_ps(x); }

KEEL_EMULATED simde__m512 cvtph_ps(__m256i h) {
    return join<simde__m512>(bits(_mm256_cvtph_ps(_mm256_castsi256_si128(h))),
                             bits(_mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))));
}
KEEL_EMULATED __m256i cvtps_ph(simde__m512 x) {
    const Halves h = split(x);
    return _mm256_set_m128i(_mm256_cvtps_ph(floats(h.high), 0), _mm256_cvtps_ph(floats(h.low), 0));
}
KEEL_EMULATED float reduce_add(simde__m512 x) {
    float f[16], sum = 0;
    memcpy(f, &x, sizeof f);
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) f[i] += f[i + step];
    sum = f[0];
    return sum;
}
KEEL_EMULATED int32_t reduce_add_i32(simde__m512i x) {
    int32_t v[16], sum = 0;
    memcpy(v, &x, sizeof v);
    for (int i = 0; i < 16; ++i) sum += v[i];
    return sum;
}
KEEL_EMULATED float reduce_max(simde__m512 x) {
    float f[16];
    memcpy(f, &x, sizeof f);
    for (int step = 8; step > 0; step /= 2)
        for (int i = 0; i < step; ++i) f[i] = f[i] > f[i + step] ? f[i] : f[i + step];
    return f[0];
}
KEEL_EMULATED simde__m512 maskz_loadu_ps(uint16_t mask, const float *p) {
    float f[16];
    for (int i = 0; i < 16; ++i) f[i] = mask >> i & 1 ? p[i] : 0.0f;
    simde__m512 x;
    memcpy(&x, f, sizeof x);
    return x;
}
KEEL_EMULATED void mask_storeu_ps(float *p, uint16_t mask, simde__m512 x) {
    float f[16];
    memcpy(f, &x, sizeof f);
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) p[i] = f[i];
}
KEEL_EMULATED simde__m512i cvtepi8_epi32(__m128i x) {
    return join<simde__m512i>(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}
KEEL_EMULATED simde__m512i cvtepu16_epi32(__m256i x) {
    return join<simde__m512i>(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}
KEEL_EMULATED __m256i cvtepi32_epi16(simde__m512i x) {
    int32_t wide[16];
    int16_t narrow[16];
    memcpy(wide, &x, sizeof wide);
    for (int i = 0; i < 16; ++i) narrow[i] = static_cast<int16_t>(wide[i]);
    return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(narrow));
}
KEEL_EMULATED simde__m512 cvtepi32_ps(simde__m512i x) {
    const Halves h = split(x);
    return join<simde__m512>(bits(_mm256_cvtepi32_ps(h.low)), bits(_mm256_cvtepi32_ps(h.high)));
}
KEEL_EMULATED simde__m512i cvtps_epi32(simde__m512 x) {
    const Halves h = split(x);
    return join<simde__m512i>(_mm256_cvtps_epi32(floats(h.low)),
                              _mm256_cvtps_epi32(floats(h.high)));
}
KEEL_EMULATED simde__m512i srai_epi32(simde__m512i x, unsigned n) {
    const Halves h = split(x);
    return join<simde__m512i>(_mm256_srai_epi32(h.low, static_cast<int>(n)),
                              _mm256_srai_epi32(h.high, static_cast<int>(n)));
}
KEEL_EMULATED simde__m512 roundscale_ps(simde__m512 x) {
    const Halves h = split(x);
    return join<simde__m512>(bits(_mm256_round_ps(floats(h.low), 8)),
                             bits(_mm256_round_ps(floats(h.high), 8)));
}

} // namespace keel_cpu::emulated

// The compiler's header declares these intrinsics only for AVX-512 targets, so they are replaced.
#define _mm512_cvtph_ps(x) ::keel_cpu::emulated::cvtph_ps(x)
#define _mm512_cvtps_ph(x, mode) ::keel_cpu::emulated::cvtps_ph(x)
#define _mm512_reduce_add_ps(x) ::keel_cpu::emulated::reduce_add(x)
#define _mm512_reduce_add_epi32(x) ::keel_cpu::emulated::reduce_add_i32(x)
#define _mm512_reduce_max_ps(x) ::keel_cpu::emulated::reduce_max(x)
#define _mm512_maskz_loadu_ps(m, p) ::keel_cpu::emulated::maskz_loadu_ps(m, p)
#define _mm512_mask_storeu_ps(p, m, x) ::keel_cpu::emulated::mask_storeu_ps(p, m, x)
#define _mm512_cvtepi8_epi32(x) ::keel_cpu::emulated::cvtepi8_epi32(x)
#define _mm512_cvtepu16_epi32(x) ::keel_cpu::emulated::cvtepu16_epi32(x)
#define _mm512_cvtepi32_epi16(x) ::keel_cpu::emulated::cvtepi32_epi16(x)
#define _mm512_cvtepi32_ps(x) ::keel_cpu::emulated::cvtepi32_ps(x)
#define _mm512_cvtps_epi32(x) ::keel_cpu::emulated::cvtps_epi32(x)
#define _mm512_srai_epi32(x, n) ::keel_cpu::emulated::srai_epi32(x, n)
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(x, mode) ::keel_cpu::emulated::roundscale_ps(x)
#undef _mm512_madd_epi16 // SIMDe's alias of this name takes four arguments
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)

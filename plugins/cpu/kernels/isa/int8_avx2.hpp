// Primitives for 8-bit integers in vectors of 32 bytes. A vector holds 8 rows of 4 columns. See
// algo/matmul_q4_q8_int8.inl.
#pragma once

#include "cpu/kernels/isa/simd_avx2.hpp"

namespace keel_cpu::avx2 {

using I = __m256i;

KEEL_SIMD I load_bytes(const uint8_t *p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
}
KEEL_SIMD I spread4(const int8_t *p) { // 4 activations, repeated for all rows
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
}
KEEL_SIMD I zero_i() { return _mm256_setzero_si256(); }
KEEL_SIMD I low_nibbles(I x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
KEEL_SIMD I high_nibbles(I x) {
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}
KEEL_SIMD I abs8(I x) { return _mm256_abs_epi8(x); }
// For each 16-bit lane: sum + u0 * s0 + u1 * s1, with unsigned bytes u and signed bytes s. The
// caller ensures that the result is below 2^15.
KEEL_SIMD I dot2(I sum, I u, I s) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(u, s)); }
// For each 32-bit lane: the sum of its two 16-bit halves.
KEEL_SIMD I pairs16(I x) { return _mm256_madd_epi16(x, _mm256_set1_epi16(1)); }
// For each 32-bit lane: sum + four products of w and a, both signed. w_abs holds the magnitudes of
// w. No byte of a is -128.
KEEL_SIMD I dot4_signed(I sum, I w, I w_abs, I a) {
    const I two = _mm256_maddubs_epi16(w_abs, _mm256_sign_epi8(a, w));
    return _mm256_add_epi32(sum, pairs16(two));
}
KEEL_SIMD I sub32(I a, I b) { return _mm256_sub_epi32(a, b); }
KEEL_SIMD I set32(int32_t x) { return _mm256_set1_epi32(x); }
KEEL_SIMD F to_float(I x) { return _mm256_cvtepi32_ps(x); }
KEEL_SIMD F extract_nibble_f32(I bytes, int byte,
                               int high) { // returns one nibble of each row's byte, minus 8
    const I x =
        _mm256_and_si256(_mm256_srli_epi32(bytes, 8 * byte + 4 * high), _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(x, _mm256_set1_epi32(8)));
}
KEEL_SIMD F extract_byte_f32(I bytes, int byte) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(bytes, 24 - 8 * byte), 24));
}

// Multiplies n floats by `factor` and rounds them to signed bytes in -127..127. n is a multiple of
// 8. Returns the sum of the bytes.
KEEL_SIMD int32_t round_block(const float *x, float factor, int8_t *q) {
    const __m256 f = _mm256_set1_ps(factor);
    I v[4];
    for (int i = 0; i < 4; ++i)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), f));
    const I s = _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), _mm256_add_epi32(v[2], v[3]));
    const I low = _mm256_packs_epi32(v[0], v[1]), high = _mm256_packs_epi32(v[2], v[3]);
    // the pack instructions work within 128-bit lanes, so this puts the words in order
    const I order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const I bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(q), bytes);
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
    return _mm_cvtsi128_si32(t);
}

// Operations on G: R floats, one for each row of a group. In this instruction set G is one vector.
using G = F;
constexpr int R = W;
KEEL_SIMD G group_zero() { return zero(); }
KEEL_SIMD G group_set1(float x) { return set1(x); }
KEEL_SIMD G group_load_f16(const uint16_t *p) { return load_f16(p); }
KEEL_SIMD G group_mul(G a, G b) { return mul(a, b); }
KEEL_SIMD G group_fma(G a, G b, G c) { return fma(a, b, c); }
KEEL_SIMD void group_store(float *p, G x) { store(p, x); }

} // namespace keel_cpu::avx2

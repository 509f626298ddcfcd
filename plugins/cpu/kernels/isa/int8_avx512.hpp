// Primitives for 8-bit integers in vectors of 64 bytes. A vector holds 16 rows of 4 columns. See
// algo/matmul_q4_q8_int8.inl.
#pragma once

#include "cpu/kernels/isa/simd_avx512.hpp"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

using I = __m512i;

KEEL_SIMD I load_bytes(const uint8_t *p) { return _mm512_loadu_si512(p); }
KEEL_SIMD I spread4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}
KEEL_SIMD I zero_i() { return _mm512_setzero_si512(); }
KEEL_SIMD I low_nibbles(I x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
KEEL_SIMD I high_nibbles(I x) {
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
KEEL_SIMD I abs8(I x) { return _mm512_abs_epi8(x); }
KEEL_SIMD I dot2(I sum, I u, I s) { return _mm512_add_epi16(sum, _mm512_maddubs_epi16(u, s)); }
KEEL_SIMD I pairs16(I x) { return _mm512_madd_epi16(x, _mm512_set1_epi16(1)); }
KEEL_SIMD I dot4_signed(I sum, I w, I w_abs, I a) {
    const I turned = _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(w), _mm512_setzero_si512(),
                                          a); // AVX-512 has no instruction that copies signs
    return _mm512_add_epi32(sum, pairs16(_mm512_maddubs_epi16(w_abs, turned)));
}
#if defined(KEEL_CPU_VNNI)
#define KEEL_INT8_DOT4 // this macro shows that the instruction set defines dot4
// For each 32-bit lane: sum + four products of bytes. The bytes of u are unsigned, and the bytes of
// s are signed.
KEEL_SIMD I dot4(I sum, I u, I s) { return _mm512_dpbusd_epi32(sum, u, s); }
KEEL_SIMD I flip_signs(I x) { // turns signed bytes into unsigned bytes that are 128 larger
    return _mm512_xor_si512(x, _mm512_set1_epi8(-128));
}
#endif
KEEL_SIMD I add32(I a, I b) { return _mm512_add_epi32(a, b); }
KEEL_SIMD I sub32(I a, I b) { return _mm512_sub_epi32(a, b); }
KEEL_SIMD I set32(int32_t x) { return _mm512_set1_epi32(x); }
KEEL_SIMD F to_float(I x) { return _mm512_cvtepi32_ps(x); }
KEEL_SIMD F extract_nibble_f32(I bytes, int byte, int high) {
    const I x =
        _mm512_and_si512(_mm512_srli_epi32(bytes, static_cast<unsigned>(8 * byte + 4 * high)),
                         _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(x, _mm512_set1_epi32(8)));
}
KEEL_SIMD F extract_byte_f32(I bytes, int byte) {
    return _mm512_cvtepi32_ps(
        _mm512_srai_epi32(_mm512_slli_epi32(bytes, static_cast<unsigned>(24 - 8 * byte)), 24));
}

KEEL_SIMD int32_t round_block(const float *x, float factor, int8_t *q) {
    const F f = _mm512_set1_ps(factor);
    const I a = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), f));
    const I b = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16), f));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(q), _mm512_cvtsepi32_epi8(a));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(q + 16), _mm512_cvtsepi32_epi8(b));
    return _mm512_reduce_add_epi32(_mm512_add_epi32(a, b));
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

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

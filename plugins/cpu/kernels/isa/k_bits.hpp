// Primitives that only the K types need: bits of 32-bit lanes, wide integer sums, loads of R
// floats. This file is compiled once for each instruction set, after its int8_*.hpp.
#pragma once

namespace keel_cpu::KEEL_ISA_NAMESPACE {

#if defined(KEEL_CPU_SCALAR_KERNELS)

template <int N> KEEL_SIMD I shift_bits(I x) { // shifts left by N; right if N is negative
    for (int i = 0; i < 8; ++i) {
        const uint32_t lane = static_cast<uint32_t>(x.lane[i]);
        x.lane[i] = static_cast<int32_t>(N >= 0 ? lane << (N & 31) : lane >> (-N & 31));
    }
    return x;
}
KEEL_SIMD I and_bits(I x, uint32_t mask) {
    for (int i = 0; i < 8; ++i) x.lane[i] &= static_cast<int32_t>(mask);
    return x;
}
KEEL_SIMD I or_bits(I x, I y) {
    for (int i = 0; i < 8; ++i) x.lane[i] |= y.lane[i];
    return x;
}
KEEL_SIMD I add_lanes(I x, I y) {
    for (int i = 0; i < 8; ++i) x.lane[i] += y.lane[i];
    return x;
}
KEEL_SIMD I dot_bytes(I sum, I u, I s) {
    // For each lane: sum + four products of bytes. The bytes of u are 0 to 63. The bytes of s are
    // signed.
    return dot2(sum, u, s);
}
KEEL_SIMD G group_load(const float *p) {
    G x;
    memcpy(&x, p, sizeof x);
    return x;
}

#elif defined(KEEL_ARM_LEVEL)

KEEL_SIMD int32x4_t bytes_times(int32x4_t sum, int32x4_t u, int32x4_t s) {
    const int8x16_t a = vreinterpretq_s8_s32(u), b = vreinterpretq_s8_s32(s);
#if KEEL_ARM_LEVEL >= KEEL_ARM_DOTPROD
    return vdotq_s32(sum, a, b);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}

template <int N> KEEL_SIMD I shift_bits(I x) {
    return {down_unsigned(x.a, -N), down_unsigned(x.b, -N)};
}
KEEL_SIMD I and_bits(I x, uint32_t mask) {
    const int32x4_t m = vreinterpretq_s32_u32(vdupq_n_u32(mask));
    return {vandq_s32(x.a, m), vandq_s32(x.b, m)};
}
KEEL_SIMD I or_bits(I x, I y) { return {vorrq_s32(x.a, y.a), vorrq_s32(x.b, y.b)}; }
KEEL_SIMD I add_lanes(I x, I y) { return {vaddq_s32(x.a, y.a), vaddq_s32(x.b, y.b)}; }
KEEL_SIMD I set32(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }
KEEL_SIMD I all_rows4(const int8_t *p) { // 4 activations, repeated for all rows
    int32_t four;
    memcpy(&four, p, 4);
    return set32(four);
}
KEEL_SIMD I dot_bytes(I sum, I u, I s) {
    return {bytes_times(sum.a, u.a, s.a), bytes_times(sum.b, u.b, s.b)};
}
KEEL_SIMD G group_load(const float *p) { return load(p); }

#else

// The macro KEEL_IS_<set> is 1 in the kernel file of the AVX2 set. Compiler flags cannot say this,
// because the emulated build compiles AVX-512 kernels with AVX2 flags.
#define KEEL_IS_avx2 1
#define KEEL_JOIN_WORDS_(a, b) a##b
#define KEEL_JOIN_WORDS(a, b) KEEL_JOIN_WORDS_(a, b)
#if !KEEL_JOIN_WORDS(KEEL_IS_, KEEL_ISA_NAMESPACE)
template <int N> KEEL_SIMD I shift_bits(I x) {
    if constexpr (N >= 0)
        return _mm512_slli_epi32(x, N);
    else
        return _mm512_srli_epi32(x, -N);
}
KEEL_SIMD I and_bits(I x, uint32_t mask) {
    return _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(mask)));
}
KEEL_SIMD I or_bits(I x, I y) { return _mm512_or_si512(x, y); }
KEEL_SIMD I add_lanes(I x, I y) { return _mm512_add_epi32(x, y); }
#else
template <int N> KEEL_SIMD I shift_bits(I x) {
    if constexpr (N >= 0)
        return _mm256_slli_epi32(x, N);
    else
        return _mm256_srli_epi32(x, -N);
}
KEEL_SIMD I and_bits(I x, uint32_t mask) {
    return _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(mask)));
}
KEEL_SIMD I or_bits(I x, I y) { return _mm256_or_si256(x, y); }
KEEL_SIMD I add_lanes(I x, I y) { return _mm256_add_epi32(x, y); }
#endif
#if defined(KEEL_INT8_DOT4)
KEEL_SIMD I dot_bytes(I sum, I u, I s) { return dot4(sum, u, s); }
#else
#define KEEL_NARROW_DOTS // there is no dot_bytes, because dot2 sums pairs in 16 bits
#endif
KEEL_SIMD G group_load(const float *p) { return load(p); }

#endif

#if !defined(KEEL_ARM_LEVEL)
KEEL_SIMD I all_rows4(const int8_t *p) { return spread4(p); }
#endif

// Returns the low or the high nibble of each byte, 0..15.
template <bool High> KEEL_SIMD I nibbles_of(I x) {
    return and_bits(shift_bits < High ? -4 : 0 > (x), 0x0f0f0f0fu);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

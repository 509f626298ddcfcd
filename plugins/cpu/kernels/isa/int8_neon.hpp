// Primitives for 8-bit integers in 32 bytes, which are two registers: 8 rows of 4 columns. The sums
// of blocks are in algo/matmul_q4_q8_int8_arm.inl.
#pragma once

#include "cpu/kernels/isa/simd_neon.hpp"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

struct I {
    int32x4_t a, b; // rows 0..3 and rows 4..7; each row has one number or four bytes
};

KEEL_SIMD I load_bytes(const uint8_t *p) {
    return {vreinterpretq_s32_u8(vld1q_u8(p)), vreinterpretq_s32_u8(vld1q_u8(p + 16))};
}
KEEL_SIMD F to_float(I x) { return {vcvtq_f32_s32(x.a), vcvtq_f32_s32(x.b)}; }
// Return x >> n: down() keeps the sign, down_unsigned() shifts zeros in.
KEEL_SIMD int32x4_t down(int32x4_t x, int n) { return vshlq_s32(x, vdupq_n_s32(-n)); }
KEEL_SIMD int32x4_t down_unsigned(int32x4_t x, int n) {
    return vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x), vdupq_n_s32(-n)));
}
KEEL_SIMD F extract_nibble_f32(I x, int byte, int high) {
    const int n = 8 * byte + 4 * high;
    const int32x4_t mask = vdupq_n_s32(15), eight = vdupq_n_s32(8);
    return to_float({vsubq_s32(vandq_s32(down_unsigned(x.a, n), mask), eight),
                     vsubq_s32(vandq_s32(down_unsigned(x.b, n), mask), eight)});
}
KEEL_SIMD F extract_byte_f32(I x, int byte) {
    const int32x4_t up = vdupq_n_s32(24 - 8 * byte);
    return to_float({vshrq_n_s32(vshlq_s32(x.a, up), 24), vshrq_n_s32(vshlq_s32(x.b, up), 24)});
}

// Multiplies 32 floats by `factor` and rounds them to signed bytes. Returns the sum of the bytes.
KEEL_SIMD int32_t round_block(const float *x, float factor, int8_t *q) {
    int32x4_t v[8], sum = vdupq_n_s32(0);
    for (int i = 0; i < 8; ++i) {
        v[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), factor));
        sum = vaddq_s32(sum, v[i]);
    }
    for (int i = 0; i < 8; i += 4) {
        const int16x8_t low = vcombine_s16(vqmovn_s32(v[i]), vqmovn_s32(v[i + 1]));
        const int16x8_t high = vcombine_s16(vqmovn_s32(v[i + 2]), vqmovn_s32(v[i + 3]));
        vst1q_s8(q + 4 * i, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    }
    return vaddvq_s32(sum);
}

// Operations on G: R floats, one for each row of a group. In this instruction set G is F.
using G = F;
constexpr int R = W;
KEEL_SIMD G group_zero() { return zero(); }
KEEL_SIMD G group_set1(float x) { return set1(x); }
KEEL_SIMD G group_load_f16(const uint16_t *p) { return load_f16(p); }
KEEL_SIMD G group_mul(G x, G y) { return mul(x, y); }
KEEL_SIMD G group_fma(G x, G y, G z) { return fma(x, y, z); }
KEEL_SIMD void group_store(float *p, G x) { store(p, x); }

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

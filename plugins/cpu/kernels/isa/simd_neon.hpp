// Primitives for vectors of eight floats in two NEON registers. Every ARM64 processor has NEON.
// simd_scalar.hpp describes the functions. A kernel file defines KEEL_ARM_LEVEL, the highest
// instruction set for which it is compiled. Each level has its own namespace.
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define KEEL_SIMD static inline __attribute__((always_inline, unused))
// Use this macro before every loop over the registers of a tile, including the innermost loops.
// Without it, GCC unrolls some loops too late: it keeps the sums in memory as well as in registers
// and stores them in each iteration.
#if defined(__clang__)
#define KEEL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define KEEL_UNROLL _Pragma("GCC unroll 16")
#endif

#define KEEL_ARM_NEON 0
#define KEEL_ARM_DOTPROD 1
#define KEEL_ARM_FP16 2
#define KEEL_ARM_I8MM 3
#if KEEL_ARM_LEVEL == KEEL_ARM_NEON
#define KEEL_ISA_NAMESPACE neon
#define KEEL_ISA_WORD "neon"
#elif KEEL_ARM_LEVEL == KEEL_ARM_DOTPROD
#define KEEL_ISA_NAMESPACE dotprod
#define KEEL_ISA_WORD "dotprod"
#elif KEEL_ARM_LEVEL == KEEL_ARM_FP16
#define KEEL_ISA_NAMESPACE fp16
#define KEEL_ISA_WORD "fp16"
#else
#define KEEL_ISA_NAMESPACE i8mm
#define KEEL_ISA_WORD "i8mm"
#endif

namespace keel_cpu::KEEL_ISA_NAMESPACE {

struct F {
    float32x4_t a, b; // lanes 0..3 and lanes 4..7
};
constexpr int W = 8;
constexpr const char *isa_word = KEEL_ISA_WORD;

KEEL_SIMD F set1(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
KEEL_SIMD F zero() { return set1(0.0f); }
KEEL_SIMD F load(const float *p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
KEEL_SIMD void store(float *p, F x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
}
KEEL_SIMD F load_n(const float *p, int64_t n) {
    float x[W] = {};
    for (int64_t i = 0; i < n; ++i) x[i] = p[i];
    return load(x);
}
KEEL_SIMD void store_n(float *p, F v, int64_t n) {
    float x[W];
    store(x, v);
    for (int64_t i = 0; i < n; ++i) p[i] = x[i];
}
KEEL_SIMD F add(F x, F y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
KEEL_SIMD F sub(F x, F y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
KEEL_SIMD F mul(F x, F y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
KEEL_SIMD F div(F x, F y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)}; }
KEEL_SIMD F fma(F x, F y, F z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
// fmax and fmin are not used: if an operand is NaN, the result must be the second operand, as in
// the other sets.
KEEL_SIMD F max(F x, F y) {
    return {vbslq_f32(vcgtq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcgtq_f32(x.b, y.b), x.b, y.b)};
}
KEEL_SIMD F min(F x, F y) {
    return {vbslq_f32(vcltq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcltq_f32(x.b, y.b), x.b, y.b)};
}
KEEL_SIMD F abs(F x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
KEEL_SIMD F round(F x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b)}; }
KEEL_SIMD float reduce_add(F x) { return vaddvq_f32(vaddq_f32(x.a, x.b)); }
KEEL_SIMD float reduce_max(F x) { return vmaxvq_f32(vmaxq_f32(x.a, x.b)); }
KEEL_SIMD bool any_nan(F x) {
    return vminvq_u32(vandq_u32(vceqq_f32(x.a, x.a), vceqq_f32(x.b, x.b))) == 0;
}

KEEL_SIMD float f16_to_f32(uint16_t h) {
    __fp16 x;
    memcpy(&x, &h, 2);
    return static_cast<float>(x);
}
KEEL_SIMD uint16_t f32_to_f16(float f) {
    const __fp16 x = static_cast<__fp16>(f);
    uint16_t h;
    memcpy(&h, &x, 2);
    return h;
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
    const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
    return {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
KEEL_SIMD F load_bf16(const uint16_t *p) {
    const uint16x8_t h = vld1q_u16(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(h, 16))};
}
KEEL_SIMD F from_i8(int8x8_t x) {
    const int16x8_t wide = vmovl_s8(x);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide))), vcvtq_f32_s32(vmovl_high_s16(wide))};
}
KEEL_SIMD F load_i8(const int8_t *p) { return from_i8(vld1_s8(p)); }
KEEL_SIMD void store_f16(uint16_t *p, F x) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
}
KEEL_SIMD uint16x4_t bf16_of(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    // Takes the upper halves of the sums.
    const uint16x4_t rounded = vaddhn_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint16x4_t quiet = vorr_u16(vshrn_n_u32(bits, 16), vdup_n_u16(0x40));
    return vbsl_u16(vmovn_u32(vceqq_f32(x, x)), rounded, quiet);
}
KEEL_SIMD void store_bf16(uint16_t *p, F x) {
    vst1q_u16(p, vcombine_u16(bf16_of(x.a), bf16_of(x.b)));
}

KEEL_SIMD F load_nibbles(const uint8_t *p, bool high) {
    const uint8x8_t bytes = vld1_u8(p);
    const uint8x8_t code = high ? vshr_n_u8(bytes, 4) : vand_u8(bytes, vdup_n_u8(15));
    return from_i8(vsub_s8(vreinterpret_s8_u8(code), vdup_n_s8(8)));
}
KEEL_SIMD void reduce_add4(float *out, F x, F y, F z, F w) {
    const float32x4_t first = vpaddq_f32(vaddq_f32(x.a, x.b), vaddq_f32(y.a, y.b));
    const float32x4_t second = vpaddq_f32(vaddq_f32(z.a, z.b), vaddq_f32(w.a, w.b));
    vst1q_f32(out, vpaddq_f32(first, second));
}

// Transposes 4 x 4 floats: lane j of x[i] becomes lane i of x[j].
KEEL_SIMD void transpose4(float32x4_t (&x)[4]) {
    const float64x2_t even = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1])),
                      odd = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
    const float64x2_t even2 = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3])),
                      odd2 = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
    x[0] = vreinterpretq_f32_f64(vtrn1q_f64(even, even2));
    x[1] = vreinterpretq_f32_f64(vtrn1q_f64(odd, odd2));
    x[2] = vreinterpretq_f32_f64(vtrn2q_f64(even, even2));
    x[3] = vreinterpretq_f32_f64(vtrn2q_f64(odd, odd2));
}
// transposes eight rows while storing them
KEEL_SIMD void store_turned(const F *rows, float *dst, int64_t dst_stride) {
    for (int half = 0; half < 2; ++half) {
        const F *r = rows + 4 * half;
        float32x4_t low[4] = {r[0].a, r[1].a, r[2].a, r[3].a},
                    high[4] = {r[0].b, r[1].b, r[2].b, r[3].b};
        transpose4(low);
        transpose4(high);
        for (int c = 0; c < 4; ++c) {
            vst1q_f32(dst + c * dst_stride + 4 * half, low[c]);
            vst1q_f32(dst + (c + 4) * dst_stride + 4 * half, high[c]);
        }
    }
}
KEEL_SIMD void transpose8(const float *src, int64_t src_stride, float *dst, int64_t dst_stride) {
    F rows[8];
    for (int i = 0; i < 8; ++i) rows[i] = load(src + i * src_stride);
    store_turned(rows, dst, dst_stride);
}
KEEL_SIMD void prefetch(const void *p) { __builtin_prefetch(p); }
// Prefetches data that is needed later to the L2 cache. A prefetch to L2 does not delay the loads
// that miss the L1 cache.
KEEL_SIMD void prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }

// Returns e^x with the algorithm and the accuracy of simd_avx2.hpp. The fmax and fmin used here
// return NaN if an operand is NaN.
KEEL_SIMD float32x4_t exp4(float32x4_t x) {
    x = vmaxq_f32(vdupq_n_f32(-105.0f), vminq_f32(vdupq_n_f32(89.0f), x));
    const float32x4_t n = vrndnq_f32(vmulq_f32(x, vdupq_n_f32(1.44269504f)));
    float32x4_t r = vfmaq_f32(x, n, vdupq_n_f32(-0.693359375f));
    r = vfmaq_f32(r, n, vdupq_n_f32(2.12194440e-4f));
    float32x4_t p = vdupq_n_f32(1.9875691500e-4f);
    p = vfmaq_f32(vdupq_n_f32(1.3981999507e-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(8.3334519073e-3f), p, r);
    p = vfmaq_f32(vdupq_n_f32(4.1665795894e-2f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.6666665459e-1f), p, r);
    p = vfmaq_f32(vdupq_n_f32(5.0000001201e-1f), p, r);
    p = vaddq_f32(vfmaq_f32(r, vmulq_f32(p, r), r), vdupq_n_f32(1.0f));
    const int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    const float32x4_t first = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    const float32x4_t second =
        vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23));
    return vmulq_f32(vmulq_f32(p, first), second);
}
KEEL_SIMD F exp(F x) { return {exp4(x.a), exp4(x.b)}; }

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

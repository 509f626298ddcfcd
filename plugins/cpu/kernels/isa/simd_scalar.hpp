// Primitives for "vectors" of one float in plain C++, which run on every processor. This file
// describes the functions that each simd_*.hpp defines under the same names. The other files must
// give the same results. A simd_*.hpp is included once in each kernel file, outside any namespace.
// Every function is internal to its file, so that the linker cannot use code of one instruction set
// in the code of another.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

// The macros of the other instruction sets contain always_inline, but this macro does not. With
// always_inline, compilers needed minutes for this file, because they inlined every loop over the
// lanes of the type I.
#define KEEL_SIMD static inline __attribute__((unused))
#define KEEL_UNROLL // simd_neon.hpp describes the use of this macro
#define KEEL_ISA_NAMESPACE scalar

namespace keel_cpu::scalar {

using F = float;
constexpr int W = 1; // number of floats in an F
constexpr const char *isa_word = "scalar";

KEEL_SIMD F set1(float x) { return x; }
KEEL_SIMD F zero() { return 0.0f; }
KEEL_SIMD F load(const float *p) { return *p; }
KEEL_SIMD void store(float *p, F x) { *p = x; }
// load_n returns the first n < W floats, followed by zeros. store_n stores the first n floats. Here
// W is 1, so n is 0.
KEEL_SIMD F load_n(const float *p, int64_t n) { return n > 0 ? *p : 0.0f; }
KEEL_SIMD void store_n(float *p, F x, int64_t n) {
    if (n > 0) *p = x;
}
KEEL_SIMD F add(F a, F b) { return a + b; }
KEEL_SIMD F sub(F a, F b) { return a - b; }
KEEL_SIMD F mul(F a, F b) { return a * b; }
KEEL_SIMD F div(F a, F b) { return a / b; }
KEEL_SIMD F fma(F a, F b, F c) { return a * b + c; } // the other sets round only once
KEEL_SIMD F max(F a, F b) { return a > b ? a : b; }  // b if one operand is NaN
KEEL_SIMD F min(F a, F b) { return a < b ? a : b; }  // b if one operand is NaN
KEEL_SIMD F abs(F a) { return fabsf(a); }
KEEL_SIMD F round(F a) { return rintf(a); } // rounds to the nearest integer, ties to even
KEEL_SIMD float reduce_add(F a) { return a; }
KEEL_SIMD float reduce_max(F a) { return a; }
// Returns true if a lane is NaN.
KEEL_SIMD bool any_nan(F a) { return a != a; }

KEEL_SIMD float f16_to_f32(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, rest = h & 0x7fffu;
    uint32_t bits;
    float f;
    if (rest >= 0x7c00u) { // infinity or NaN; a NaN becomes quiet
        bits = sign | 0x7f800000u | (rest & 0x3ffu) << 13 | (rest > 0x7c00u ? 0x400000u : 0u);
    } else if (rest >= 0x400u) {
        bits = sign | ((rest << 13) + 0x38000000u);
    } else { // zero or subnormal: the value is rest * 2^-24
        f = static_cast<float>(rest) * 5.9604644775390625e-8f;
        memcpy(&bits, &f, 4);
        bits |= sign;
    }
    memcpy(&f, &bits, 4);
    return f;
}

KEEL_SIMD uint16_t f32_to_f16(float f) { // rounds to nearest, ties to even
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    // f is NaN.
    if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    // values above 65504 become infinity
    if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (rest >= 0x38800000u)
        return static_cast<uint16_t>(sign |
                                     ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13));
    float magnitude; // the result is subnormal: adding 0.5 makes the processor round at 2^-24
    memcpy(&magnitude, &rest, 4);
    magnitude += 0.5f;
    uint32_t sum;
    memcpy(&sum, &magnitude, 4);
    return static_cast<uint16_t>(sign | (sum - 0x3f000000u));
}

KEEL_SIMD float bf16_to_f32(uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

KEEL_SIMD uint16_t f32_to_bf16(float f) { // rounds to nearest, ties to even
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

KEEL_SIMD F load_f16(const uint16_t *p) { return f16_to_f32(*p); }
KEEL_SIMD F load_bf16(const uint16_t *p) { return bf16_to_f32(*p); }
KEEL_SIMD F load_i8(const int8_t *p) { return static_cast<float>(*p); }
KEEL_SIMD void store_f16(uint16_t *p, F x) { *p = f32_to_f16(x); }
KEEL_SIMD void store_bf16(uint16_t *p, F x) { *p = f32_to_bf16(x); }

// Loads W codes of q4_0, minus 8. They are the low or the high nibbles of W bytes.
KEEL_SIMD F load_nibbles(const uint8_t *p, bool high) {
    return static_cast<float>((high ? *p >> 4 : *p & 15) - 8);
}
// Stores the sum of the lanes of each of four vectors to out[0..3].
KEEL_SIMD void reduce_add4(float *out, F a, F b, F c, F d) {
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
}
// Transposes eight rows and columns: dst[c * dst_stride + r] = src[r * src_stride + c].
KEEL_SIMD void transpose8(const float *src, int64_t src_stride, float *dst, int64_t dst_stride) {
    for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) dst[c * dst_stride + r] = src[r * src_stride + c];
}
KEEL_SIMD void prefetch(const void *p) { __builtin_prefetch(p); }
// Prefetches data that is needed later to the L2 cache. A prefetch to L2 does not delay the loads
// that miss the L1 cache.
KEEL_SIMD void prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }

KEEL_SIMD F exp(F x) { return expf(x); }

} // namespace keel_cpu::scalar

// Primitives for 8-bit integers in 32 bytes, in plain C++: 8 rows of 4 columns. See
// algo/matmul_q4_q8_int8.inl. Compilers can vectorize these loops with the instructions that every
// processor of the architecture has.
#pragma once

#include "cpu/kernels/isa/simd_scalar.hpp"

namespace keel_cpu::scalar {

struct I {
    int32_t lane[8]; // a lane is four bytes, or two 16-bit numbers, or one number
};
// Eight floats. Only the sums of the int8 kernels use this type.
struct F8 {
    float lane[8];
};

#define KEEL_LANES for (int i = 0; i < 8; ++i)
KEEL_SIMD int32_t byte_of(int32_t x, int b) { return x >> 8 * b & 255; }
KEEL_SIMD int32_t signed_byte_of(int32_t x, int b) { return static_cast<int8_t>(x >> 8 * b & 255); }

KEEL_SIMD I load_bytes(const uint8_t *p) {
    I x;
    memcpy(&x, p, sizeof x);
    return x;
}
KEEL_SIMD I set32(int32_t v) {
    I x;
    KEEL_LANES x.lane[i] = v;
    return x;
}
KEEL_SIMD I spread4(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, 4);
    return set32(four);
}
KEEL_SIMD I zero_i() { return set32(0); }
KEEL_SIMD I low_nibbles(I x) {
    KEEL_LANES x.lane[i] &= 0x0f0f0f0f;
    return x;
}
KEEL_SIMD I high_nibbles(I x) {
    KEEL_LANES x.lane[i] = x.lane[i] >> 4 & 0x0f0f0f0f;
    return x;
}
KEEL_SIMD I abs8(I x) { return x; } // dot4_signed does not need magnitudes in this set
// Adds all four products of a lane to `sum`. In the other sets, intermediate results have 16 bits.
// In this set they do not.
KEEL_SIMD I dot2(I sum, I u, I s) {
    KEEL_LANES for (int b = 0; b < 4; ++b) sum.lane[i] +=
        byte_of(u.lane[i], b) * signed_byte_of(s.lane[i], b);
    return sum;
}
KEEL_SIMD I pairs16(I x) { return x; }
KEEL_SIMD I dot4_signed(I sum, I w, I, I a) {
    KEEL_LANES for (int b = 0; b < 4; ++b) sum.lane[i] +=
        signed_byte_of(w.lane[i], b) * signed_byte_of(a.lane[i], b);
    return sum;
}
KEEL_SIMD I sub32(I a, I b) {
    KEEL_LANES a.lane[i] -= b.lane[i];
    return a;
}
KEEL_SIMD F8 to_float(I x) {
    F8 f;
    KEEL_LANES f.lane[i] = static_cast<float>(x.lane[i]);
    return f;
}
KEEL_SIMD F8 extract_nibble_f32(I x, int byte, int high) {
    F8 f;
    KEEL_LANES f.lane[i] = static_cast<float>((x.lane[i] >> (8 * byte + 4 * high) & 15) - 8);
    return f;
}
KEEL_SIMD F8 extract_byte_f32(I x, int byte) {
    F8 f;
    KEEL_LANES f.lane[i] = static_cast<float>(signed_byte_of(x.lane[i], byte));
    return f;
}

KEEL_SIMD int32_t round_block(const float *x, float factor, int8_t *q) {
    int32_t sum = 0;
    for (int i = 0; i < 32; ++i) {
        const int32_t v = static_cast<int32_t>(rintf(x[i] * factor));
        q[i] = static_cast<int8_t>(v);
        sum += v;
    }
    return sum;
}

// Operations of the int8 kernels on G: R floats, one for each row of a group.
KEEL_SIMD F8 group_zero() { return {}; }
KEEL_SIMD F8 group_set1(float v) {
    F8 f;
    KEEL_LANES f.lane[i] = v;
    return f;
}
KEEL_SIMD F8 group_load_f16(const uint16_t *p) {
    F8 f;
    KEEL_LANES f.lane[i] = f16_to_f32(p[i]);
    return f;
}
KEEL_SIMD F8 group_mul(F8 a, F8 b) {
    KEEL_LANES a.lane[i] *= b.lane[i];
    return a;
}
KEEL_SIMD F8 group_fma(F8 a, F8 b, F8 c) {
    KEEL_LANES c.lane[i] += a.lane[i] * b.lane[i];
    return c;
}
KEEL_SIMD void group_store(float *p, F8 f) { memcpy(p, f.lane, sizeof f.lane); }
#undef KEEL_LANES

using G = F8;
constexpr int R = 8;

} // namespace keel_cpu::scalar

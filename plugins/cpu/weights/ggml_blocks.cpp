#include "cpu/weights/ggml_blocks.hpp"

#include "cpu/kernels/isa/simd_scalar.hpp"

namespace keel_cpu {
namespace {

constexpr uint16_t f16_nan = 0x7e00;

// Returns the value with the largest magnitude. If several values have it, returns the first one.
// Returns NaN if a value is not finite.
float extreme(const float *x) {
    float best = 0.0f;
    for (int i = 0; i < 32; ++i) {
        if (!(fabsf(x[i]) <= 3.402823466e38f)) return __builtin_nanf("");
        if (fabsf(x[i]) > fabsf(best)) best = x[i];
    }
    return best;
}

// The scale of a block. bits: the scale as an f16, as it is stored. inverse: 1 / scale. If 1 /
// scale is not finite, inverse is 0, so that all codes become 0.
struct Scale {
    uint16_t bits;
    float inverse;
};

Scale make_scale(float d) {
    if (d != d || fabsf(d) > 65504.0f) return {f16_nan, 0.0f};
    const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    if (!(fabsf(inverse) <= 3.402823466e38f)) return {0, 0.0f};
    return {scalar::f32_to_f16(d), inverse};
}

} // namespace

void quantize_q8_0(const float *x, int64_t n, uint8_t *out) {
    for (int64_t b = 0; b < n / 32; ++b, x += 32, out += 34) {
        const Scale s = make_scale(fabsf(extreme(x)) / 127.0f);
        memcpy(out, &s.bits, 2);
        for (int i = 0; i < 32; ++i) {
            const int q = s.inverse == 0.0f ? 0 : static_cast<int>(roundf(x[i] * s.inverse));
            out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(q));
        }
    }
}

void quantize_q4_0(const float *x, int64_t n, uint8_t *out) {
    const auto code = [](float v, float inverse) {
        if (inverse == 0.0f) return 8;
        const int q = static_cast<int>(v * inverse + 8.5f);
        return q < 15 ? q : 15;
    };
    for (int64_t b = 0; b < n / 32; ++b, x += 32, out += 18) {
        const Scale s = make_scale(extreme(x) / -8.0f);
        memcpy(out, &s.bits, 2);
        for (int i = 0; i < 16; ++i)
            out[2 + i] =
                static_cast<uint8_t>(code(x[i], s.inverse) | code(x[i + 16], s.inverse) << 4);
    }
}

} // namespace keel_cpu

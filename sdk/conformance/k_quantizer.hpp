#pragma once

#include "numbers/convert.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace keel::test {

// Makes blocks of q4_k, q5_k and q6_k whose values are near the given values. It derives each scale
// from the range of its group. (llama-quantize searches for a better scale.) `count` is a multiple
// of 256. A block with a value that is not finite decodes to NaN.
class KQuantizer {
  public:
    static void quantize(keel_dtype dtype, const float *x, size_t count, uint8_t *out) {
        for (size_t b = 0; b < count / 256; ++b, x += 256, out += keel_dtype_bytes(dtype)) {
            std::memset(out, 0, keel_dtype_bytes(dtype));
            const bool finite = std::all_of(x, x + 256, [](float v) { return std::isfinite(v); });
            if (!finite) {
                put_half(out + (dtype == KEEL_DTYPE_Q6_K ? 208 : 0),
                         std::numeric_limits<float>::quiet_NaN());
            } else if (dtype == KEEL_DTYPE_Q6_K) {
                block_q6(x, out);
            } else {
                block_q45(dtype == KEEL_DTYPE_Q5_K, x, out);
            }
        }
    }

  private:
    // Stores the value as f16 and returns the stored value as a float.
    static float put_half(uint8_t *at, float value) {
        const uint16_t bits = f32_to_f16(value);
        std::memcpy(at, &bits, 2);
        return f16_to_f32(bits);
    }
    static int rounded(float x, int low, int high) {
        return static_cast<int>(
            std::lround(std::clamp(x, static_cast<float>(low), static_cast<float>(high))));
    }
    static int part_of(float x, float unit, int low, int high) {
        return unit == 0 ? 0 : rounded(x / unit, low, high);
    }
    static void add(uint8_t &byte, int bits) { byte = static_cast<uint8_t>(byte | bits); }

    // Every second group gets a negative scale, which the format allows.
    static void block_q6(const float *x, uint8_t *out) {
        float scales[16], largest = 0;
        for (int g = 0; g < 16; ++g) {
            float most = 0;
            for (int i = 0; i < 16; ++i) most = std::max(most, std::fabs(x[16 * g + i]));
            scales[g] = most / (g % 2 == 0 ? 31.0F : -31.0F);
            largest = std::max(largest, most / 31);
        }
        const float d = put_half(out + 208, largest / 127);
        for (int g = 0; g < 16; ++g) {
            const int s = part_of(scales[g], d, -127, 127);
            out[192 + g] = static_cast<uint8_t>(static_cast<int8_t>(s));
            for (int i = 0; i < 16; ++i) {
                const int at = 16 * g + i, half = at / 128, j = at % 128;
                const int q = part_of(x[at], d * static_cast<float>(s), -32, 31) + 32;
                add(out[half * 64 + j % 64], (q & 15) << j / 64 * 4);
                add(out[128 + half * 32 + j % 32], q >> 4 << j / 32 * 2);
            }
        }
    }

    static void block_q45(bool five, const float *x, uint8_t *out) {
        const int most = five ? 31 : 15;
        float scales[8], least[8];
        for (int g = 0; g < 8; ++g) {
            const auto [low, high] = std::minmax_element(x + 32 * g, x + 32 * g + 32);
            least[g] = std::max(0.0F, -*low);
            scales[g] = std::max(0.0F, *high + least[g]) / static_cast<float>(most);
        }
        const float d = put_half(out, *std::max_element(scales, scales + 8) / 63);
        const float dmin = put_half(out + 2, *std::max_element(least, least + 8) / 63);
        uint8_t *p = out + 4;
        for (int g = 0; g < 8; ++g) {
            const int s = part_of(scales[g], d, 0, 63), z = part_of(least[g], dmin, 0, 63);
            if (g < 4) {
                add(p[g], s);
                add(p[g + 4], z);
            } else {
                add(p[g + 4], (s & 15) | (z & 15) << 4);
                add(p[g - 4], s >> 4 << 6);
                add(p[g], z >> 4 << 6);
            }
            for (int j = 0; j < 32; ++j) {
                const float above = x[32 * g + j] + dmin * static_cast<float>(z);
                const int q = part_of(above, d * static_cast<float>(s), 0, most);
                add(out[(five ? 48 : 16) + g / 2 * 32 + j], (q & 15) << g % 2 * 4);
                if (five) add(out[16 + j], q >> 4 << g);
            }
        }
    }
};

} // namespace keel::test

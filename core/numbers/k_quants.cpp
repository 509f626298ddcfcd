#include "numbers/k_quants.hpp"

#include "numbers/convert.hpp"

#include <cstdint>
#include <cstring>

namespace keel {
namespace {

constexpr size_t super = 256; // values in a block
constexpr size_t small = 32;  // values in a group of Q4_K and Q5_K

uint8_t byte_at(const std::byte *p, size_t i) { return std::to_integer<uint8_t>(p[i]); }

float half_at(const std::byte *p) {
    uint16_t bits = 0;
    std::memcpy(&bits, p, sizeof bits);
    return f16_to_f32(bits);
}

// The scale and the minimum, six bits each, of one of the eight groups of 32 values in a block of
// Q4_K or Q5_K. They are stored in 12 bytes. The low six bits of the first eight bytes hold the
// scales and minima of groups 0 to 3. The scales and minima of groups 4 to 7 are split. Their low
// four bits are in the last four bytes. Their upper two bits are the top two bits of the first
// eight bytes.
struct Group {
    float scale, minimum;
};
Group group_at(const std::byte *packed, size_t i) {
    if (i < 4) {
        return {static_cast<float>(byte_at(packed, i) & 63U),
                static_cast<float>(byte_at(packed, i + 4) & 63U)};
    }
    const uint32_t both = byte_at(packed, i + 4);
    const uint32_t scale = (both & 0xFU) | (byte_at(packed, i - 4) >> 6U) << 4U;
    const uint32_t minimum = both >> 4U | (byte_at(packed, i) >> 6U) << 4U;
    return {static_cast<float>(scale), static_cast<float>(minimum)};
}

// The block has d, dmin, 12 bytes of groups, and 128 bytes of nibbles. Each 32 bytes of nibbles
// hold two groups; the first group is in the low nibbles.
void decode_q4_k(const std::byte *in, float *out) {
    const float d = half_at(in), dmin = half_at(in + 2);
    for (size_t g = 0; g < super / small; ++g) {
        const Group group = group_at(in + 4, g);
        const float scale = d * group.scale, minimum = dmin * group.minimum;
        const std::byte *nibbles = in + 16 + g / 2 * small;
        for (size_t j = 0; j < small; ++j) {
            const uint32_t q = byte_at(nibbles, j) >> (g % 2 * 4) & 0xFU;
            out[g * small + j] = scale * static_cast<float>(q) - minimum;
        }
    }
}

// Like Q4_K, but 32 bytes of fifth bits precede the nibbles. Bit g of byte j belongs to value j of
// group g.
void decode_q5_k(const std::byte *in, float *out) {
    const float d = half_at(in), dmin = half_at(in + 2);
    for (size_t g = 0; g < super / small; ++g) {
        const Group group = group_at(in + 4, g);
        const float scale = d * group.scale, minimum = dmin * group.minimum;
        const std::byte *high = in + 16, *nibbles = in + 48 + g / 2 * small;
        for (size_t j = 0; j < small; ++j) {
            const uint32_t q =
                (byte_at(nibbles, j) >> (g % 2 * 4) & 0xFU) | (byte_at(high, j) >> g & 1U) << 4U;
            out[g * small + j] = scale * static_cast<float>(q) - minimum;
        }
    }
}

// The block has 128 bytes of low nibbles, 64 bytes of upper two bits, 16 int8 scales for 16 values
// each, and d. Each half of a block has its own 64 and 32 bytes. Value j of a half is in nibble j /
// 64 of byte j % 64, and in bits 2 * (j / 32) of byte j % 32. The loop works in runs of 16 values,
// which share one scale and one bit position, so compilers turn it into SIMD code.
void decode_q6_k(const std::byte *in, float *out) {
    const float d = half_at(in + 208);
    for (size_t run = 0; run < super / 16; ++run) {
        const size_t half = run / 8, j = run % 8 * 16; // j: first value of the run within the half
        const std::byte *low = in + half * 64 + j % 64, *high = in + 128 + half * 32 + j % 32;
        const size_t low_shift = j / 64 * 4, high_shift = j / 32 * 2;
        const float scale = d * static_cast<float>(static_cast<int8_t>(byte_at(in, 192 + run)));
        for (size_t k = 0; k < 16; ++k) {
            const uint32_t q =
                (byte_at(low, k) >> low_shift & 0xFU) | (byte_at(high, k) >> high_shift & 3U) << 4U;
            out[run * 16 + k] = scale * static_cast<float>(static_cast<int32_t>(q) - 32);
        }
    }
}

} // namespace

void dequantize_k(keel_dtype from, const std::byte *src, float *dst, size_t count) {
    const size_t bytes = keel_dtype_bytes(from);
    for (size_t b = 0; b < count / super; ++b, src += bytes, dst += super) {
        if (from == KEEL_DTYPE_Q4_K) {
            decode_q4_k(src, dst);
        } else if (from == KEEL_DTYPE_Q5_K) {
            decode_q5_k(src, dst);
        } else {
            decode_q6_k(src, dst);
        }
    }
}

} // namespace keel

#include "numbers/convert.hpp"

#include "base/error.hpp"
#include "numbers/k_quants.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace keel {
namespace {

constexpr size_t block = 32;
constexpr size_t q8_bytes = 34;
constexpr size_t q4_bytes = 18;
constexpr float f16_max = 65504.0F;

template <typename T> T load(const std::byte *p) {
    T value;
    std::memcpy(&value, p, sizeof(T));
    return value;
}

template <typename T> void store(std::byte *p, T value) { std::memcpy(p, &value, sizeof(T)); }

uint32_t choose(bool condition, uint32_t yes, uint32_t no) {
    const uint32_t mask = 0U - static_cast<uint32_t>(condition);
    return (yes & mask) | (no & ~mask);
}

// Same as roundf() (ties away from zero) for |x| < 2^31, in a form that compilers vectorize. x -
// trunc(x) is exact.
int round_half_away(float x) {
    const int whole = static_cast<int>(x);
    const float rest = x - static_cast<float>(whole);
    return whole + static_cast<int>(rest >= 0.5F) - static_cast<int>(rest <= -0.5F);
}

// Returns the largest magnitude of a block, as the bits of a float. Compared as bits, NaN is larger
// than every number. Unlike a maximum of floats, this loop can run in any order.
int32_t largest_bits(const float *x) {
    int32_t largest = 0;
    for (size_t i = 0; i < block; ++i)
        largest = std::max(largest, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
    return largest;
}

bool is_finite(int32_t bits) { return bits < 0x7F800000; }

bool scale_fits(float d) {
    return std::fabs(d) <= f16_max; // if d is larger, GGML stores infinity; Keel refuses the block
}

// Writes a block whose values read as NaN, because the block cannot hold the given values. So every
// use of the block shows the error.
bool not_a_number(std::byte *out) {
    store(out, uint16_t{0x7E00});
    return false;
}

bool quantize_q8_0(const float *x, std::byte *out) {
    std::memset(out, 0, q8_bytes);
    const int32_t largest = largest_bits(x);
    if (!is_finite(largest)) return not_a_number(out);
    const float d = std::bit_cast<float>(largest) / 127.0F;
    if (!scale_fits(d)) return not_a_number(out);
    const float inverse = d != 0 ? 1.0F / d : 0.0F;
    // a subnormal scale has no finite inverse; the block's scale is zero in f16 anyway
    if (!std::isfinite(inverse)) return true;
    store(out, f32_to_f16(d));
    int8_t q[block];
    for (size_t i = 0; i < block; ++i) q[i] = static_cast<int8_t>(round_half_away(x[i] * inverse));
    std::memcpy(out + 2, q, block);
    return true;
}

bool quantize_q4_0(const float *x, std::byte *out) {
    std::memset(out, 0, q4_bytes);
    const uint8_t zero = 0x88; // both nibbles are 8, which means 0
    std::memset(out + 2, zero, block / 2);
    const int32_t largest = largest_bits(x);
    if (!is_finite(largest)) return not_a_number(out);
    // If several values have the largest magnitude, the sign of the first of them counts.
    size_t first = 0;
    while ((std::bit_cast<int32_t>(x[first]) & 0x7FFFFFFF) != largest) ++first;
    const float d = x[first] / -8.0F;
    if (!scale_fits(d)) return not_a_number(out);
    const float inverse = d != 0 ? 1.0F / d : 0.0F;
    if (!std::isfinite(inverse)) return true;
    store(out, f32_to_f16(d));
    uint8_t q[block];
    for (size_t i = 0; i < block; ++i) {
        q[i] = static_cast<uint8_t>(std::min(15, static_cast<int>(x[i] * inverse + 8.5F)));
    }
    uint8_t packed[block / 2];
    for (size_t j = 0; j < block / 2; ++j)
        packed[j] = static_cast<uint8_t>(q[j] | (q[j + block / 2] << 4));
    std::memcpy(out + 2, packed, block / 2);
    return true;
}

void dequantize_q8_0(const std::byte *in, float *y) {
    const float d = f16_to_f32(load<uint16_t>(in));
    int8_t q[block];
    std::memcpy(q, in + 2, block);
    for (size_t i = 0; i < block; ++i) y[i] = static_cast<float>(q[i]) * d;
}

void dequantize_q4_0(const std::byte *in, float *y) {
    const float d = f16_to_f32(load<uint16_t>(in));
    uint8_t packed[block / 2];
    std::memcpy(packed, in + 2, block / 2);
    for (size_t j = 0; j < block / 2; ++j) {
        y[j] = static_cast<float>((packed[j] & 0xF) - 8) * d;
        y[j + block / 2] = static_cast<float>((packed[j] >> 4) - 8) * d;
    }
}

[[noreturn]] void no_such_type(keel_dtype type) {
    throw_error(ErrorKind::internal, "values of type {} cannot be converted",
                keel_dtype_name(type));
}

} // namespace

// Each of the three conversions below computes all cases and selects one by a mask. Without
// branches, compilers turn loops that call these functions into SIMD code.
uint16_t f32_to_f16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    const uint32_t normal = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
    // Below 2^-14: the addition of 0.5 rounds the value to the bits of the subnormal. The low bits
    // of the sum are these bits.
    const float below = std::bit_cast<float>(choose(magnitude < 0x38800000U, magnitude, 0U));
    const uint32_t subnormal = std::bit_cast<uint32_t>(below + 0.5F) - 0x3F000000U;
    const uint32_t nan = 0x7E00U | ((magnitude >> 13) & 0x1FFU);
    uint32_t half = choose(magnitude < 0x38800000U, subnormal, normal);
    // 65520 and larger values round to infinity
    half = choose(magnitude >= 0x477FF000U, 0x7C00U, half);
    half = choose(magnitude > 0x7F800000U, nan, half);
    return static_cast<uint16_t>(sign | half);
}

float f16_to_f32(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000U) << 16;
    const uint32_t magnitude = bits & 0x7FFFU;
    // Subnormals are computed from an integer, so they are also right on a thread that flushes
    // subnormal floats to zero.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
    const uint32_t normal = (magnitude << 13) + 0x38000000U;
    const uint32_t special =
        (magnitude << 13) | 0x7F800000U | choose(magnitude > 0x7C00U, 0x00400000U, 0U);
    const uint32_t finite = choose(magnitude < 0x0400U, subnormal, normal);
    return std::bit_cast<float>(sign | choose(magnitude >= 0x7C00U, special, finite));
}

uint16_t f32_to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40U;
    return static_cast<uint16_t>(choose((bits & 0x7FFFFFFFU) > 0x7F800000U, nan, rounded));
}

float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

void convert_to_f32(keel_dtype from, const void *src, float *dst, size_t count) {
    const auto *in = static_cast<const std::byte *>(src);
    switch (from) {
    case KEEL_DTYPE_F32:
        if (count != 0) std::memcpy(dst, in, count * sizeof(float));
        return;
    case KEEL_DTYPE_F16:
        for (size_t i = 0; i < count; ++i) dst[i] = f16_to_f32(load<uint16_t>(in + 2 * i));
        return;
    case KEEL_DTYPE_BF16:
        for (size_t i = 0; i < count; ++i) dst[i] = bf16_to_f32(load<uint16_t>(in + 2 * i));
        return;
    case KEEL_DTYPE_Q8_0:
        for (size_t b = 0; b < count / block; ++b)
            dequantize_q8_0(in + b * q8_bytes, dst + b * block);
        return;
    case KEEL_DTYPE_Q4_0:
        for (size_t b = 0; b < count / block; ++b)
            dequantize_q4_0(in + b * q4_bytes, dst + b * block);
        return;
    case KEEL_DTYPE_Q4_K:
    case KEEL_DTYPE_Q5_K:
    case KEEL_DTYPE_Q6_K: return dequantize_k(from, in, dst, count);
    default: no_such_type(from);
    }
}

bool convert_from_f32(keel_dtype to, const float *src, void *dst, size_t count) {
    auto *out = static_cast<std::byte *>(dst);
    bool exact = true;
    switch (to) {
    case KEEL_DTYPE_F32:
        if (count != 0) std::memcpy(out, src, count * sizeof(float));
        return true;
    case KEEL_DTYPE_F16:
        for (size_t i = 0; i < count; ++i) store(out + 2 * i, f32_to_f16(src[i]));
        return true;
    case KEEL_DTYPE_BF16:
        for (size_t i = 0; i < count; ++i) store(out + 2 * i, f32_to_bf16(src[i]));
        return true;
    case KEEL_DTYPE_Q8_0:
        for (size_t b = 0; b < count / block; ++b)
            exact &= quantize_q8_0(src + b * block, out + b * q8_bytes);
        return exact;
    case KEEL_DTYPE_Q4_0:
        for (size_t b = 0; b < count / block; ++b)
            exact &= quantize_q4_0(src + b * block, out + b * q4_bytes);
        return exact;
    default: no_such_type(to);
    }
}

} // namespace keel

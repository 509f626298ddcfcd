#include "format/ggml_blocks.hpp"

#include "base/error.hpp"
#include "format/ggml_type.hpp"
#include "numbers/convert.hpp"

#include <cstring>

namespace keel {
namespace {

constexpr size_t small = 32; // values in a block

uint8_t byte_at(const std::byte *p, size_t i) { return std::to_integer<uint8_t>(p[i]); }

float half_at(const std::byte *p) {
    uint16_t bits = 0;
    std::memcpy(&bits, p, sizeof bits);
    return f16_to_f32(bits);
}

uint32_t word_at(const std::byte *p) {
    uint32_t bits = 0;
    std::memcpy(&bits, p, sizeof bits);
    return bits;
}

// The block has d, m, and 16 bytes. Value j is in the low nibble of byte j, value j + 16 in the
// high nibble. value = d * q + m.
void decode_q4_1(const std::byte *in, float *out) {
    const float d = half_at(in), m = half_at(in + 2);
    for (size_t j = 0; j < small / 2; ++j) {
        const uint8_t q = byte_at(in, 4 + j);
        out[j] = static_cast<float>(q & 0xF) * d + m;
        out[j + small / 2] = static_cast<float>(q >> 4) * d + m;
    }
}

// Reads 32 values of five bits to `q`. The low four bits are nibbles in the order of decode_q4_1().
// The fifth bit of value j is bit j of `high`.
void five_bits(const std::byte *nibbles, uint32_t high, int32_t *q) {
    for (uint32_t j = 0; j < small / 2; ++j) {
        const uint32_t both = byte_at(nibbles, j);
        q[j] = static_cast<int32_t>((both & 0xFU) | (high >> j & 1U) << 4U);
        q[j + small / 2] = static_cast<int32_t>(both >> 4U | (high >> (j + small / 2) & 1U) << 4U);
    }
}

// The block has d, the high bits, and the nibbles. value = d * (q - 16).
void decode_q5_0(const std::byte *in, float *out) {
    const float d = half_at(in);
    int32_t q[small];
    five_bits(in + 6, word_at(in + 2), q);
    for (size_t j = 0; j < small; ++j) out[j] = static_cast<float>(q[j] - 16) * d;
}

// The block has d, m, the high bits, and the nibbles. value = d * q + m.
void decode_q5_1(const std::byte *in, float *out) {
    const float d = half_at(in), m = half_at(in + 2);
    int32_t q[small];
    five_bits(in + 8, word_at(in + 4), q);
    for (size_t j = 0; j < small; ++j) out[j] = static_cast<float>(q[j]) * d + m;
}

template <keel_dtype Type> void decode_k(const std::byte *in, float *out) {
    convert_to_f32(Type, in, out, keel_dtype_block(Type));
}

using Decode = void (*)(const std::byte *, float *);

Decode decoder(uint32_t type) {
    switch (type) {
    case ggml::q4_1: return decode_q4_1;
    case ggml::q5_0: return decode_q5_0;
    case ggml::q5_1: return decode_q5_1;
    case ggml::q4_k: return decode_k<KEEL_DTYPE_Q4_K>;
    case ggml::q5_k: return decode_k<KEEL_DTYPE_Q5_K>;
    case ggml::q6_k: return decode_k<KEEL_DTYPE_Q6_K>;
    default: return nullptr;
    }
}

} // namespace

bool can_decode_ggml(uint32_t type) { return decoder(type) != nullptr; }

void decode_ggml_blocks(uint32_t type, const void *src, float *dst, size_t count) {
    const Decode decode = decoder(type);
    if (decode == nullptr)
        throw_error(ErrorKind::internal, "blocks of GGML type {} cannot be decoded", type);
    const GgmlType &row = *find_ggml_type(type);
    const auto *in = static_cast<const std::byte *>(src);
    for (size_t b = 0; b < count / row.block; ++b) decode(in + b * row.bytes, dst + b * row.block);
}

} // namespace keel

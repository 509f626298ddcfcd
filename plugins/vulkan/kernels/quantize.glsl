// Converts blocks of 32 floats to q8_0 and q4_0, with the same result as GGML's reference quantizer
// (core/numbers/convert.cpp).

// Rounds like roundf: ties away from zero.
int round_half_away(float x) {
    const int whole = int(x);
    const float rest = x - float(whole);
    return whole + (rest >= 0.5 ? 1 : 0) - (rest <= -0.5 ? 1 : 0);
}

// Stores a block of 32 floats. The block can have any even address.
void store_block(uint type, uint64_t to, float x[32]) {
    uint largest = 0u, first = 0u;
    for (uint i = 0; i < 32; ++i) {
        const uint bits = floatBitsToUint(x[i]) & 0x7FFFFFFFu;
        if (bits > largest) largest = bits, first = i;
    }
    const bool q8 = type == kQ8;
    U16 words = U16(to);
    const uint zero = q8 ? 0u : 0x8888u;
    float d = 0.0, inverse = 0.0;
    bool stores = largest < 0x7F800000u, fits = stores;
    if (stores) {
        d = q8 ? divide(uintBitsToFloat(largest), 127.0) : x[first] * -0.125;
        fits = abs(d) <= 65504.0;
        // For |d| below 2^-128 the inverse is infinite. Then the block becomes zero.
        stores = fits && abs(d) >= 2.9387362e-39 && d != 0.0;
        if (stores) inverse = divide(1.0, d);
        stores = stores && is_finite(inverse);
    }
    words.v[0] = uint16_t(!fits ? 0x7E00u : stores ? f16_of_f32_bits(floatBitsToUint(d)) : 0u);
    const uint count = q8 ? 16u : 8u;
    for (uint i = 0; i < count; ++i) {
        uint word = zero;
        if (stores && q8)
            word = (uint(round_half_away(x[2 * i] * inverse)) & 0xFFu) |
                   (uint(round_half_away(x[2 * i + 1] * inverse)) & 0xFFu) << 8;
        if (stores && !q8) {
            word = 0u;
            for (uint e = 0; e < 4; ++e) {
                const uint from = 2u * i + (e >> 1) + 16u * (e & 1u);
                precise float scaled = x[from] * inverse;
                precise float moved = scaled + 8.5;
                word |= uint(min(15, int(moved))) << (4u * e);
            }
        }
        words.v[1 + i] = uint16_t(word);
    }
}

// Packs interleaved q4_k, q5_k and q6_k weights into panels of bf16, for matmul_any_bf16.inl.
#include "cpu/kernels/algo/k_codes.inl"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

template <WeightType T, bool High, int P>
KEEL_SIMD void pack_codes(const uint8_t *nibbles, const I *upper, const KScales &s, int chunk,
                          uint16_t *tile) {
    if constexpr (P < 8) {
        const I u = codes<T, High, P>(nibbles, upper);
        uint16_t *to = tile + 2 * P * 32;
        store_pairs(to, k_value<T, P>(u, 0, s, chunk), k_value<T, P>(u, 1, s, chunk));
        store_pairs(to + 32, k_value<T, P>(u, 2, s, chunk), k_value<T, P>(u, 3, s, chunk));
        pack_codes<T, High, P + 1>(nibbles, upper, s, chunk, tile);
    }
}

template <WeightType T, bool High>
KEEL_SIMD void pack_chunk(const uint8_t *upper_words, const uint8_t *nibbles, const KScales &s,
                          int chunk, uint16_t *tile) {
    I upper[2];
    for (int i = 0; i < k_form(T).upper_words; ++i)
        upper[i] = load_bytes(upper_words + 4 * R * i);
    pack_codes<T, High, 0>(nibbles, upper, s, chunk, tile);
}

// Packs columns k0 .. k0 + k - 1 (whole blocks) of a group. Every 32 columns become a tile.
template <WeightType T>
static void pack_k_group(const MatmulTask &t, int64_t g, int64_t k0, int64_t k, uint16_t *out) {
    constexpr int64_t upper_bytes = 4 * R * k_form(T).upper_words,
                      pair_bytes = 4 * R * k_form(T).pair_words();
    const uint8_t *p = t.w.packed + g * t.w.group_bytes + k0 / k_columns * k_group_bytes<T>;
    for (int64_t b = 0; b < k / k_columns; ++b, p += k_group_bytes<T>) {
        for (int64_t line = 0; t.prefetch && line < k_group_bytes<T>; line += 64)
            prefetch(p + k_group_bytes<T> + line);
        KScales s;
        read_scales<T>(p, s);
        const uint8_t *pair = p + k_pairs_at<T>;
        for (int i = 0; i < 4; ++i, pair += pair_bytes, out += 2 * tile_elements) {
            const uint8_t *nibbles = pair + 2 * upper_bytes;
            pack_chunk<T, false>(pair, nibbles, s, 2 * i, out);
            pack_chunk<T, true>(pair + upper_bytes, nibbles, s, 2 * i + 1, out + tile_elements);
        }
    }
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

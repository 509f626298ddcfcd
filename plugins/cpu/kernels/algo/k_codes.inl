// Reads the scales and codes of interleaved q4_k, q5_k and q6_k blocks, R rows at a time.
// weights/k_blocks.hpp describes the order of a block's words.
#include "cpu/weights/k_blocks.hpp"
#include "cpu/kernels/isa/k_bits.hpp"

namespace keel_cpu::KEEL_ISA_NAMESPACE {

// The factors that turn the integers of a block into weights. Each lane is a row of W.
struct KScales {
    float scale[16][R]; // factors of chunks of 32 columns; for q6_k, of half chunks
    // For q4_k and q5_k: 1/8 of the offset of each value of a chunk. The factor is 1/8 because
    // ActBlock::shift is 8 times the sum of the activations.
    float least[8][R];
};

template <WeightType T>
constexpr int64_t k_scales_at = 2 * R *k_form(T).halves;
template <WeightType T>
constexpr int64_t k_pairs_at = k_scales_at<T> + 4 * R *k_form(T).scale_words;
template <WeightType T>
constexpr int64_t k_group_bytes = static_cast<int64_t>(R) * k_form(T).bytes();

KEEL_SIMD void four_scales(G factor, I word, float (*out)[R]) {
    KEEL_UNROLL
    for (int i = 0; i < 4; ++i)
        group_store(out[i], group_mul(factor, extract_byte_f32(word, i)));
}

template <WeightType T>
KEEL_SIMD void read_scales(const uint8_t *block, KScales &s) {
    const G d = group_load_f16(reinterpret_cast<const uint16_t *>(block));
    const uint8_t *words = block + k_scales_at<T>;
    if constexpr (T == WeightType::q6_k) {
        for (int i = 0; i < 4; ++i)
            four_scales(d, load_bytes(words + 4 * R * i), s.scale + 4 * i);
    } else {
        const G least = group_mul(group_load_f16(reinterpret_cast<const uint16_t *>(block) + R),
                                  group_set1(-0.125f));
        const I a = load_bytes(words), b = load_bytes(words + 4 * R), c = load_bytes(words + 8 * R);
        four_scales(d, and_bits(a, 0x3f3f3f3fu), s.scale);
        four_scales(d, or_bits(and_bits(c, 0x0f0f0f0fu), and_bits(shift_bits<-2>(a), 0x30303030u)),
                    s.scale + 4);
        four_scales(least, and_bits(b, 0x3f3f3f3fu), s.least);
        four_scales(least,
                    or_bits(and_bits(shift_bits<-4>(c), 0x0f0f0f0fu),
                            and_bits(shift_bits<-2>(b), 0x30303030u)),
                    s.least + 4);
    }
}

// Returns columns 4 P .. 4 P + 3 of a chunk as unsigned codes: 0..15 (q4_k), 0..31 (q5_k) or 0..63
// (q6_k).
template <WeightType T, bool High, int P>
KEEL_SIMD I codes(const uint8_t *nibbles, const I *upper) {
    const I low = nibbles_of<High>(load_bytes(nibbles + 4 * R * P));
    if constexpr (T == WeightType::q4_k)
        return low;
    else if constexpr (T == WeightType::q5_k)
        return or_bits(low, and_bits(shift_bits<4 - P>(upper[0]), 0x10101010u));
    else
        return or_bits(low, and_bits(shift_bits<4 - 2 * (P % 4)>(upper[P / 4]), 0x30303030u));
}

// Returns column `byte` of the codes u as f32 values of the weights.
template <WeightType T, int P>
KEEL_SIMD G k_value(I u, int byte, const KScales &s, int chunk) {
    const G scale = group_load(s.scale[T == WeightType::q6_k ? 2 * chunk + P / 4 : chunk]);
    const G add = T == WeightType::q6_k ? group_mul(scale, group_set1(-32.0f))
                                        : group_mul(group_load(s.least[chunk]), group_set1(8.0f));
    return group_fma(scale, extract_byte_f32(u, byte), add);
}

} // namespace keel_cpu::KEEL_ISA_NAMESPACE

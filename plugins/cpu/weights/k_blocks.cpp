#include "cpu/weights/k_blocks.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

uint32_t word_at(const uint8_t *p, int i) {
    uint32_t word;
    memcpy(&word, p + 4 * i, 4);
    return word;
}

// Packs bits of `n` words side by side. Each word has one byte for each of 4 columns. From each
// byte, `bits` bits are taken, beginning at bit `at`.
uint32_t gather(const uint8_t *p, int n, int bits, int at) {
    const uint32_t mask = bits == 1 ? 0x01010101u : 0x03030303u;
    uint32_t all = 0;
    for (int i = 0; i < n; ++i) all |= (word_at(p, i) >> at & mask) << (i * bits);
    return all;
}

void arrange_q5(const uint8_t *block, uint32_t *words) {
    const uint8_t *high = block + 16, *nibbles = block + 48;
    memcpy(words, block + 4, 12);
    words += 3;
    for (int pair = 0; pair < 4; ++pair, words += 10) {
        words[0] = gather(high, 8, 1, 2 * pair);
        words[1] = gather(high, 8, 1, 2 * pair + 1);
        memcpy(words + 2, nibbles + 32 * pair, 32);
    }
}

// In a block of a GGUF file, the two nibbles of a byte belong to columns that are 64 apart.
void arrange_q6(const uint8_t *block, uint32_t *words) {
    memcpy(words, block + 192, 16);
    words += 4;
    for (int pair = 0; pair < 4; ++pair, words += 12) {
        const uint8_t *low = block + pair / 2 * 64, *high = block + 128 + pair / 2 * 32;
        const int first = pair % 2 * 2; // number of the chunk within its half of the block
        for (int w = 0; w < 2; ++w) {
            words[w] = gather(high + 16 * w, 4, 2, 2 * first);
            words[2 + w] = gather(high + 16 * w, 4, 2, 2 * first + 2);
        }
        for (int p = 0; p < 8; ++p) {
            const uint32_t a = word_at(low, p), b = word_at(low, 8 + p);
            words[4 + p] = first == 0 ? (a & 0x0f0f0f0fu) | (b & 0x0f0f0f0fu) << 4
                                      : (a >> 4 & 0x0f0f0f0fu) | (b & 0xf0f0f0f0u);
        }
    }
}

} // namespace

void arrange_k_block(WeightType type, const uint8_t *block, KBlock &out) {
    if (type == WeightType::q6_k) {
        memcpy(out.halves, block + 208, 2);
        return arrange_q6(block, out.words);
    }
    memcpy(out.halves, block, 4);
    if (type == WeightType::q5_k) return arrange_q5(block, out.words);
    memcpy(out.words, block + 4, 140);
}

} // namespace keel_cpu

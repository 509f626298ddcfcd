// Blocks of q4_k, q5_k and q6_k in an order that kernels unpack with whole vectors and no byte
// shuffles, in as many bytes.
//
// A block of 256 columns becomes halves (q4_k, q5_k: d, dmin; q6_k: d) and words of 32 bits. First
// the words of scales: q4_k's and q5_k's 12 bytes, q6_k's 16. Then four times, for 64 columns,
// which are two chunks of 32:
//   upper bits of the first chunk, of the second chunk: none, one word (q5_k) or two (q6_k) each
//   8 words of nibbles, those of the first chunk low, of the second high
// Word p of a chunk's nibbles holds its columns 4 p .. 4 p + 3, a byte each. The upper bits of
// these lie in the same bytes of the words in front: q5_k's in bit p, q6_k's in bits 2 (p % 4) and
// 2 (p % 4) + 1 of word p / 4.
//
// In a group of R rows the R first halves come first, then the second ones, then word 0 of the R
// rows, word 1, ...
#pragma once

#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

constexpr int k_columns = 256;

struct KForm {
    int halves, scale_words, upper_words; // upper words of a chunk

    constexpr int pair_words() const { return 2 * upper_words + 8; }
    constexpr int words() const { return scale_words + 4 * pair_words(); }
    constexpr int bytes() const { return 2 * halves + 4 * words(); } // as stored
};
constexpr int k_most_words = 52;

constexpr KForm k_form(WeightType t) {
    return t == WeightType::q4_k   ? KForm{2, 3, 0}
           : t == WeightType::q5_k ? KForm{2, 3, 1}
                                   : KForm{1, 4, 2};
}

// One block as GGML stores it, in that order.
struct KBlock {
    uint16_t halves[2];
    uint32_t words[k_most_words];
};
void arrange_k_block(WeightType type, const uint8_t *block, KBlock &out);

} // namespace keel_cpu

// The order of q4_k, q5_k and q6_k blocks in memory. Kernels can unpack it with whole vectors and
// without byte shuffles. A block has the same size as in the file.
//
// A block of 256 columns consists of halves (q4_k, q5_k: d, dmin; q6_k: d) and 32-bit words. The
// first words are the scales: 12 bytes for q4_k and q5_k, 16 bytes for q6_k. Then follow four
// sections of 64 columns, which are two chunks of 32 columns each:
//   the upper bits of the first chunk, then of the second chunk: no word (q4_k), one word (q5_k) or
//   two words (q6_k) each
//   8 words of nibbles: the low nibbles belong to the first chunk, the high ones to the second
// Word p of a chunk's nibbles holds its columns 4 p .. 4 p + 3, one byte each. The upper bits of
// these columns are in the same bytes of the upper words: for q5_k in bit p, for q6_k in bits 2 (p
// % 4) and 2 (p % 4) + 1 of word p / 4.
//
// A group of R rows stores first the R first halves, then the second halves, then word 0 of the R
// rows, then word 1, and so on.
#pragma once

#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

constexpr int k_columns = 256;

struct KForm {
    int halves, scale_words, upper_words; // upper_words: words of upper bits of a chunk

    constexpr int pair_words() const { return 2 * upper_words + 8; }
    constexpr int words() const { return scale_words + 4 * pair_words(); }
    constexpr int bytes() const { return 2 * halves + 4 * words(); } // size of a stored block
};
constexpr int k_most_words = 52;

constexpr KForm k_form(WeightType t) {
    return t == WeightType::q4_k   ? KForm{2, 3, 0}
           : t == WeightType::q5_k ? KForm{2, 3, 1}
                                   : KForm{1, 4, 2};
}

// One block as GGML stores it, rearranged in this order.
struct KBlock {
    uint16_t halves[2];
    uint32_t words[k_most_words];
};
void arrange_k_block(WeightType type, const uint8_t *block, KBlock &out);

} // namespace keel_cpu

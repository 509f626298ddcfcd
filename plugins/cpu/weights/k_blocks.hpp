// The order of q4_k, q5_k and q6_k blocks in memory. Kernels can unpack blocks in this order with
// whole vectors and without byte shuffles. A block has the same size as in the file.
//
// A block of 256 columns consists of 16-bit halves (q4_k, q5_k: d and dmin; q6_k: d) and 32-bit
// words. The first words are the scales: 12 bytes for q4_k and q5_k, 16 bytes for q6_k. Four
// sections follow. Each section holds 64 columns, which are two chunks of 32 columns. A section
// consists of:
// - the upper bits of the first chunk, then those of the second chunk: each chunk has no word
//    (q4_k), one word (q5_k) or two words (q6_k);
// - 8 words of nibbles: the low nibbles belong to the first chunk, the high nibbles to the
//    second chunk.
// Word p of the nibbles holds columns 4 p .. 4 p + 3 of a chunk, one column per byte. The upper
// bits of these columns are in the same bytes of the upper words: for q5_k in bit p, for q6_k in
// bits 2 (p % 4) and 2 (p % 4) + 1 of word p / 4.
//
// Rows are stored in groups of R rows. A group stores the first halves of its R rows, then the
// second halves. Then it stores word 0 of its R rows, then word 1 of its R rows, and so on.
#pragma once

#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

constexpr int k_columns = 256;

struct KForm {
    // upper_words: number of words with the upper bits of a chunk
    int halves, scale_words, upper_words;

    constexpr int pair_words() const { return 2 * upper_words + 8; }
    constexpr int words() const { return scale_words + 4 * pair_words(); }
    constexpr int bytes() const { return 2 * halves + 4 * words(); } // size of a block in bytes
};
constexpr int k_most_words = 52;

constexpr KForm k_form(WeightType t) {
    return t == WeightType::q4_k   ? KForm{2, 3, 0}
           : t == WeightType::q5_k ? KForm{2, 3, 1}
                                   : KForm{1, 4, 2};
}

// One block of a GGUF file, rearranged in the order that this file describes.
struct KBlock {
    uint16_t halves[2];
    uint32_t words[k_most_words];
};
void arrange_k_block(WeightType type, const uint8_t *block, KBlock &out);

} // namespace keel_cpu

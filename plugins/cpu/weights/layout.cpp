#include "cpu/weights/layout.hpp"

#include "cpu/weights/k_blocks.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

using Words4 = uint32_t __attribute__((vector_size(16)));

Words4 load_words(const uint8_t *p) {
    Words4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

void store_words(uint8_t *p, Words4 v) { memcpy(p, &v, sizeof v); }

// Transposes 4 x 4 words: output vector i gets word i of each of the four rows.
void transpose_words(const uint8_t *const (&rows)[4], int64_t at, uint8_t *out, int64_t stride) {
    const Words4 a = load_words(rows[0] + at), b = load_words(rows[1] + at),
                 c = load_words(rows[2] + at), d = load_words(rows[3] + at);
    const Words4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                 ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Words4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                 cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store_words(out, __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5));
    store_words(out + stride, __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7));
    store_words(out + 2 * stride, __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5));
    store_words(out + 3 * stride, __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7));
}

// Addresses of one row's part of a block, before the part is stored in a group of rows.
struct Share {
    const uint8_t *halves, *words;
};

// stands for the rows after the last one
alignas(16) constexpr uint8_t no_row[sizeof(KBlock)] = {};

// Fills `out` with the parts of block `b` of four rows, beginning at row `row`. A part is an
// address in the file, or in `place` if the block must be rearranged.
void shares_of(const WeightView &from, const uint8_t *const *rows, int64_t b, int64_t bytes,
               KBlock (&place)[4], Share (&out)[4]) {
    for (int i = 0; i < 4; ++i) {
        if (rows[i] == nullptr) {
            out[i] = {no_row, no_row};
        } else if (is_k(from.type)) {
            arrange_k_block(from.type, rows[i] + b * bytes, place[i]);
            out[i] = {reinterpret_cast<const uint8_t *>(place[i].halves),
                      reinterpret_cast<const uint8_t *>(place[i].words)};
        } else {
            out[i] = {rows[i] + b * bytes, rows[i] + b * bytes + 2};
        }
    }
}

void put_shares(const Share (&shares)[4], const BlockForm &form, int64_t group, int64_t r,
                uint8_t *out) {
    for (int64_t h = 0; h < form.halves; ++h)
        for (int i = 0; i < 4; ++i)
            memcpy(out + (h * group + r + i) * 2, shares[i].halves + 2 * h, 2);
    uint8_t *words = out + 2 * form.halves * group + 4 * r;
    const uint8_t *const from[4] = {shares[0].words, shares[1].words, shares[2].words,
                                    shares[3].words};
    int64_t w = 0;
    for (; w + 4 <= form.words; w += 4)
        transpose_words(from, 4 * w, words + w * group * 4, 4 * group);
    for (; w < form.words; ++w)
        for (int i = 0; i < 4; ++i) memcpy(words + (w * group + i) * 4, from[i] + 4 * w, 4);
}

} // namespace

BlockForm block_form(WeightType type) {
    if (!is_k(type)) return {32, 1, type == WeightType::q4_0 ? 4 : 8};
    const KForm form = k_form(type);
    return {k_columns, form.halves, form.words()};
}

void make_group(const WeightView &from, int64_t group, int64_t g, uint8_t *out) {
    const BlockForm form = block_form(from.type);
    const uint8_t *rows[most_group];
    for (int64_t r = 0; r < group; ++r)
        rows[r] = g * group + r < from.rows ? row_of(from, g * group + r) : nullptr;
    KBlock place[4];
    Share shares[4];
    for (int64_t b = 0; b < from.cols / form.columns; ++b, out += group * form.bytes()) {
        for (int64_t r = 0; r < group; r += 4) {
            shares_of(from, rows + r, b, form.bytes(), place, shares);
            put_shares(shares, form, group, r, out);
        }
    }
}

} // namespace keel_cpu

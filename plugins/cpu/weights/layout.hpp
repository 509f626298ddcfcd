// The interleaved layout: groups of rows, made from rows as files hold them.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

// What a block of a quantized type is made of: halves (scales), then words. Of a group's rows come
// the first halves, the second ones, ..., word 0 of each row, word 1, ...
struct BlockForm {
    int64_t columns, halves, words;
    constexpr int64_t bytes() const {
        return 2 * halves + 4 * words;
    } // as stored, and of a row's share of a group
};
BlockForm block_form(WeightType type);

constexpr int64_t most_group = 64; // rows

// Group g, of `group` rows, of a weight that lies as rows. Rows beyond the last are zero.
void make_group(const WeightView &from, int64_t group, int64_t g, uint8_t *out);

} // namespace keel_cpu

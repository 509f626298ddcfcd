// The interleaved layout: groups of rows, made from rows as files store them.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

// The parts of a block of a quantized type: halves (scales), then words. A group stores the first
// half of each of its rows, then the second halves, and so on, then word 0 of each row, then word
// 1, and so on.
struct BlockForm {
    int64_t columns, halves, words;
    constexpr int64_t bytes() const {
        return 2 * halves + 4 * words;
    } // bytes of a stored block, and of a row's part of a group
};
BlockForm block_form(WeightType type);

constexpr int64_t most_group = 64; // the most rows of a group

// Makes group g of a row-major weight, with `group` rows. Rows beyond the last are zero.
void make_group(const WeightView &from, int64_t group, int64_t g, uint8_t *out);

} // namespace keel_cpu

// The interleaved layout: groups of rows, made from rows as files hold them.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

// The parts of a block of a quantized type: halves (scales), then words. A group stores the first
// half of each of its rows, then the second halves, ..., then word 0 of each row, then word 1, ...
struct BlockForm {
    int64_t columns, halves, words;
    constexpr int64_t bytes() const {
        return 2 * halves + 4 * words;
    } // as stored, and of a row's share of a group
};
BlockForm block_form(WeightType type);

constexpr int64_t most_group = 64; // rows

// Makes group g, of `group` rows, of a row-major weight. Rows beyond the last are zero.
void make_group(const WeightView &from, int64_t group, int64_t g, uint8_t *out);

} // namespace keel_cpu

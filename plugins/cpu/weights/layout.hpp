// The interleaved layout: groups of rows. It is made from rows as model files store them.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"

namespace keel_cpu {

// The parts of a block of a quantized type: 16-bit halves (scales), then 32-bit words. A group of
// rows stores the first half of each of its rows, then the second halves, and so on. Then it stores
// word 0 of each row, then word 1, and so on.
struct BlockForm {
    int64_t columns, halves, words;
    constexpr int64_t bytes() const {
        return 2 * halves + 4 * words;
    } // size in bytes of a block in the file, and of one row's block in a group
};
BlockForm block_form(WeightType type);

constexpr int64_t most_group = 64; // largest number of rows in a group

// Writes group g of a row-major weight to `out`. A group has `group` rows. Rows after the weight's
// last row are zero.
void make_group(const WeightView &from, int64_t group, int64_t g, uint8_t *out);

} // namespace keel_cpu

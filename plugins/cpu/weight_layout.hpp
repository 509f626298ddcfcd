// The interleaved layout: groups of rows, made from rows as files hold them, from other groups, and undone again.
#pragma once

#include "context.hpp"
#include "kernels/linear.hpp"

namespace keel_cpu {

// What a block of a quantized type is made of: halves (scales), then words. Of a group's rows come the first halves, the second ones, ...,
// word 0 of each row, word 1, ...
struct BlockForm {
    int64_t columns, halves, words;
    constexpr int64_t bytes() const {
        return 2 * halves + 4 * words;
    } // as stored, and of a row's share of a group
};
BlockForm block_form(WeightType type);

// Version of the layout, part of its name. One more whenever a value of some type moves: files hold what was current when they were made.
constexpr int interleaved_version = 1;
constexpr int64_t most_group = 64; // rows

// "cpu/interleaved-16/1".
void layout_name(int64_t group, char (&out)[64]);
// 0: not a name of a layout that is read here.
int64_t layout_group(const char *name);

// Group g, of `group` rows, of a weight as rows or in groups of any size. Rows beyond the last are zero.
void make_group(const WeightView &from, int64_t from_group, int64_t group, int64_t g, uint8_t *out);
// Row `row` of a weight in groups, as files hold it.
void row_of_groups(const WeightView &from, int64_t from_group, int64_t row, uint8_t *out);

} // namespace keel_cpu

// Weights on their way into a GPU backend's layout.
#pragma once

#include "gpu/view.hpp"

namespace keel_gpu {

// Sizes of a joined weight.
struct WeightShape {
    Type type = type_f32;
    int64_t rows = 0, cols = 0;

    uint64_t row_bytes() const {
        return keel_dtype_row_bytes(dtype_of(type), static_cast<uint64_t>(cols));
    }
    uint64_t bytes() const { return row_bytes() * static_cast<uint64_t>(rows); }
    uint64_t blocks() const { return static_cast<uint64_t>(cols / 32); } // of a row of q8_0 or q4_0
    // Split layout: of q8_0 32 and of q4_0 16 bytes of codes for each block, all rows', then an f16
    // scale for each block, all rows': so loads of codes are whole and aligned.
    uint64_t code_bytes() const { return (type == type_q8_0 ? 32 : 16) * blocks(); } // of a row
    uint64_t scales_offset() const { return code_bytes() * static_cast<uint64_t>(rows); }
    uint64_t split_bytes() const {
        return (code_bytes() + 2 * blocks()) * static_cast<uint64_t>(rows);
    }
};

// Checks the sources against each other and against their mappings; refuses what is wrong or not
// taken.
WeightShape check_weight(const keel_host *host, const keel_weight_desc &desc);

// Row `row` of the joined weight where it lies in its source.
const uint8_t *source_row(const keel_weight_desc &desc, int64_t row);

// Rows first..first+n-1 of the joined weight as they are, one after the other.
void copy_rows(const keel_weight_desc &desc, const WeightShape &shape, int64_t first, int64_t n,
               uint8_t *to);

// The same rows of q8_0 or q4_0 split: n * code_bytes() of codes, n * blocks() f16 scales.
void split_rows(const keel_weight_desc &desc, const WeightShape &shape, int64_t first, int64_t n,
                uint8_t *codes, uint8_t *scales);

} // namespace keel_gpu

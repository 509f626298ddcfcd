// Prepares weights for the memory layout of a GPU backend.
#pragma once

#include "gpu/view.hpp"

namespace keel_gpu {

// The sizes of a joined weight: the rows of all its sources, one after the other.
struct WeightShape {
    Type type = type_f32;
    int64_t rows = 0, cols = 0;

    uint64_t row_bytes() const {
        return keel_dtype_row_bytes(dtype_of(type), static_cast<uint64_t>(cols));
    }
    uint64_t bytes() const { return row_bytes() * static_cast<uint64_t>(rows); }
    // number of blocks in a row of q8_0 or q4_0
    uint64_t blocks() const { return static_cast<uint64_t>(cols / 32); }
    // The split layout has two parts. The first part is the codes of all blocks of all rows: 32
    // bytes per block of q8_0, 16 bytes per block of q4_0. The second part is one f16 scale per
    // block. In this layout kernels load codes as whole, aligned words.
    uint64_t code_bytes() const { return (type == type_q8_0 ? 32 : 16) * blocks(); } // of one row
    uint64_t scales_offset() const { return code_bytes() * static_cast<uint64_t>(rows); }
    uint64_t split_bytes() const {
        return (code_bytes() + 2 * blocks()) * static_cast<uint64_t>(rows);
    }
};

// Checks that the sources match each other and are inside their mappings. Throws Refusal if a check
// fails, or if the backend does not support the type.
WeightShape check_weight(const keel_host *host, const keel_weight_desc &desc);

// Returns the address of row `row` of the joined weight in its source.
const uint8_t *source_row(const keel_weight_desc &desc, int64_t row);

// Copies `n` rows of the joined weight to contiguous memory, without conversion. The first of these
// rows has the number `first`.
void copy_rows(const keel_weight_desc &desc, const WeightShape &shape, int64_t first, int64_t n,
               uint8_t *to);

// Splits `n` rows of a weight of type q8_0 or q4_0 into codes and scales. The first of these rows
// has the number `first`. `codes` gets n * code_bytes() bytes, `scales` gets n * blocks() f16
// numbers.
void split_rows(const keel_weight_desc &desc, const WeightShape &shape, int64_t first, int64_t n,
                uint8_t *codes, uint8_t *scales);

} // namespace keel_gpu

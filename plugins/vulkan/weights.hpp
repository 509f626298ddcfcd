// A weight in the device's memory, or in the host's where the device reads that.
#pragma once

#include "gpu/weights.hpp"
#include "vulkan/context.hpp"

// f32, f16, bf16: rows aligned to 16 bytes. q8_0, q4_0: all codes, then all scales, so that loads
// of codes are whole and aligned.
struct keel_weight {
    keel_gpu::WeightShape shape;
    keel_vulkan::Range range;               // a part of the device's memory, or of `imported`
    keel_vulkan::Block *imported = nullptr; // the source's own pages
    uint64_t bytes = 0;                     // that matmul reads
    uint64_t row_stride = 0;                // of rows, or of rows of codes

    uint64_t scales_stride() const { return 2 * shape.blocks(); }
};

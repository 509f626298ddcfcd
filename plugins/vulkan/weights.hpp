// A weight in device memory, or in host memory that the device can read.
#pragma once

#include "gpu/weights.hpp"
#include "vulkan/context.hpp"

// f32, f16, bf16: rows are aligned to 16 bytes. q8_0, q4_0: all codes, then all scales, so that
// loads of codes are whole and aligned.
struct keel_weight {
    keel_gpu::WeightShape shape;
    keel_vulkan::Range range;               // a part of device memory, or of `imported`
    keel_vulkan::Block *imported = nullptr; // pages of the source's mapping
    uint64_t bytes = 0;                     // bytes that matmul reads
    // bytes from row to row; for blocks, from one row of codes to the next
    uint64_t row_stride = 0;

    uint64_t scales_stride() const { return 2 * shape.blocks(); }
};

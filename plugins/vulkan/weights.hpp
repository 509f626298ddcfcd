// A prepared weight, in device memory or in host memory that the device can read.
#pragma once

#include "gpu/weights.hpp"
#include "vulkan/context.hpp"

// For f32, f16 and bf16, rows are aligned to 16 bytes. For q8_0 and q4_0, all codes come first,
// then all scales, so that kernels load codes as whole, aligned words.
struct keel_weight {
    keel_gpu::WeightShape shape;
    keel_vulkan::Range range;               // a part of device memory, or of `imported`
    keel_vulkan::Block *imported = nullptr; // the imported pages of the source's mapping, or NULL
    uint64_t bytes = 0;                     // number of bytes that matmul reads
    // Distance between rows in bytes. For block types, the distance between the codes of rows.
    uint64_t row_stride = 0;

    uint64_t scales_stride() const { return 2 * shape.blocks(); }
};

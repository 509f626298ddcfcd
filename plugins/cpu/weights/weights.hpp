// A weight taken over by the backend, and plain tensors seen as one.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"
#include "cpu/weights/slab.hpp"

// Quantized types: repacked, rows interleaved, so that decode is one stream of whole vectors.
// 16-bit types: copied into large pages where parameter `copy` has it so. Others: read where they
// lie.
struct keel_weight {
    keel_cpu::WeightView view;
    // interleaved groups, or copied rows; empty where the host's mapping is used
    keel_cpu::Memory packed;
    keel_cpu::WeightSlab *slab;
    // rows: the RowSource array, which leads into `packed` where they were copied
    keel_cpu::Memory sources;
    uint32_t use;
};

namespace keel_cpu {

// False for a dtype that weights do not have.
bool weight_type_of(keel_dtype dtype, WeightType &type);

// A plain [n, k] tensor as a weight; `source` is written and must live as long as the view.
bool view_tensor(const keel_tensor *w, RowSource &source, WeightView &view);

} // namespace keel_cpu

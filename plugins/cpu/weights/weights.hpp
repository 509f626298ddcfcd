// A weight taken over by the backend, and plain tensors seen as one.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"
#include "cpu/weights/slab.hpp"

// Quantized types: repacked, rows interleaved, so that decode is one stream of whole vectors.
// 16-bit types: copied into large pages if parameter `copy` says so. Other types: read in place.
struct keel_weight {
    keel_cpu::WeightView view;
    // interleaved groups, or copied rows; empty if the host's mapping is used
    keel_cpu::Memory packed;
    keel_cpu::WeightSlab *slab;
    // rows: the RowSource array, which points into `packed` if the rows were copied
    keel_cpu::Memory sources;
    uint32_t use;
};

namespace keel_cpu {

// False for a dtype that weights do not have.
bool weight_type_of(keel_dtype dtype, WeightType &type);

// A plain [n, k] tensor as a weight; `source` is written and must live as long as the view.
bool view_tensor(const keel_tensor *w, RowSource &source, WeightView &view);

} // namespace keel_cpu

// A weight prepared by the backend, and plain tensors viewed as weights.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"
#include "cpu/weights/slab.hpp"

// Quantized types are repacked with interleaved rows, so that decode reads one stream of whole
// vectors. 16-bit types are copied into large pages if the parameter `copy` says so. Other types
// are read in place.
struct keel_weight {
    keel_cpu::WeightView view;
    // interleaved groups, or copied rows; empty if the rows are read from the host's mapping
    keel_cpu::Memory packed;
    keel_cpu::WeightSlab *slab;
    // rows: the RowSource array, which points into `packed` if the rows were copied
    keel_cpu::Memory sources;
    uint32_t use;
};

namespace keel_cpu {

// Returns false for a dtype that weights cannot have.
bool weight_type_of(keel_dtype dtype, WeightType &type);

// Views a plain [n, k] tensor as a weight. `source` is filled and must live as long as the view.
bool view_tensor(const keel_tensor *w, RowSource &source, WeightView &view);

} // namespace keel_cpu

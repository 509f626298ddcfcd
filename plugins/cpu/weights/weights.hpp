// Weights that the backend has prepared. Also functions that view a plain tensor as a weight.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/matmul_types.hpp"
#include "cpu/weights/slab.hpp"

// A prepared weight. Quantized types are stored with interleaved rows, so that decode reads one
// stream of whole vectors. 16-bit types are copied into large pages if the parameter `copy`
// requires this. Other types are read from the host's mapping.
struct keel_weight {
    keel_cpu::WeightView view;
    // Interleaved groups, or copied rows. Empty if the rows are read from the host's mapping.
    keel_cpu::Memory packed;
    keel_cpu::WeightSlab *slab;
    // Memory of the RowSource array, whose entries point into `packed` if the rows were copied.
    keel_cpu::Memory sources;
    uint32_t use;
    uint32_t experts; // 0: the weight has no experts
};

namespace keel_cpu {

// Sets `type`. Returns false if weights cannot have this dtype.
bool weight_type_of(keel_dtype dtype, WeightType &type);

// Returns the view of expert `e` of a view whose rows are those of `experts` experts. If all rows
// come from one source, the function fills `source`, which must live as long as the result.
WeightView expert_view(const WeightView &all, int64_t experts, int64_t e, int64_t group,
                       RowSource &source);

// Makes `view` a weight that reads the plain tensor w [n, k]. The function fills `source`, which
// must live as long as `view`. Returns false if weights cannot have this dtype.
bool view_tensor(const keel_tensor *w, RowSource &source, WeightView &view);

} // namespace keel_cpu

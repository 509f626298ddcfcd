// Checks of an op's args that both GPU backends make: features, dtypes, and rules that the core
// does not check. If a check fails, it throws Refusal (report.hpp). A check reads only shapes and
// dtypes, so op_plan can call it before buffers exist. Activations must be f32.
#pragma once

#include "gpu/kv.hpp"
#include "gpu/weights.hpp"

namespace keel_gpu {

// Throws Refusal if `features` has bits that are not in `known`.
void check_features(const keel_host *host, uint64_t features, uint64_t known, const char *op);

// The checks for matmul and embed check everything except the weight, because each backend has its
// own type of weight.
#define KEEL_GPU_DECLARE_CHECK(ID, slot, args_type)                                                \
    void check_##slot(const keel_host *, const args_type &);
KEEL_FOR_EACH_DENSE_OP(KEEL_GPU_DECLARE_CHECK)
#undef KEEL_GPU_DECLARE_CHECK

// Returns the shape of the weight of matmul or embed. `prepared` is the shape of args.weight. If it
// is NULL, the op uses the tensor args.w.
WeightShape weight_in_use(const keel_host *host, const WeightShape *prepared, const keel_tensor *w,
                          const char *op);

// Largest size of a head that fits the arrays in on-chip memory.
constexpr uint32_t max_head_dim = 1024;

} // namespace keel_gpu

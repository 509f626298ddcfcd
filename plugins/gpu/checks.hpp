// Checks of an op's args that both GPU backends make: features, dtypes, what the core's own checks
// leave open. They refuse by throwing; they look at shapes and dtypes only, so that they serve
// op_plan (no buffers yet) and calls alike. Activations are f32 here.
#pragma once

#include "gpu/kv.hpp"
#include "gpu/weights.hpp"

namespace keel_gpu {

// Refuses feature bits beyond `known`.
void check_features(const keel_host *host, uint64_t features, uint64_t known, const char *op);

// Of matmul and embed all but the weight, which is the backend's own.
#define KEEL_GPU_DECLARE_CHECK(ID, slot, args_type)                                                \
    void check_##slot(const keel_host *, const args_type &);
KEEL_FOR_EACH_OP(KEEL_GPU_DECLARE_CHECK)
#undef KEEL_GPU_DECLARE_CHECK

// For matmul and embed: the shape of the weight in use, `prepared` being that of args.weight, or
// NULL: then it is args.w.
WeightShape weight_in_use(const keel_host *host, const WeightShape *prepared, const keel_tensor *w,
                          const char *op);

constexpr uint32_t max_head_dim = 1024; // of what is kept on the chip for a head

} // namespace keel_gpu

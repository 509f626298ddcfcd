// Checks of an op's args that both GPU backends make: features, dtypes, and rules that the core
// does not check. A check refuses by throwing. It reads only shapes and dtypes, so it also serves
// op_plan, which has no buffers yet. Activations are f32 here.
#pragma once

#include "gpu/kv.hpp"
#include "gpu/weights.hpp"

namespace keel_gpu {

// Refuses feature bits beyond `known`.
void check_features(const keel_host *host, uint64_t features, uint64_t known, const char *op);

// For matmul and embed these check everything but the weight, because each backend has its own
// weight type.
#define KEEL_GPU_DECLARE_CHECK(ID, slot, args_type)                                                \
    void check_##slot(const keel_host *, const args_type &);
KEEL_FOR_EACH_OP(KEEL_GPU_DECLARE_CHECK)
#undef KEEL_GPU_DECLARE_CHECK

// For matmul and embed: the shape of the weight. `prepared` is the shape of args.weight. If it is
// NULL, the op uses args.w.
WeightShape weight_in_use(const keel_host *host, const WeightShape *prepared, const keel_tensor *w,
                          const char *op);

// the arrays in on-chip memory hold a head of at most this size
constexpr uint32_t max_head_dim = 1024;

} // namespace keel_gpu

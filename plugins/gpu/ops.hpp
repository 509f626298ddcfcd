// How a GPU backend's ops and entry points are declared: in its own namespace, in the same way by both. table.hpp makes the table of them.
#pragma once

#include "common/backend_plugin.hpp"
#include "gpu/checks.hpp"

// plan_<slot> checks and says how the op would run; run_<slot> queues it. Both refuse by throwing. One file per group:
//   ops/linear.cpp         matmul, embed
//   ops/norm.cpp           rms_norm, add_rms_norm, layer_norm
//   ops/elementwise.cpp    silu_mul, gelu_mul, add, add_bias, scale, scaled_add, softmax
//   ops/move.cpp           cast, copy, transpose, zero
//   ops/rope.cpp           rope, qkv_prepare
//   ops/attention.cpp      attention
//   ops/policy_inputs.cpp  attention_scores, key_project, key_sum, value_norms, query_stats
//   ops/kv.cpp             kv_append, kv_gather, kv_rerotate
//   ops/rows.cpp           argmax_rows, top_k_rows
#define KEEL_GPU_DECLARE_OP(ID, slot, args_type)                                                             \
    void plan_##slot(keel_ctx &, const args_type &, keel_gpu::PlanChoice &);                                 \
    void run_##slot(keel_ctx &, const args_type &);

#define KEEL_GPU_DECLARE_BACKEND                                                                             \
    KEEL_FOR_EACH_OP(KEEL_GPU_DECLARE_OP)                                                                    \
    KEEL_FOR_EACH_ENTRY_POINT(KEEL_DECLARE_ENTRY_POINT)

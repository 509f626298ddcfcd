#pragma once

#include "reference/context.hpp"

namespace keel::reference {

// Functions for each op of the table. check_NAME(args) refuses args that break the rules of the
// headers; it uses only shapes and dtypes. run_NAME(args) computes the op. The meaning, shapes and
// error bounds of the ops are in <keel/ops.h>, ops_attention.h, ops_policy.h and ops_experts.h.
#define KEEL_DECLARE(ID, slot, type)                                                               \
    void check_##slot(const type &args);                                                           \
    void run_##slot(const type &args);
KEEL_FOR_EACH_OP(KEEL_DECLARE)
#undef KEEL_DECLARE

// Returns the feature bits that an op supports.
constexpr uint64_t features_of(keel_op op) {
    switch (op) {
    case KEEL_OP_MATMUL: return KEEL_MATMUL_BIAS | KEEL_MATMUL_ACCUMULATE;
    case KEEL_OP_SILU_MUL: return KEEL_GATE_INTERLEAVED;
    case KEEL_OP_GELU_MUL: return KEEL_GATE_INTERLEAVED | KEEL_GELU_TANH;
    case KEEL_OP_ROPE: return KEEL_ROPE_INVERSE;
    case KEEL_OP_QKV_PREPARE: return KEEL_QKV_NORM | KEEL_QKV_UNROTATED;
    case KEEL_OP_ATTENTION:
        return KEEL_ATTENTION_CAUSAL | KEEL_ATTENTION_WINDOW | KEEL_ATTENTION_SOFTCAP |
               KEEL_ATTENTION_LSE | KEEL_ATTENTION_SCORES;
    case KEEL_OP_ATTENTION_SCORES:
        return KEEL_SCORES_CAUSAL | KEEL_SCORES_RANGES | KEEL_SCORES_WEIGHTS | KEEL_SCORES_LOGITS |
               KEEL_SCORES_SOFTCAP | KEEL_SCORES_WINDOW;
    case KEEL_OP_KEY_PROJECT: return KEEL_KEYS_UNROTATED | KEEL_KEYS_NORMS;
    case KEEL_OP_KEY_SUM: return KEEL_KEYS_NORMALIZED;
    case KEEL_OP_VALUE_NORMS: return KEEL_KEYS_L1;
    case KEEL_OP_KV_REROTATE: return KEEL_REROTATE_SOURCE;
    case KEEL_OP_CHOOSE_EXPERTS:
        return KEEL_CHOOSE_SIGMOID | KEEL_CHOOSE_NORMALIZE | KEEL_CHOOSE_BIAS | KEEL_CHOOSE_GROUPS;
    case KEEL_OP_EXPERT_MATMUL: return KEEL_EXPERTS_SUM | KEEL_EXPERTS_ACCUMULATE;
    default: return 0;
    }
}

} // namespace keel::reference

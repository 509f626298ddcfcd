/* The list of all ops, for wrappers and tables. It is in the order of the slots of keel_backend. */
#ifndef KEEL_OP_LIST_H
#define KEEL_OP_LIST_H

#include "ops_experts.h"
#include "ops_policy.h"

/* Expands X(ID, slot, args type) for each op but those of a mixture of experts. */
#define KEEL_FOR_EACH_DENSE_OP(X)                                     \
    X(MATMUL, matmul, keel_matmul_args)                               \
    X(RMS_NORM, rms_norm, keel_norm_args)                             \
    X(ADD_RMS_NORM, add_rms_norm, keel_norm_args)                     \
    X(LAYER_NORM, layer_norm, keel_norm_args)                         \
    X(SILU_MUL, silu_mul, keel_gate_args)                             \
    X(GELU_MUL, gelu_mul, keel_gate_args)                             \
    X(ADD, add, keel_elementwise_args)                                \
    X(ADD_BIAS, add_bias, keel_elementwise_args)                      \
    X(SCALE, scale, keel_elementwise_args)                            \
    X(SCALED_ADD, scaled_add, keel_elementwise_args)                  \
    X(SOFTMAX, softmax, keel_move_args)                               \
    X(CAST, cast, keel_move_args)                                     \
    X(COPY, copy, keel_move_args)                                     \
    X(TRANSPOSE, transpose, keel_move_args)                           \
    X(ZERO, zero, keel_move_args)                                     \
    X(ROPE, rope, keel_rope_args)                                     \
    X(QKV_PREPARE, qkv_prepare, keel_qkv_args)                        \
    X(ATTENTION, attention, keel_attention_args)                      \
    X(ATTENTION_SCORES, attention_scores, keel_attention_scores_args) \
    X(KEY_PROJECT, key_project, keel_keys_args)                       \
    X(KEY_SUM, key_sum, keel_keys_args)                               \
    X(VALUE_NORMS, value_norms, keel_keys_args)                       \
    X(QUERY_STATS, query_stats, keel_query_stats_args)                \
    X(KV_APPEND, kv_append, keel_kv_append_args)                      \
    X(KV_GATHER, kv_gather, keel_kv_gather_args)                      \
    X(KV_REROTATE, kv_rerotate, keel_kv_rerotate_args)                \
    X(EMBED, embed, keel_embed_args)                                  \
    X(ARGMAX_ROWS, argmax_rows, keel_rows_args)                       \
    X(TOP_K_ROWS, top_k_rows, keel_rows_args)

/* The same for the ops of a mixture of experts. */
#define KEEL_FOR_EACH_EXPERT_OP(X)                              \
    X(CHOOSE_EXPERTS, choose_experts, keel_choose_experts_args) \
    X(EXPERT_MATMUL, expert_matmul, keel_expert_matmul_args)

/* The same for each op, in slot order. */
#define KEEL_FOR_EACH_OP(X)   \
    KEEL_FOR_EACH_DENSE_OP(X) \
    KEEL_FOR_EACH_EXPERT_OP(X)

#endif

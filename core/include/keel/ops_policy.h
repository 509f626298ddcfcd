/* The op table, part 3: ops that compute the inputs of eviction policies.
 *
 * A policy (policy.h) runs on the host and reads small f32 arrays. These ops compute the arrays on
 * the backend, so keys and queries need not be copied to the host. Only the core calls them, and
 * only if the policy of the pipeline needs their result. If a backend does not have one of these
 * ops, the core uses its fallback ladder (ops.h).
 *
 * The rules at the top of ops.h hold for these ops too. Slots from a head's length on are neither
 * read nor written.
 *
 * EXAMPLE. The L2 norm of every key of a layer, for KEEL_NEED_KEY_NORMS:
 *
 *     keel_keys_args a = {KEEL_HEADER(keel_keys_args)};
 *     a.features = KEEL_KEYS_NORMS;
 *     a.kv = view;
 *     a.out = &norms;                   // f32 [kv_heads, slots]
 *     a.end = view->max_length;         // the slots 0..end-1
 *     backend->key_project(ctx, &a);
 *
 * Everything here exists since 0.1. */
#ifndef KEEL_OPS_POLICY_H
#define KEEL_OPS_POLICY_H

#include "ops_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Like KEEL_ATTENTION_CAUSAL: query i of m attends to slot j (it "sees" the slot) only if j <=
 * lengths[h] - m + i. */
#define KEEL_SCORES_CAUSAL 1u
/* A query sees only slots inside `ranges`, and the softmax is over these slots. */
#define KEEL_SCORES_RANGES 2u
/* After the softmax and before the reduction, the probability of slot j is multiplied by
 * weights[h][j]. */
#define KEEL_SCORES_WEIGHTS 4u
/* No softmax. The logits scale * q . K (times the weight, with KEEL_SCORES_WEIGHTS) are reduced
 * over the queries that see the slot; MEAN divides by the number of these queries. If no query sees
 * the slot, SUM and MEAN give 0, and MAX gives -inf. */
#define KEEL_SCORES_LOGITS 8u
/* Like KEEL_ATTENTION_SOFTCAP: logits = softcap * tanh(logits / softcap). The cap is applied before
 * the softmax (with KEEL_SCORES_LOGITS: before the reduction) and before the weight. */
#define KEEL_SCORES_SOFTCAP 16u
/* Like KEEL_ATTENTION_WINDOW: query i sees slot j of head h only if q_positions[i] -
 * positions[h][j] < window. This is the attention window of the model; scores->window has another
 * meaning. */
#define KEEL_SCORES_WINDOW 32u
/* attention_scores: the probabilities of attention, reduced to one number for each slot
 * (keel_scores), without reading values. The queries are those in `q`.
 *
 * All bits can be combined. A query sees a slot if each of the bits CAUSAL, RANGES and WINDOW that
 * is set allows it. The softmax is over the slots that the query sees.
 *
 * A slot outside `ranges` has the score 0. With accumulate, SUM and MEAN keep its previous value,
 * and MAX stores max(previous value, 0). With scores->window only the last queries count.
 *
 * Bound: 1e-5. s is the score itself; with KEEL_SCORES_LOGITS s is the sum of the absolute values
 * of the dot product's terms, and the formula of KEEL_SCORES_SOFTCAP is also applied to s. */
typedef struct keel_attention_scores_args {
    KEEL_ARGS_HEAD;
    /* Rotated queries: type A [m, heads, head_dim]. */
    const keel_tensor *q;
    /* The layer's cache. */
    const keel_kv_view *kv;
    /* i32 [n, 2]: begin and end of slot ranges that do not overlap. The end is not part of the
     * range. NULL without KEEL_SCORES_RANGES. */
    const keel_tensor *ranges;
    /* Weights: f32 [kv_heads, slots]. NULL without KEEL_SCORES_WEIGHTS. */
    const keel_tensor *weights;
    /* How the op reduces the probabilities, and where it writes the scores. */
    const keel_scores *scores;
    /* Factor of the dot products. */
    float scale;
    uint32_t reserved;
    /* Positions of the queries: i32 [m] or [m, kv_heads]. NULL without KEEL_SCORES_WINDOW. */
    const keel_tensor *q_positions;
    /* Length of the model's window in tokens. Used with KEEL_SCORES_WINDOW. */
    int64_t window;
    /* Cap of the logits. Used with KEEL_SCORES_SOFTCAP. */
    float softcap;
    uint32_t reserved_2;
} keel_attention_scores_args;

/* Only key_project: the op first undoes the rotation of each key for positions[h][slot], so the
 * keys are as they were before RoPE. Requires `tables`. */
#define KEEL_KEYS_UNROTATED 1u
/* Only key_project: the result is the L2 norm of each key. `projection` is NULL. */
#define KEEL_KEYS_NORMS 2u
/* Only key_sum: each key is divided by its L2 norm before it is added. A key of zeros adds
 * zeros. */
#define KEEL_KEYS_NORMALIZED 4u
/* Only value_norms: the op computes the L1 norm. Without this bit, it computes the L2 norm. */
#define KEEL_KEYS_L1 8u
/* The args of key_project, key_sum and value_norms. The ops read the slots begin..end-1 of each
 * head h that are below lengths[h].
 *
 * key_project: out[h][j][:] = K_j * projection. If `projection` is NULL, the result is K_j itself,
 *              and r is head_dim. With KEEL_KEYS_NORMS: out[h][j] = ||K_j||_2.
 * key_sum:     out[h][:] = the sum of K_j over the slots; zeros if there is no slot.
 * value_norms: out[h][j] = ||V_j||.
 *
 * Each op accepts only the bits whose comment names the op. Bound: 4e-6 for all three. */
typedef struct keel_keys_args {
    KEEL_ARGS_HEAD;
    /* The layer's cache. */
    const keel_kv_view *kv;
    /* RoPE tables for the positions in kv. NULL without KEEL_KEYS_UNROTATED. */
    const keel_rope_tables *tables;
    /* The matrix: f32 [head_dim, r], or NULL. Only key_project. */
    const keel_tensor *projection;
    /* Result: f32. key_project: [kv_heads, slots, r]; with KEEL_KEYS_NORMS [kv_heads, slots].
     * key_sum: [kv_heads, head_dim]. value_norms: [kv_heads, slots]. The entry of slot j has index
     * j, even if begin is above 0. */
    const keel_tensor *out;
    /* The slots of the range are begin..end-1. */
    int64_t begin, end;
} keel_keys_args;

/* query_stats: adds m queries to running sums: sum[h] += q, second[h] += q q^T. The second moment
 * is not centred: the mean is not subtracted. Bound: 4e-6. */
typedef struct keel_query_stats_args {
    KEEL_ARGS_HEAD;
    /* Queries before RoPE: f32 [m, heads, head_dim]. */
    const keel_tensor *q;
    /* Running sum: f32 [heads, head_dim], read and written. */
    const keel_tensor *sum;
    /* Running second moment: f32 [heads, head_dim, head_dim], read and written; or NULL. */
    const keel_tensor *second;
} keel_query_stats_args;

#ifdef __cplusplus
}
#endif
#endif

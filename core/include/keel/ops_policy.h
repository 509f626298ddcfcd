/* The op table's policy inputs: what the core reduces on the backend so that a policy gets small
 * f32 arrays. The rules at the top of ops.h hold. Slots at or beyond a head's length are neither
 * read nor written. */
#ifndef KEEL_OPS_POLICY_H
#define KEEL_OPS_POLICY_H

#include "ops_attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* the causal rule of attention */
#define KEEL_SCORES_CAUSAL 1u
/* softmax over the union of `ranges` only, which is its own normalizer; slots outside get 0 */
#define KEEL_SCORES_RANGES 2u
/* probabilities are multiplied by weights[h][j] after the softmax, before reducing */
#define KEEL_SCORES_WEIGHTS 4u
/* no softmax: scale * q . K (times the weight, with WEIGHTS) is reduced over the queries that
 * see the slot: MEAN divides by their number; seen by none, SUM and MEAN give 0 and MAX -inf */
#define KEEL_SCORES_LOGITS 8u
/* As KEEL_ATTENTION_SOFTCAP: logits = softcap * tanh(logits / softcap). It is applied before the
 * softmax (with LOGITS: before the reduction) and before the weight. since 0.1 */
#define KEEL_SCORES_SOFTCAP 16u
/* As KEEL_ATTENTION_WINDOW: query i sees slot j of head h only if q_positions[i] -
 * positions[h][j] < window. The window is a property of the model. A query sees a slot only if
 * CAUSAL, RANGES and this bit all allow it, and the softmax is over the slots that it sees. This
 * window is not scores->window. since 0.1 */
#define KEEL_SCORES_WINDOW 32u
/* Attention scores as an op of its own, for the queries in `q`. All bits can be combined. A slot
 * outside `ranges` scores 0. With accumulate, SUM and MEAN leave its old value; MAX stores
 * max(old, 0). With scores->window only the last queries contribute. Bound 1e-5, where s is the
 * score itself; with LOGITS the sum of |terms| of the dot products, to which SOFTCAP's formula is
 * applied too. */
typedef struct keel_attention_scores_args {
    KEEL_ARGS_HEAD;
    /* A [m, heads, head_dim], rotated */
    const keel_tensor *q;
    const keel_kv_view *kv;
    /* i32 [n, 2]: begin, end of disjoint slot ranges; with KEEL_SCORES_RANGES */
    const keel_tensor *ranges;
    /* f32 [kv_heads, slots]; with KEEL_SCORES_WEIGHTS */
    const keel_tensor *weights;
    const keel_scores *scores;
    float scale;
    uint32_t reserved;
    /* Positions of the queries: i32 [m] or [m, kv_heads]. NULL without KEEL_SCORES_WINDOW.
     * since 0.1 */
    const keel_tensor *q_positions;
    /* Length of the model's window in tokens. Used with KEEL_SCORES_WINDOW. since 0.1 */
    int64_t window;
    /* Cap of the logits. Used with KEEL_SCORES_SOFTCAP. since 0.1 */
    float softcap;
    uint32_t reserved_2;
} keel_attention_scores_args;

/* key_project: keys are rotated back at positions[h][slot] first: needs tables */
#define KEEL_KEYS_UNROTATED 1u
/* key_project: out[h][j] = ||K_j||_2; projection is NULL */
#define KEEL_KEYS_NORMS 2u
/* key_sum: sums K_j / ||K_j||_2 (a zero key counts as zero) */
#define KEEL_KEYS_NORMALIZED 4u
/* value_norms: ||V_j||_1 instead of ||V_j||_2 */
#define KEEL_KEYS_L1 8u
/* key_project: out[h][j][:] = K_j * projection, for slots begin..end-1. If projection is NULL and
 *              NORMS is not set: K_j itself, r = head_dim.
 * key_sum:     out[h][:] = sum over slots begin..end-1 of K_j; zeros if there is no slot.
 * value_norms: out[h][j] = ||V_j||, for slots begin..end-1.
 * Each op knows only the bits whose comment names it. Bound 4e-6 for all three. */
typedef struct keel_keys_args {
    KEEL_ARGS_HEAD;
    const keel_kv_view *kv;
    /* the model's, with KEEL_KEYS_UNROTATED; else NULL */
    const keel_rope_tables *tables;
    /* f32 [head_dim, r], or NULL */
    const keel_tensor *projection;
    /* f32: key_project [kv_heads, slots, r] or [kv_heads, slots] with NORMS; key_sum [kv_heads,
     * head_dim]; value_norms [kv_heads, slots] */
    const keel_tensor *out;
    int64_t begin, end;
} keel_keys_args;

/* Adds to running statistics of un-rotated queries: sum[h] += q, second[h] += q q^T (not
 * centred). Bound 4e-6. */
typedef struct keel_query_stats_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *q;      /* f32 [m, heads, head_dim] */
    const keel_tensor *sum;    /* f32 [heads, head_dim] */
    const keel_tensor *second; /* f32 [heads, head_dim, head_dim], or NULL */
} keel_query_stats_args;

#ifdef __cplusplus
}
#endif
#endif

/* The op table's positions, attention and cache ops. The rules at the top of ops.h hold. */
#ifndef KEEL_OPS_ATTENTION_H
#define KEEL_OPS_ATTENTION_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rotate back: sin negated */
#define KEEL_ROPE_INVERSE 1u
/* out = x rotated at its token's position; elements from `rot` on are copied. Bound 2e-6. */
typedef struct keel_rope_args {
    KEEL_ARGS_HEAD;
    /* A [m, heads, head_dim], token-major */
    const keel_tensor *x;
    /* i32 [m], or [m, kv_heads]: head h uses column h / (heads / kv_heads) */
    const keel_tensor *positions;
    const keel_rope_tables *tables;
    /* A, x's shape */
    const keel_tensor *out;
} keel_rope_args;

/* RMS-normalize each query and key head before rotating: q_norm, k_norm, eps (Qwen3) */
#define KEEL_QKV_NORM 1u
/* also write q_unrotated, k_unrotated where not NULL (after the norm, before RoPE) */
#define KEEL_QKV_UNROTATED 2u
/* From the projections to attention's inputs in one call: split, normalize, rotate, write q_out
 * and append K and V (converted to the cache's dtypes) with their positions to the cache, at
 * slots lengths[h] - m + i (a slot below 0 is left out). Views q, k, v may be strided parts of
 * one tensor. Bound 4e-6 before the rounding of the cache's dtype. */
typedef struct keel_qkv_args {
    KEEL_ARGS_HEAD;
    /* A [m, heads, head_dim] */
    const keel_tensor *q;
    /* A [m, kv_heads, head_dim] */
    const keel_tensor *k;
    /* A [m, kv_heads, head_dim] */
    const keel_tensor *v;
    /* i32 [m] or [m, kv_heads] */
    const keel_tensor *positions;
    const keel_rope_tables *tables;
    /* f32 [head_dim] with KEEL_QKV_NORM, else NULL */
    const keel_tensor *q_norm, *k_norm;
    const keel_kv_view *kv;
    /* A [m, heads, head_dim]; may be q itself */
    const keel_tensor *q_out;
    /* f32, shapes of q and k, or NULL */
    const keel_tensor *q_unrotated, *k_unrotated;
    float eps;
    uint32_t reserved;
} keel_qkv_args;

typedef uint32_t keel_reduce;
enum keel_reduce_e { KEEL_REDUCE_NONE = 0,
                     KEEL_REDUCE_SUM = 1,
                     KEEL_REDUCE_MEAN = 2,
                     KEEL_REDUCE_MAX = 3 };

/* Attention probabilities reduced to one number per slot: what policies read. Of each query head
 * the contributing queries' rows are reduced first, then the query heads of a KV head. A key
 * that a query does not see counts 0. With m = 0 nothing is written. */
typedef struct keel_scores {
    keel_header h;
    /* f32 [kv_heads, slots], or [heads, slots] with reduce_group NONE; slots >= max_length.
     * Entries below a head's length are written, the others are left as they are */
    const keel_tensor *out;
    /* only the last `window` of the m queries contribute; 0: all */
    uint32_t window;
    /* SUM, MEAN (by the number of contributing queries) or MAX */
    keel_reduce reduce_queries;
    /* NONE, SUM, MEAN or MAX */
    keel_reduce reduce_group;
    /* 1: with reduce_queries SUM and MEAN add to what is in out, with MAX keep the larger */
    uint32_t accumulate;
} keel_scores;

/* key slot j is visible to query i of m when j <= lengths[h] - m + i; else all j < lengths[h] */
#define KEEL_ATTENTION_CAUSAL 1u
/* and only when q_positions[i] - positions[h][j] < window: a property of the model (Mistral) */
#define KEEL_ATTENTION_WINDOW 2u
/* logits = softcap * tanh(logits / softcap) (Gemma 2) */
#define KEEL_ATTENTION_SOFTCAP 4u
/* also write lse */
#define KEEL_ATTENTION_LSE 8u
/* also write scores, as a by-product */
#define KEEL_ATTENTION_SCORES 16u
/* out[i, h, :] = sum_j softmax_j(scale * q[i, h] . K[j]) V[j] over the visible slots of KV head
 * h / (heads / kv_heads). m = 1 is decode; larger m is prefill, the keys of the m tokens being
 * in the cache already. A query that sees nothing gives zeros and an lse of -inf. Slots at or
 * beyond lengths[h] may hold anything, NaN too, and change nothing; so do K and V of a slot that
 * a query does not see. Softmax is online (never m x length in memory). Bound 1e-5 (exact), 8e-3
 * (fast), after K and V are read in their dtype and while logits are small (below 4 or so): fast
 * may round q and K to bf16, which moves a logit by up to 2^-7 of the sum of its terms'
 * magnitudes, and the exponential multiplies that. For lse s is |lse|; the scores' bound is the
 * same, s being the score itself. */
typedef struct keel_attention_args {
    KEEL_ARGS_HEAD;
    /* A [m, heads, head_dim] */
    const keel_tensor *q;
    const keel_kv_view *kv;
    /* A [m, heads, v_head_dim]; may be q itself */
    const keel_tensor *out;
    /* i32 [m] or [m, kv_heads] with KEEL_ATTENTION_WINDOW, else NULL */
    const keel_tensor *q_positions;
    /* f32 [m, heads]: log(sum_j exp(logit)) with KEEL_ATTENTION_LSE, else NULL */
    const keel_tensor *lse;
    /* with KEEL_ATTENTION_SCORES, else NULL */
    const keel_scores *scores;
    /* 1 / sqrt(head_dim) for Llama */
    float scale;
    float softcap;
    int64_t window;
} keel_attention_args;

/* Appends m tokens' K and V (converted to the cache's dtypes) and positions, at slots lengths[h]
 * - m + i (a slot below 0 is left out). Exact but for the rounding of the dtype, which is that
 * of `cast`. */
typedef struct keel_kv_append_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *k, *v;     /* A [m, kv_heads, head_dim] */
    const keel_tensor *positions; /* i32 [m] or [m, kv_heads] */
    const keel_kv_view *kv;
} keel_kv_append_args;

/* Compaction by index lists: for each head, slot j of `to` = slot index[h][j] of `from`, for j <
 * count[h]; K, V, positions and each side array. Lists are strictly rising, so with from and to
 * the same view moving forwards is safe. `to` may have other blocks (a fork's), some or all:
 * what is in both tables is at the same place in both. Lengths are neither read nor written.
 * Exact. */
typedef struct keel_kv_gather_args {
    KEEL_ARGS_HEAD;
    const keel_kv_view *from, *to;
    /* i32 [kv_heads, n] */
    const keel_tensor *index;
    /* i32 [kv_heads], each 0..n */
    const keel_tensor *count;
    /* n_sides tensors f32 or i32 [kv_heads, slots], moved in place */
    const keel_tensor *const *sides;
    uint32_t n_sides;
    uint32_t reserved;
} keel_kv_gather_args;

/* keys come un-rotated from `source` instead of from the cache: no rounding piles up */
#define KEEL_REROTATE_SOURCE 1u
/* Rotates keys in the cache again: for each slot j in begin..end-1 of head h below its length
 * with r = row[h][j] >= 0, K[j] = rotate(K[j] or source[h][j - begin], by row r of cos/sin) and
 * positions[h][j] = new_positions[h][j]. Computed in f32, then rounded to the K dtype. Bound
 * 4e-6 before that rounding. */
typedef struct keel_kv_rerotate_args {
    KEEL_ARGS_HEAD;
    const keel_kv_view *kv;
    /* of the rotations to apply (usually of differences), not the model's */
    const keel_rope_tables *tables;
    /* i32 [kv_heads, slots]; -1: leave this slot */
    const keel_tensor *row;
    /* i32 [kv_heads, slots] */
    const keel_tensor *new_positions;
    /* f32 [kv_heads, end - begin, head_dim] with KEEL_REROTATE_SOURCE, else NULL */
    const keel_tensor *source;
    int64_t begin, end;
} keel_kv_rerotate_args;

#ifdef __cplusplus
}
#endif
#endif

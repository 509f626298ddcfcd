/* The op table, part 2: RoPE, attention, and the ops that read and write the KV cache.
 *
 * The rules at the top of ops.h hold for these ops too. kv.h explains the cache: slots, positions,
 * blocks. The ops write rows of the cache, but they never change its lengths or its block table:
 * the core does that before it queues the op.
 *
 * A query head h uses KV head h / (heads / kv_heads). So several query heads share a KV head. These
 * query heads are the GROUP of the KV head.
 *
 * EXAMPLE. The core's decoder makes these calls in each layer, for m new tokens. Before these
 * calls, the core has raised all lengths by m and queued a write of the new lengths:
 *
 *     keel_qkv_args p = {KEEL_HEADER(keel_qkv_args)};      // rotates q and k, appends k and v
 *     p.q = &q, p.k = &k, p.v = &v, p.positions = &positions, p.tables = &tables;
 *     p.kv = view, p.q_out = &q;
 *     backend->qkv_prepare(ctx, &p);
 *     keel_attention_args a = {KEEL_HEADER(keel_attention_args)};
 *     a.features = KEEL_ATTENTION_CAUSAL;
 *     a.q = &q, a.kv = view, a.out = &out, a.scale = 1 / sqrtf(head_dim);
 *     backend->attention(ctx, &a);
 *
 * Everything here exists since 0.1. */
#ifndef KEEL_OPS_ATTENTION_H
#define KEEL_OPS_ATTENTION_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- positions and cache writes -------------------------------------------------------------- */

/* The op rotates back: it negates sin. */
#define KEEL_ROPE_INVERSE 1u
/* rope: out = x, rotated by the position of its token (keel_rope_mode in kv.h). Elements from
 * tables->rot on are copied. Bound: 2e-6. */
typedef struct keel_rope_args {
    KEEL_ARGS_HEAD;
    /* Input: type A [m, heads, head_dim]. */
    const keel_tensor *x;
    /* Positions of the tokens: i32 [m], or i32 [m, kv_heads]. In the second case, head h uses
     * column h / (heads / kv_heads). */
    const keel_tensor *positions;
    /* The model's RoPE tables. */
    const keel_rope_tables *tables;
    /* Result: type A, the shape of x. */
    const keel_tensor *out;
} keel_rope_args;

/* Each query head and key head is RMS-normalized before RoPE, with q_norm, k_norm and eps
 * (Qwen3). */
#define KEEL_QKV_NORM 1u
/* The op also writes q_unrotated and k_unrotated, each if it is not NULL. They get the values after
 * the norm and before RoPE. */
#define KEEL_QKV_UNROTATED 2u
/* qkv_prepare: all steps between the projections and attention, in one call.
 * 1. Normalizes the heads of q and k (with KEEL_QKV_NORM).
 * 2. Rotates q and k by the tokens' positions, and writes the queries to q_out.
 * 3. Converts k and v to the cache's dtypes, and writes them and the positions to the cache. Token
 *    i of head h goes to slot lengths[h] - m + i. If this number is below 0, the token is not
 *    written.
 *
 * q, k and v may be strided views of one tensor. Bound: 4e-6, before the rounding to the cache's
 * dtype. */
typedef struct keel_qkv_args {
    KEEL_ARGS_HEAD;
    /* Queries: type A [m, heads, head_dim]. */
    const keel_tensor *q;
    /* Keys: type A [m, kv_heads, head_dim]. */
    const keel_tensor *k;
    /* Values: type A [m, kv_heads, v_head_dim]. */
    const keel_tensor *v;
    /* Positions of the tokens: i32 [m] or [m, kv_heads], as in keel_rope_args. */
    const keel_tensor *positions;
    /* The model's RoPE tables. */
    const keel_rope_tables *tables;
    /* Weights of the norms: f32 [head_dim]. NULL without KEEL_QKV_NORM. */
    const keel_tensor *q_norm, *k_norm;
    /* The layer's cache. */
    const keel_kv_view *kv;
    /* The rotated queries: type A [m, heads, head_dim]. It can be q itself. */
    const keel_tensor *q_out;
    /* Queries and keys before RoPE: f32, the shapes of q and of k. Used only with
     * KEEL_QKV_UNROTATED. NULL: this output is not requested. */
    const keel_tensor *q_unrotated, *k_unrotated;
    /* A small number that is added under the square root of the norms. */
    float eps;
    uint32_t reserved;
} keel_qkv_args;

/* ---- attention ------------------------------------------------------------------------------- */

/* How several numbers are reduced to one number: their sum, their mean, or the largest. NONE: they
 * are not reduced. */
typedef uint32_t keel_reduce;
enum keel_reduce_e { KEEL_REDUCE_NONE = 0,
                     KEEL_REDUCE_SUM = 1,
                     KEEL_REDUCE_MEAN = 2,
                     KEEL_REDUCE_MAX = 3 };

/* Attention probabilities, reduced to one number for each slot. Eviction policies read these
 * numbers.
 *
 * A probability belongs to a query, a query head and a slot. The op first reduces the queries of
 * each query head (reduce_queries), then the query heads of each group (reduce_group). The
 * probability is 0 if the query does not attend to the slot. With m = 0 nothing is written. */
typedef struct keel_scores {
    keel_header h;
    /* The result: f32 [kv_heads, slots], or [heads, slots] if reduce_group is NONE. `slots` is at
     * least kv->max_length. The op writes only the entries below a head's length. */
    const keel_tensor *out;
    /* Only the last `window` of the m queries count. 0: all of them. */
    uint32_t window;
    /* SUM, MEAN or MAX. MEAN divides by the number of queries that count. */
    keel_reduce reduce_queries;
    /* NONE, SUM, MEAN or MAX. */
    keel_reduce reduce_group;
    /* 0: `out` is overwritten. 1: each new number is combined with the previous number in `out`. If
     * reduce_queries is SUM or MEAN, `out` gets the sum of both numbers. If reduce_queries is MAX,
     * `out` gets the larger number. */
    uint32_t accumulate;
} keel_scores;

/* Query i of m attends to slot j (it "sees" the slot) only if j <= lengths[h] - m + i. Without this
 * bit, a query sees all slots below lengths[h]. */
#define KEEL_ATTENTION_CAUSAL 1u
/* Query i sees slot j of head h only if q_positions[i] - positions[h][j] < window, and only if
 * KEEL_ATTENTION_CAUSAL also allows it. This is the attention window of the model (Mistral). */
#define KEEL_ATTENTION_WINDOW 2u
/* logits = softcap * tanh(logits / softcap) (Gemma 2). */
#define KEEL_ATTENTION_SOFTCAP 4u
/* The op also writes `lse`. */
#define KEEL_ATTENTION_LSE 8u
/* The op also computes `scores`. */
#define KEEL_ATTENTION_SCORES 16u
/* attention: out[i, h, :] = sum over the slots j that query i sees: p[j] * V[j], where p is the
 * softmax of scale * q[i, h] . K[j] over these slots. K and V are those of the KV head of h.
 *
 * m = 1 is decode, a larger m is prefill. The keys and values of the m tokens are already in the
 * cache. The op does not need memory for m x length logits: it computes the softmax online.
 *
 * A query that sees no slot gives zeros in `out` and -inf in `lse`. Slots from lengths[h] on, and
 * slots that a query does not see, can contain any value, including NaN. They do not change the
 * result.
 *
 * Bound: 1e-5; fast: 8e-3. The bound uses the stored K and V, after the rounding to their dtype. A
 * fast op may round q and K to bf16. That moves a logit by up to 2^-7 of the sum of its terms'
 * absolute values, and the exponential multiplies the error. So the bounds hold for small logits,
 * below about 4. For `lse`, s is |lse|. For scores the bound is the same, and s is the score. */
typedef struct keel_attention_args {
    KEEL_ARGS_HEAD;
    /* Rotated queries: type A [m, heads, head_dim]. */
    const keel_tensor *q;
    /* The layer's cache. */
    const keel_kv_view *kv;
    /* Result: type A [m, heads, v_head_dim]. It can be q itself. */
    const keel_tensor *out;
    /* Positions of the queries: i32 [m] or [m, kv_heads]. NULL without KEEL_ATTENTION_WINDOW. */
    const keel_tensor *q_positions;
    /* The logarithm of the softmax's sum, log(sum_j exp(logit_j)): f32 [m, heads]. NULL without
     * KEEL_ATTENTION_LSE. */
    const keel_tensor *lse;
    /* The reduction of the probabilities, and its output. NULL without KEEL_ATTENTION_SCORES. */
    const keel_scores *scores;
    /* Factor of the dot products. 1 / sqrt(head_dim) for Llama. */
    float scale;
    /* Cap of the logits. Used with KEEL_ATTENTION_SOFTCAP. */
    float softcap;
    /* Length of the model's window in tokens. Used with KEEL_ATTENTION_WINDOW. */
    int64_t window;
} keel_attention_args;

/* ---- the cache ------------------------------------------------------------------------------- */

/* kv_append: only the third step of qkv_prepare. Converts K and V of m tokens to the cache's
 * dtypes, and writes them and the positions to the cache. In head h, token i goes to slot
 * lengths[h] - m + i. If this number is below 0, the token is not written. The rounding to the
 * dtypes is equal to that of `cast`. Bound: exact. */
typedef struct keel_kv_append_args {
    KEEL_ARGS_HEAD;
    /* Keys: type A [m, kv_heads, head_dim]. Values: type A [m, kv_heads, v_head_dim]. */
    const keel_tensor *k, *v;
    /* Positions of the tokens: i32 [m] or [m, kv_heads]. */
    const keel_tensor *positions;
    /* The layer's cache. */
    const keel_kv_view *kv;
} keel_kv_append_args;

/* kv_gather compacts a cache. For each head h and each j < count[h], slot j of `to` becomes a copy
 * of slot index[h][j] of `from`: K, V, position, and the entry of each side array.
 *
 * Each list is strictly rising. So `from` and `to` can be the same view: rows only move to lower
 * slots. `to` can also have some other blocks, if a fork shares the blocks of `from`. A block that
 * is in both block tables has the same place in both. Lengths are neither read nor written. Bound:
 * exact. */
typedef struct keel_kv_gather_args {
    KEEL_ARGS_HEAD;
    /* Caches with the same kv_heads, head sizes and dtypes. */
    const keel_kv_view *from, *to;
    /* Slots to copy: i32 [kv_heads, n]. */
    const keel_tensor *index;
    /* Number of used entries of each list: i32 [kv_heads], each 0..n. */
    const keel_tensor *count;
    /* Side arrays, which have a number for each slot: n_sides tensors f32 or i32 [kv_heads, slots].
     * They are moved in place. */
    const keel_tensor *const *sides;
    /* Number of side arrays. */
    uint32_t n_sides;
    uint32_t reserved;
} keel_kv_gather_args;

/* The op rotates keys from `source`, which are not rotated yet. Without this bit, it rotates the
 * keys in the cache, and each rotation rounds them again. */
#define KEEL_REROTATE_SOURCE 1u
/* kv_rerotate: rotates keys that are in the cache. For each head h and each slot j of begin..end-1
 * that is below lengths[h] and has r = row[h][j] >= 0:
 *
 *     K[j] = rotate(K[j] or source[h][j - begin], by row r of the tables)
 *     positions[h][j] = new_positions[h][j]
 *
 * The op computes in f32, then rounds to the dtype of K. The bound before this rounding is 4e-6.
 * */
typedef struct keel_kv_rerotate_args {
    KEEL_ARGS_HEAD;
    /* The layer's cache. */
    const keel_kv_view *kv;
    /* Cosines and sines of the rotations to apply, usually for differences of positions. These are
     * not the tables of the model: `row` gives the table row of each slot. */
    const keel_rope_tables *tables;
    /* Row of the tables for each slot: i32 [kv_heads, slots]. -1: the slot stays as it is. */
    const keel_tensor *row;
    /* New position of each slot: i32 [kv_heads, slots]. */
    const keel_tensor *new_positions;
    /* Un-rotated keys: f32 [kv_heads, end - begin, head_dim]. NULL without KEEL_REROTATE_SOURCE. */
    const keel_tensor *source;
    /* The slots of the range are begin..end-1. */
    int64_t begin, end;
} keel_kv_rerotate_args;

#ifdef __cplusplus
}
#endif
#endif

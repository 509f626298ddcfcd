/* keel.attention_dense/1 (draft): attention over plain tensors, forward and backward.
 *
 * The op KEEL_OP_ATTENTION (ops_attention.h) reads keys and values from a KV cache and has no
 * gradient. This extension computes attention over tensors that the caller owns. It also computes
 * the gradients of attention. Training and models without a cache can use this extension. The
 * core's decoder does not use it.
 *
 * A backend's keel_plugin.get_extension("keel.attention_dense/1") returns a keel_dense. NULL means
 * that the backend does not support dense attention. There is no fallback, so the host reports an
 * error to the user.
 *
 * SHAPES. batch, rows (queries), keys, heads and kv_heads are sizes of the tensors. heads is a
 * multiple of kv_heads. Query head h uses KV head h / (heads / kv_heads). head_dim is the size of
 * a query and of a key. v_head_dim is the size of a value. Both sizes are from 16 to 256, and need
 * not be equal.
 *
 * FORWARD. For batch b, head h, query i and key j:
 *
 *     z[j] = scale * q[b, i, h] . k[b, j, h]
 *     z[j] = softcap * tanh(z[j] / softcap)           with KEEL_DENSE_SOFTCAP
 *     z[j] = z[j] + bias[b, h, i, j]                  with KEEL_DENSE_BIAS
 *     lse  = log(sum_j exp(z[j]))                     without KEEL_DENSE_SINK
 *     lse  = log(sum_j exp(z[j]) + exp(sink[h]))      with KEEL_DENSE_SINK
 *     p[j] = exp(z[j] - lse)
 *     w[j] = p[j]                                     without KEEL_DENSE_DROPOUT
 *     w[j] = p[j] * keep[b, h, i, j] / (1 - dropout)  with KEEL_DENSE_DROPOUT; keep is 0 or 1
 *     out[b, i, h] = sum_j w[j] * v[b, j, h]
 *
 * The sums are over the keys that the query SEES. A key is hidden from a query in three cases.
 * KEEL_DENSE_CAUSAL or KEEL_DENSE_WINDOW hides the key, or the pair's `mask` is 0, or the pair's
 * `bias` is -infinity. A hidden key adds nothing, even if q, k, v or gradients contain NaN.
 *
 * POSITIONS. Key j has position j. Query i has position i + keys - rows. So the last query has the
 * position of the last key. With KEEL_DENSE_CAUSAL the last query sees all keys, the
 * second-last query sees all keys but one, and so on. If there are more rows than keys, the first
 * queries see no key.
 *
 * A query that sees no key is FULLY MASKED. A fully masked query's row of `out` is 0.
 * The query's lse is -infinity, or sink[h] with KEEL_DENSE_SINK, as the formula gives. A row whose
 * logits are all -infinity counts as fully masked too. If the lse of a row is NaN, the row of `out`
 * is NaN.
 *
 * BACKWARD. Given d_out, the gradient of a loss with respect to `out`:
 *
 *     delta = sum over v_head_dim of d_out[b, i, h] * out[b, i, h]
 *     p[j]  = exp(z[j] - lse)                          computed again from q, k and the stored lse
 *     dp[j] = d_out[b, i, h] . v[b, j, h] * keep / (1 - dropout)
 *     dz[j] = p[j] * (dp[j] - delta)                   without KEEL_DENSE_SOFTCAP
 *     dz[j] = p[j] * (dp[j] - delta) * (1 - (z[j] / softcap)^2)   with KEEL_DENSE_SOFTCAP
 *     d_q[b, i, h] = scale * sum_j dz[j] * k[b, j, h]
 *     d_k[b, j, h / g] = scale * sum over i and the heads h of the KV head: dz[j] * q[b, i, h]
 *     d_v[b, j, h / g] = sum over i and the heads h of the KV head: w[j] * d_out[b, i, h]
 *     d_sink[h] = - sum over b and i of exp(sink[h] - lse) * delta
 *
 * g = heads / kv_heads is the number of query heads of a KV head.
 *
 * An element of `out` that is 0 adds 0 to delta, even if the element of d_out is NaN or infinite.
 *
 * The factor 1 - (z[j] / softcap)^2 uses the capped logit z[j] before the bias is added. A fully
 * masked row adds nothing to a gradient, and the row's d_q is 0. `bias` gets NO gradient, because
 * `bias` is a constant, such as a table of distances. `mask` gets no gradient either. The memory
 * that a backend needs besides the tensors grows linearly with rows and keys. The results have the
 * same bits for any number of threads.
 *
 * DROPOUT. keep depends only on seed, offset, batch, head, query and key. So forward and backward
 * use the same keep, on each backend and for any number of threads. keel_dense_keeps() below
 * computes keep.
 *
 * ACCURACY. Results are compared with a reference: the formulas above, computed in float64. The
 * backward pass of the reference reads `out` and `lse` as forward stored them, rounded to their
 * dtypes. For every element y of a result: |y - reference| <= bound * (1 + s). s is the sum of the
 * absolute values of the terms that were added up for the element. The bound is 1e-5 for an f32
 * result, 2e-3 for f16 and 1e-2 for bf16. The bound holds if the absolute values of the terms of
 * each logit sum up to at most 64, or if the logits are exact in f32. With larger logits, the
 * rounding of a logit causes a larger relative error of p. `lse` is stored in f32. So in backward p
 * has a relative error of up to |lse| * 2^-24.
 *
 * EXAMPLE. Causal attention and its gradients. Each tensor is a keel_tensor of rank 4:
 *
 *     const keel_dense *dense = plugin->get_extension(KEEL_EXT_ATTENTION_DENSE);
 *     keel_dense_attention a = {KEEL_HEADER(keel_dense_attention)};
 *     a.features = KEEL_DENSE_CAUSAL;
 *     a.q = &q, a.k = &k, a.v = &v, a.scale = 1 / sqrtf(head_dim);
 *     keel_dense_outputs o = {KEEL_HEADER(keel_dense_outputs)};
 *     o.out = &out, o.lse = &lse;
 *     status = dense->forward(ctx, &a, &o);
 *     keel_dense_gradients g = {KEEL_HEADER(keel_dense_gradients)};
 *     g.out = &out, g.lse = &lse, g.d_out = &d_out;
 *     g.d_q = &d_q, g.d_k = &d_k, g.d_v = &d_v;
 *     status = dense->backward(ctx, &a, &g);
 *
 * PAPERS. Dao, Fu, Ermon, Rudra, Re: FlashAttention, arXiv 2205.14135. Dao: FlashAttention-2,
 * arXiv 2307.08691. Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC
 * 2011), for Philox.
 *
 * Every declaration in this header has existed since the first version of the extension. */
#ifndef KEEL_EXT_ATTENTION_DENSE_H
#define KEEL_EXT_ATTENTION_DENSE_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_ATTENTION_DENSE "keel.attention_dense/1"

/* Query i sees key j only if j <= i + keys - rows. */
#define KEEL_DENSE_CAUSAL 1u
/* A query at position x sees key j only if x - window_before <= j <= x + window_after. */
#define KEEL_DENSE_WINDOW 2u
/* Logits are capped by `softcap`. */
#define KEEL_DENSE_SOFTCAP 4u
/* `sink` is used. */
#define KEEL_DENSE_SINK 8u
/* `bias` is used. */
#define KEEL_DENSE_BIAS 16u
/* `mask` is used. */
#define KEEL_DENSE_MASK 32u
/* `dropout`, `offset` and `seed` are used. */
#define KEEL_DENSE_DROPOUT 64u

/* The smallest and the largest head_dim and v_head_dim. */
#define KEEL_DENSE_LEAST_DIM 16
#define KEEL_DENSE_MOST_DIM 256

/* The arguments of both passes: the inputs, and the features of the attention. A host fills the
 * struct once and passes it to forward and to backward.
 *
 * Strides of all tensors of this extension: the innermost dimension is contiguous. The strides of
 * the other dimensions are at least 0 and multiples of the element's size. No two elements of one
 * tensor share memory: in rising order, each stride is at least the number of bytes that the
 * dimensions with smaller strides span. The stride of a dimension of size 0 or 1 is not read. So a
 * tensor may be a part of a packed tensor, and a tensor may be stored in the order [batch, heads,
 * rows, head_dim].
 *
 * The caller owns the struct and the tensors. The struct and the tensors are valid during the
 * call. A pointer whose feature bit is not set is NULL. */
typedef struct keel_dense_attention {
    keel_header h;
    /* Bits KEEL_DENSE_*. An unknown bit is KEEL_E_UNSUPPORTED. */
    uint64_t features;
    /* Queries: f32, f16 or bf16 [batch, rows, heads, head_dim]. */
    const keel_tensor *q;
    /* Keys: f32, f16 or bf16 [batch, keys, kv_heads, head_dim]. */
    const keel_tensor *k;
    /* Values: f32, f16 or bf16 [batch, keys, kv_heads, v_head_dim]. */
    const keel_tensor *v;
    /* Learned logit of each head that only adds to the sum of the softmax: f32 [heads]. With
     * KEEL_DENSE_SINK, else NULL. -infinity means: no sink. */
    const keel_tensor *sink;
    /* Added to the logits: f32, f16 or bf16 [batch, heads, rows, keys]. Each of the first three
     * sizes may also be 1. Then all batches, heads or rows use the same values. With
     * KEEL_DENSE_BIAS, else NULL. */
    const keel_tensor *bias;
    /* 0: the query does not see the key. Other values: the mask does not hide the key. u8, with the
     * shape of `bias`. With KEEL_DENSE_MASK, else NULL. */
    const keel_tensor *mask;
    /* Factor of the dot products, finite. 1 / sqrt(head_dim) is usual. */
    float scale;
    /* Cap of the logits, finite and above 0. Used with KEEL_DENSE_SOFTCAP. */
    float softcap;
    /* Number of keys that a query sees before and after the query's position, at least 0. -1: no
     * limit on this side. A window of W tokens of Mistral is window_before = W - 1. Used with
     * KEEL_DENSE_WINDOW. */
    int64_t window_before, window_after;
    /* Probability with which a weight is dropped, at least 0 and below 1. The other weights are
     * multiplied by 1 / (1 - dropout). Used with KEEL_DENSE_DROPOUT. */
    float dropout;
    /* Number of the call, chosen by the host. Another number gives another mask. Used with
     * KEEL_DENSE_DROPOUT. */
    uint32_t offset;
    /* Seed of the mask. Used with KEEL_DENSE_DROPOUT. */
    uint64_t seed;
} keel_dense_attention;

/* What forward writes. The tensors do not overlap each other or an input. The caller owns the
 * struct and the tensors. The struct and the tensors are valid during the call. */
typedef struct keel_dense_outputs {
    keel_header h;
    /* Result: f32, f16 or bf16 [batch, rows, heads, v_head_dim]. */
    const keel_tensor *out;
    /* Log-sum-exp of each row, the natural logarithm: f32 [batch, heads, rows]. backward needs
     * the log-sum-exp. NULL: forward does not write it. */
    const keel_tensor *lse;
} keel_dense_outputs;

/* What backward reads and writes. The tensors that it writes do not overlap each other or an
 * input. The caller owns the struct and the tensors. The struct and the tensors are valid during
 * the call. */
typedef struct keel_dense_gradients {
    keel_header h;
    /* Inputs: `out` and `lse`, as forward wrote them. */
    const keel_tensor *out, *lse;
    /* Input: the gradient of the loss with respect to `out`. f32, f16 or bf16, the shape of
     * `out`. */
    const keel_tensor *d_out;
    /* Results: the gradients with respect to q, k and v. f32, f16 or bf16, the shapes of q, k and
     * v. Old values are overwritten. */
    const keel_tensor *d_q, *d_k, *d_v;
    /* Result: the gradient with respect to `sink`. f32 [heads]. With KEEL_DENSE_SINK, else NULL.
     * Old values are overwritten. */
    const keel_tensor *d_sink;
} keel_dense_gradients;

/* The functions of this extension. `forward` must be inside struct_size and not NULL. Calls are
 * queued in the stream like ops.
 *
 * Both functions return the errors below. If a function returns an error, it has written nothing.
 * The message of set_error has the pass, the member, what was found and what was expected.
 * KEEL_E_INVALID_ARG: a shape, stride or number that this header forbids; a missing tensor; a
 * tensor that reaches beyond its buffer.
 * KEEL_E_UNSUPPORTED: an unknown feature bit, a dtype that is not listed, or a dtype that this
 * backend does not take.
 * KEEL_E_OUT_OF_MEMORY: scratch memory cannot be allocated. */
typedef struct keel_dense {
    keel_header h;
    /* Computes `out` and `lse`. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *forward)(keel_ctx *, const keel_dense_attention *,
                                    const keel_dense_outputs *);
    /* Computes the gradients. NULL: this backend only has forward. Thread: one call at a time
     * on a context. */
    keel_status(KEEL_CALL *backward)(keel_ctx *, const keel_dense_attention *,
                                     const keel_dense_gradients *);
} keel_dense;

/* ---- the dropout mask ------------------------------------------------------------------------ */

/* Philox 4x32 with 10 rounds: turns a counter of four 32-bit numbers into four random numbers, in
 * place. The key has 64 bits. Thread: any thread. */
static inline void keel_dense_philox(uint32_t counter[4], uint32_t key_low, uint32_t key_high) {
    uint32_t round;
    for (round = 0; round < 10; ++round) {
        const uint64_t a = (uint64_t)0xD2511F53u * counter[0];
        const uint64_t b = (uint64_t)0xCD9E8D57u * counter[2];
        counter[0] = (uint32_t)(b >> 32) ^ counter[1] ^ key_low;
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ counter[3] ^ key_high;
        counter[3] = (uint32_t)a;
        key_low += 0x9E3779B9u;
        key_high += 0xBB67AE85u;
    }
}

/* Makes four random numbers, for the keys 4 * group to 4 * group + 3 and for query `row` of head
 * `head` of batch `batch`. `heads` is the number of heads. Thread: any thread. */
static inline void keel_dense_random(const keel_dense_attention *a, int64_t batch, int64_t heads,
                                     int64_t head, int64_t row, int64_t group,
                                     uint32_t numbers[4]) {
    numbers[0] = (uint32_t)group;
    numbers[1] = (uint32_t)row;
    numbers[2] = (uint32_t)(batch * heads + head);
    numbers[3] = a->offset;
    keel_dense_philox(numbers, (uint32_t)a->seed, (uint32_t)(a->seed >> 32));
}

/* If a weight's random number is below the returned number, dropout drops the weight. Thread: any
 * thread. */
static inline uint32_t keel_dense_drop_below(float dropout) {
    return (uint32_t)((double)dropout * 4294967296.0);
}

/* keep[batch, head, row, key]: 1 if dropout keeps the weight, 0 if it drops the weight. Thread: any
 * thread. */
static inline int32_t keel_dense_keeps(const keel_dense_attention *a, int64_t batch, int64_t heads,
                                       int64_t head, int64_t row, int64_t key) {
    uint32_t numbers[4];
    keel_dense_random(a, batch, heads, head, row, key / 4, numbers);
    return numbers[key % 4] >= keel_dense_drop_below(a->dropout);
}

#ifdef __cplusplus
}
#endif
#endif

/* The op table's linear, norm, activation and elementwise ops, and what all ops share. See
 * ops_attention.h, ops_policy.h.
 *
 * Rules for every op:
 * - Shapes in comments are [outermost, ..., innermost]. m is a number of tokens (decode: 1). Any
 *   dimension may be 0.
 * - Unless said otherwise inputs and outputs may have any outer strides. An output may be the
 *   very same view as an input ("in place"), but must not overlap an input in another way.
 * - A = the pipeline's activation dtype (keel_ctx_info.activation_dtype) or f32. Sums, norms and
 *   softmax are computed in f32 or better.
 * - A NaN or infinity in an input shows in the outputs that depend on it: if the formula gives a
 *   number that is not finite, the backend gives one too, of any kind. No other output is
 *   affected. Exact ops keep the NaN or infinity as it is.
 * - The core has checked shapes and dtypes against the comments before the call. A backend that
 *   does not take a dtype, stride pattern or feature returns KEEL_E_UNSUPPORTED from op_plan (or
 *   from the call) and has no side effect.
 * - `reference` in the core computes every op as written here, with float64 sums. The bound
 *   beside an op is on |y - reference| / (1 + s). s is the sum of the absolute values of the
 *   terms that were added up for that element; for plain elementwise ops, norms, activations and
 *   softmax it is |reference|. Outputs in a 16-bit or quantized dtype add that dtype's rounding.
 * - Work is queued in the context's stream and runs in order. */
#ifndef KEEL_OPS_H
#define KEEL_OPS_H

#include "kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A weight in a backend's own layout; made by weight_prepare. */
typedef struct keel_weight keel_weight;
/* What a backend settled for an op at build time: kernel, descriptors, scratch; made by op_plan. */
typedef struct keel_plan keel_plan;

/* Ids of the ops, for op_plan and for reports. Numbers are for ever; 0x10000 and above belong to
 * extensions. */
typedef uint32_t keel_op;
enum keel_op_e {
    KEEL_OP_MATMUL = 1,
    KEEL_OP_RMS_NORM = 2,
    KEEL_OP_ADD_RMS_NORM = 3,
    KEEL_OP_LAYER_NORM = 4,
    KEEL_OP_SILU_MUL = 5,
    KEEL_OP_GELU_MUL = 6,
    KEEL_OP_ADD = 7,
    KEEL_OP_ADD_BIAS = 8,
    KEEL_OP_SCALE = 9,
    KEEL_OP_SCALED_ADD = 10,
    KEEL_OP_SOFTMAX = 11,
    KEEL_OP_CAST = 12,
    KEEL_OP_COPY = 13,
    KEEL_OP_TRANSPOSE = 14,
    KEEL_OP_ZERO = 15,
    KEEL_OP_ROPE = 16,
    KEEL_OP_QKV_PREPARE = 17,
    KEEL_OP_ATTENTION = 18,
    KEEL_OP_ATTENTION_SCORES = 19,
    KEEL_OP_KEY_PROJECT = 20,
    KEEL_OP_KEY_SUM = 21,
    KEEL_OP_VALUE_NORMS = 22,
    KEEL_OP_QUERY_STATS = 23,
    KEEL_OP_KV_APPEND = 24,
    KEEL_OP_KV_GATHER = 25,
    KEEL_OP_KV_REROTATE = 26,
    KEEL_OP_EMBED = 27,
    KEEL_OP_ARGMAX_ROWS = 28,
    KEEL_OP_TOP_K_ROWS = 29
};

/* The members that every args struct begins with. */
typedef struct keel_op_args {
    keel_header h;
    uint64_t features; /* bits of that op; an unknown bit is KEEL_E_UNSUPPORTED */
    keel_plan *plan;   /* from op_plan with the same op, or NULL: the backend chooses in the call */
} keel_op_args;

#define KEEL_ARGS_HEAD \
    keel_header h;     \
    uint64_t features; \
    keel_plan *plan

/* ---- linear ---------------------------------------------------------------------------------- */

#define KEEL_MATMUL_BIAS 1u       /* bias is added */
#define KEEL_MATMUL_ACCUMULATE 2u /* out += instead of out = ; out is then f32 */
/* out[m, n] = x[m, k] * W[n, k]^T (+ bias). W is `weight` if not NULL, else `w`; f32, f16, bf16,
 * q8_0, q4_0 and what more a backend declares; k is a multiple of W's block. m = 1 is decode.
 * Bound: exact 2e-6; fast (activations quantized for the dot products) 1.5e-2 for q8_0 and q4_0,
 * 4e-3 else. */
typedef struct keel_matmul_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *x; /* A [m, k] */
    keel_weight *weight;
    const keel_tensor *w;    /* [n, k] */
    const keel_tensor *bias; /* f32 [n] with KEEL_MATMUL_BIAS, else NULL */
    const keel_tensor *out;  /* A [m, n]; does not overlap x */
} keel_matmul_args;

/* out[t, :] = float(W[ids[t], :]) * scale. An id outside W's rows gives a row of NaN. Bound
 * 1e-6. A weight prepared for KEEL_USE_EMBED gives exactly the values of its source. */
typedef struct keel_embed_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *ids; /* i32 [m] */
    keel_weight *weight;
    const keel_tensor *w;   /* [vocab, dim]; used when weight is NULL */
    const keel_tensor *out; /* A [m, dim] */
    float scale;            /* 1 for Llama */
    uint32_t reserved;
} keel_embed_args;

/* ---- norms ----------------------------------------------------------------------------------- */

/* rms_norm:     out = x / sqrt(mean(x^2) + eps) * weight, along the innermost dimension.
 * add_rms_norm: residual += x first; then out = rms_norm(residual).
 * layer_norm:   out = (x - mean) / sqrt(var + eps) * weight + bias; the variance is that of the
 *               population.
 * Bound 4e-6. */
typedef struct keel_norm_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *x;        /* A [m, dim] or [m, heads, dim] */
    const keel_tensor *residual; /* add_rms_norm: f32, x's shape, read and written; else NULL */
    const keel_tensor *weight;   /* f32 [dim] */
    const keel_tensor *bias;     /* layer_norm: f32 [dim] or NULL; else NULL */
    const keel_tensor *out;      /* A, x's shape */
    float eps;
    uint32_t reserved;
} keel_norm_args;

/* ---- activation ------------------------------------------------------------------------------ */

/* gate holds pairs (gate, up) [m, 2n] and up is NULL: a weight joined KEEL_JOIN_INTERLEAVE */
#define KEEL_GATE_INTERLEAVED 1u
/* gelu_mul: the tanh approximation instead of erf */
#define KEEL_GELU_TANH 2u
/* silu_mul: out = gate / (1 + exp(-gate)) * up. gelu_mul: out = gelu(gate) * up; with up NULL
 * and not interleaved, gelu alone. Gate and up in one tensor one after the other are two strided
 * views. Bound 4e-6. */
typedef struct keel_gate_args {
    KEEL_ARGS_HEAD;
    /* A [m, n] or [m, 2n] */
    const keel_tensor *gate;
    /* A [m, n] or NULL */
    const keel_tensor *up;
    /* A [m, n] */
    const keel_tensor *out;
} keel_gate_args;

/* ---- elementwise ----------------------------------------------------------------------------- */

/* add:        out = a + b.
 * add_bias:   out[m, n] = a[m, n] + b[n].
 * scale:      out = a * factor.
 * scaled_add: out = out + factor * a.
 * Each tensor is A or f32; ranks 1 to 4. Bound 1e-6. Unused members are NULL. */
typedef struct keel_elementwise_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *a;
    const keel_tensor *b;
    const keel_tensor *out;
    float factor;
    uint32_t reserved;
} keel_elementwise_args;

/* softmax:   out[r, :] = exp(x - max) / sum. A, [rows, n]. A row of -inf only gives zeros.
 *            Bound 2e-6.
 * cast:      out = x in another dtype, rounded to nearest even: between f32, f16 and bf16, and
 *            from f32 to q8_0 or q4_0 and back. Same shape, ranks 1 to 4. Exact. Blocks are
 *            those of GGML's reference quantizer, computed in f32; d is then stored as f16:
 *              q8_0: d = amax / 127, q = roundf(x * (1 / d))
 *              q4_0: d = max / -8, q = min(15, (int)(x * (1 / d) + 8.5f)); max is the first
 *                    value of the largest magnitude
 *            A block with a NaN, an infinity or |d| above 65504 reads as NaN. A block whose
 *            1 / d is not finite has d = 0, and the code of 0 in all q.
 * copy:      out = x, same dtype (any, blocks too) and shape, any outer strides. Exact.
 * transpose: out[b, a, d] = x[a, b, d]: token-major to head-major and back. Same dtype. Exact.
 *            Not in place.
 * zero:      out = 0 (all bytes); x NULL. */
typedef struct keel_move_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *x;
    const keel_tensor *out;
} keel_move_args;

/* ---- rows ------------------------------------------------------------------------------------ */

/* argmax_rows: index[r] = index of the largest x[r, :]; of equal values the lowest index wins.
 *              -1 if the row has a NaN or an infinity, or n is 0.
 * top_k_rows:  the k largest values of a row, largest first; of equal values the lower index
 *              first. A row with a NaN gives indices -1 and values NaN. k <= n.
 * Exact. */
typedef struct keel_rows_args {
    KEEL_ARGS_HEAD;
    const keel_tensor *x;      /* A [rows, n] */
    const keel_tensor *values; /* top_k_rows: f32 [rows, k]; else NULL */
    const keel_tensor *index;  /* i32 [rows] or [rows, k] */
} keel_rows_args;

#ifdef __cplusplus
}
#endif
#endif

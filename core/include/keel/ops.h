/* The op table, part 1: the rules of all ops, and the linear, norm, activation, elementwise and row
 * ops. Part 2 is ops_attention.h (positions, attention, cache), part 3 ops_policy.h (inputs of
 * eviction policies), part 4 ops_experts.h (mixture of experts).
 *
 * An OP is one step of a model's computation, such as a matrix product. The core calls it through a
 * function pointer of keel_backend (backend.h) with a struct of arguments, its "args". A backend
 * can implement only some ops. For each op that a backend does not have or refuses, the core uses
 * the FALLBACK LADDER. The core first composes the op from smaller ops. Then it tries the backend
 * that the config names as fallback. Then it uses its own REFERENCE, which implements every op in
 * plain C++.
 *
 * EXAMPLE. y[m, n] = x[m, k] * W[n, k]^T + bias:
 *
 *     keel_matmul_args a = {KEEL_HEADER(keel_matmul_args)};
 *     a.features = KEEL_MATMUL_BIAS;
 *     a.plan = plan;            // from op_plan with KEEL_OP_MATMUL, or NULL
 *     a.x = &x, a.weight = weight, a.bias = &bias, a.out = &y;
 *     status = backend->matmul(ctx, &a);
 *
 * RULES FOR EVERY OP
 * - Shapes in comments are [outermost, ..., innermost]. m is a number of tokens; one step of
 *   decoding has m = 1. Any dimension may be 0.
 * - Type A is f32 or the backend's activation type (keel_ctx_info.activation_dtype). A tensor of
 *   type A may have either type.
 * - Inputs and outputs may have any outer strides, unless the op's comment restricts them. An
 *   output may be exactly the same view as an input ("in place"). It must not overlap an input in
 *   any other way.
 * - The caller owns the args, the tensors in them and the structs that they point to. They are
 *   valid during the call. The op is queued in the context's stream (backend.h) and runs in order.
 *   The buffers that the tensors name stay valid until the op is done.
 * - Pointers that an op does not use are NULL.
 * - Sums, norms and softmax are computed in f32 or better.
 * - If the formula gives a number that is not finite, the output also has a number that is not
 *   finite at this place: NaN or an infinity. Only outputs that depend on a NaN or infinity are
 *   affected. Ops whose bound is "exact" keep the NaN or infinity as it is.
 * - Thread: one call at a time on a context.
 *
 * ERRORS. The core checks shapes and dtypes against these comments before it calls. A backend that
 * does not take a dtype, a stride pattern or a feature returns KEEL_E_UNSUPPORTED and has no side
 * effect. op_plan returns this status if the backend can decide from the template; otherwise the
 * call returns it. A backend also returns KEEL_E_UNSUPPORTED for a feature bit that is not listed
 * for the op.
 *
 * ACCURACY. The reference computes every op as written here, with sums in float64. The "bound" in
 * an op's comment limits |y - reference| / (1 + s) for each element y. s is the sum of the absolute
 * values of the terms that were added up for the element. For elementwise ops, norms, activations
 * and softmax, s is |reference|. The rounding of an output with 16 bits or a quantized type is
 * added to the bound. "Exact" as a bound means that the value is equal to the reference. Some ops
 * have two bounds. The bound for "fast" holds if the word "fast" is in keel_plan_info.kernel, or,
 * for a backend without op_plan, if "compute fast" is in keel_ctx_info.description. Otherwise the
 * stricter bound holds.
 *
 * Everything here exists since 0.1. */
#ifndef KEEL_OPS_H
#define KEEL_OPS_H

#include "kv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A weight matrix in the layout that the backend chose. weight_prepare creates it, weight_destroy
 * destroys it (backend.h). Only the backend knows its contents. */
typedef struct keel_weight keel_weight;
/* The decisions of a backend about one op, made before the op is called: kernel, descriptors,
 * scratch memory. op_plan creates it, plan_destroy destroys it (backend.h). */
typedef struct keel_plan keel_plan;

/* Number of an op, for op_plan and reports. Numbers never change. Extensions use numbers from
 * 0x10000 on. The op with number n is the n-th op slot of keel_backend. The comment of its args
 * struct describes it. */
typedef uint32_t keel_op;
enum keel_op_e {
    KEEL_OP_MATMUL = 1,            /* product of activations and a weight */
    KEEL_OP_RMS_NORM = 2,          /* RMS norm */
    KEEL_OP_ADD_RMS_NORM = 3,      /* residual addition, then RMS norm */
    KEEL_OP_LAYER_NORM = 4,        /* layer norm */
    KEEL_OP_SILU_MUL = 5,          /* gated SiLU */
    KEEL_OP_GELU_MUL = 6,          /* gated GELU */
    KEEL_OP_ADD = 7,               /* a + b */
    KEEL_OP_ADD_BIAS = 8,          /* a + b in each row */
    KEEL_OP_SCALE = 9,             /* a * factor */
    KEEL_OP_SCALED_ADD = 10,       /* out + factor * a */
    KEEL_OP_SOFTMAX = 11,          /* softmax of each row */
    KEEL_OP_CAST = 12,             /* another element type */
    KEEL_OP_COPY = 13,             /* other strides or memory */
    KEEL_OP_TRANSPOSE = 14,        /* swap of the two outer dimensions */
    KEEL_OP_ZERO = 15,             /* fill with zeros */
    KEEL_OP_ROPE = 16,             /* rotation by position */
    KEEL_OP_QKV_PREPARE = 17,      /* norm, RoPE and cache append of one layer */
    KEEL_OP_ATTENTION = 18,        /* attention over a KV cache */
    KEEL_OP_ATTENTION_SCORES = 19, /* attention probabilities, without values */
    KEEL_OP_KEY_PROJECT = 20,      /* keys times a matrix, or their norms */
    KEEL_OP_KEY_SUM = 21,          /* sum of keys */
    KEEL_OP_VALUE_NORMS = 22,      /* norms of values */
    KEEL_OP_QUERY_STATS = 23,      /* running sums of queries */
    KEEL_OP_KV_APPEND = 24,        /* cache append of one layer */
    KEEL_OP_KV_GATHER = 25,        /* cache compaction by index lists */
    KEEL_OP_KV_REROTATE = 26,      /* rotation of keys in the cache */
    KEEL_OP_EMBED = 27,            /* rows of a weight by token id */
    KEEL_OP_ARGMAX_ROWS = 28,      /* index of the largest value of each row */
    KEEL_OP_TOP_K_ROWS = 29,       /* the k largest values of each row */
    KEEL_OP_CHOOSE_EXPERTS = 30,   /* experts and their weights, from the logits of a router */
    KEEL_OP_EXPERT_MATMUL = 31     /* products with the matrices of the chosen experts */
};

/* The first members of every args struct. */
typedef struct keel_op_args {
    keel_header h;
    /* Feature bits of this op, such as KEEL_MATMUL_BIAS. They are listed above each args struct.
     * For an unknown bit the backend returns KEEL_E_UNSUPPORTED. */
    uint64_t features;
    /* The plan that op_plan returned for this op. NULL: the backend decides during the call. */
    keel_plan *plan;
} keel_op_args;

/* The members of keel_op_args, as the start of another args struct. */
#define KEEL_ARGS_HEAD \
    keel_header h;     \
    uint64_t features; \
    keel_plan *plan

/* ---- linear ---------------------------------------------------------------------------------- */

/* The op adds `bias`. */
#define KEEL_MATMUL_BIAS 1u
/* The op adds the product to the previous contents of `out`. Then `out` is f32. */
#define KEEL_MATMUL_ACCUMULATE 2u
/* matmul: out[m, n] = x[m, k] * W[n, k]^T (+ bias).
 *
 * W is `weight`, or `w` if `weight` is NULL. W is f32, f16, bf16, q8_0, q4_0, or a type of
 * keel_ctx_info.weight_dtypes. k is a multiple of W's block.
 * Bound: 2e-6. Fast (activations are quantized for the dot products): 1.5e-2 if W is q8_0 or q4_0,
 * 4e-3 if W has another type. */
typedef struct keel_matmul_args {
    KEEL_ARGS_HEAD;
    /* Input: type A [m, k]. */
    const keel_tensor *x;
    /* The matrix W in the backend's layout, [n, k]; or NULL. */
    keel_weight *weight;
    /* The matrix W as a tensor, [n, k]. Used if `weight` is NULL. */
    const keel_tensor *w;
    /* Bias: f32 [n]. With KEEL_MATMUL_BIAS, else NULL. */
    const keel_tensor *bias;
    /* Result: type A [m, n]. With KEEL_MATMUL_ACCUMULATE: f32 [m, n]. `out` must not share memory
     * with x, so the op cannot run in place. */
    const keel_tensor *out;
} keel_matmul_args;

/* embed: out[t, :] = float(W[ids[t], :]) * scale.
 *
 * An id that is not a row of W gives a row of NaN. A weight that was prepared for KEEL_USE_EMBED
 * gives exactly the values of its source. Bound: 1e-6. */
typedef struct keel_embed_args {
    KEEL_ARGS_HEAD;
    /* Token ids: i32 [m]. */
    const keel_tensor *ids;
    /* W in the backend's layout, [vocab, dim]; or NULL. */
    keel_weight *weight;
    /* W as a tensor, [vocab, dim]. Used if `weight` is NULL. */
    const keel_tensor *w;
    /* Result: type A [m, dim]. */
    const keel_tensor *out;
    /* Factor of the embeddings. 1 for Llama. */
    float scale;
    uint32_t reserved;
} keel_embed_args;

/* ---- norms ----------------------------------------------------------------------------------- */

/* The args of rms_norm, add_rms_norm and layer_norm, which all work along the innermost dimension.
 *
 * rms_norm:     out = x / sqrt(mean(x^2) + eps) * weight.
 * add_rms_norm: first residual += x, then out = rms_norm(residual).
 * layer_norm:   out = (x - mean) / sqrt(var + eps) * weight + bias. var is the variance of the
 *               population: the sum of squares is divided by dim.
 * Bound: 4e-6. */
typedef struct keel_norm_args {
    KEEL_ARGS_HEAD;
    /* Input: type A [m, dim] or [m, heads, dim]. */
    const keel_tensor *x;
    /* Residual stream of add_rms_norm: f32, with the shape of x. It is read and written. Other ops:
     * NULL. */
    const keel_tensor *residual;
    /* Weight of the norm: f32 [dim]. */
    const keel_tensor *weight;
    /* Bias of layer_norm: f32 [dim], or NULL for no bias. Other ops: NULL. */
    const keel_tensor *bias;
    /* Result: type A, the shape of x. */
    const keel_tensor *out;
    /* A small number that is added under the square root. */
    float eps;
    uint32_t reserved;
} keel_norm_args;

/* ---- activation ------------------------------------------------------------------------------ */

/* `gate` holds pairs (gate, up): [m, 2n], and `up` is NULL. A weight that was joined with
 * KEEL_JOIN_INTERLEAVE gives this layout. */
#define KEEL_GATE_INTERLEAVED 1u
/* Only gelu_mul: gelu is computed with the tanh approximation. Without this bit, it is computed
 * with erf. */
#define KEEL_GELU_TANH 2u
/* silu_mul: out = gate / (1 + exp(-gate)) * up.
 * gelu_mul: out = gelu(gate) * up. If `up` is NULL and KEEL_GATE_INTERLEAVED is not set:
 *           out = gelu(gate).
 *
 * If gate and up are the two halves of one tensor's rows, they are passed as two strided views.
 * Bound: 4e-6. */
typedef struct keel_gate_args {
    KEEL_ARGS_HEAD;
    /* Gate: type A [m, n]; with KEEL_GATE_INTERLEAVED [m, 2n]. */
    const keel_tensor *gate;
    /* Up: type A [m, n], or NULL as described above. */
    const keel_tensor *up;
    /* Result: type A [m, n]. */
    const keel_tensor *out;
} keel_gate_args;

/* ---- elementwise ----------------------------------------------------------------------------- */

/* add:        out = a + b.
 * add_bias:   out[m, n] = a[m, n] + b[n].
 * scale:      out = a * factor.
 * scaled_add: out = out + factor * a.
 * Ranks 1 to 4. Bound: 1e-6. */
typedef struct keel_elementwise_args {
    KEEL_ARGS_HEAD;
    /* First operand: type A. */
    const keel_tensor *a;
    /* Second operand: type A. add: the shape of a. add_bias: [n]. Other ops: NULL. */
    const keel_tensor *b;
    /* Result: type A, the shape of a. */
    const keel_tensor *out;
    /* The factor of scale and scaled_add. Other ops do not read it. */
    float factor;
    uint32_t reserved;
} keel_elementwise_args;

/* softmax:   out[r, :] = exp(x - max) / sum. x and out have type A, [rows, n]. A row with only
 *            -inf gives zeros. Bound: 2e-6.
 * cast:      out = x in another dtype, rounded to nearest even. Between f32, f16 and bf16; from f32
 *            to q8_0 or q4_0, and back. Same shape, ranks 1 to 4. Bound: exact.
 *            Blocks are those of GGML's reference quantizer, computed in f32. d is then stored as
 *            f16:
 *              q8_0: d = amax / 127, q = roundf(x * (1 / d)); amax is the largest |x| of the block
 *              q4_0: d = max / -8, q = min(15, (int)(x * (1 / d) + 8.5f)); max is the first value
 *                    of the largest magnitude
 *            A block that has a NaN, an infinity or |d| above 65504 reads back as NaN. If 1 / d is
 *            not finite, d is 0 and all q are the code of 0.
 * copy:      out = x. Same dtype and shape, any outer strides. Any dtype but the K types. Bound:
 *            exact.
 * transpose: out[b, a, d] = x[a, b, d]. It turns token-major into head-major and back. Same dtype.
 *            Not in place. Bound: exact.
 * zero:      all bytes of the elements of out = 0. Bound: exact. */
typedef struct keel_move_args {
    KEEL_ARGS_HEAD;
    /* The input. zero: NULL. */
    const keel_tensor *x;
    /* The output. */
    const keel_tensor *out;
} keel_move_args;

/* ---- rows ------------------------------------------------------------------------------------ */

/* argmax_rows: index[r] = index of the largest x[r, :]. If values are equal, it is the lowest of
 *              their indices. It is -1 if the row has a NaN or an infinity, or if n is 0.
 * top_k_rows: the k largest values of a row and their indices, the largest first. If two values are
 *              equal, the lower index comes first. A row with a NaN gives indices -1 and values
 *              NaN. k is at most n.
 * Bound: exact. */
typedef struct keel_rows_args {
    KEEL_ARGS_HEAD;
    /* Input: type A [rows, n]. */
    const keel_tensor *x;
    /* The values found. top_k_rows: f32 [rows, k]. argmax_rows: NULL. */
    const keel_tensor *values;
    /* The indices found. argmax_rows: i32 [rows]. top_k_rows: i32 [rows, k]. */
    const keel_tensor *index;
} keel_rows_args;

#ifdef __cplusplus
}
#endif
#endif

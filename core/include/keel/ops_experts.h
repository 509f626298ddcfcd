/* The op table, part 4: mixture of experts.
 *
 * The feed-forward of a mixture of experts (MoE) has several small feed-forwards, the EXPERTS. For
 * each token, a ROUTER chooses a few experts, and the results of these experts are added with
 * weights. So a decode step reads only the weights of the chosen experts.
 *
 * EXAMPLE. A layer has 128 experts of size f, and each token uses 8 of them. The core runs these
 * ops:
 *
 *     matmul          logits[m, 128] = x[m, hidden] * router
 *     choose_experts  index[m, 8], weights[m, 8] from logits
 *     expert_matmul   gu[m, 8, 2f] = gate and up of the chosen experts, x has the shape [m, 1, ...]
 *     silu_mul        h[8 m, f] from the two halves of gu
 *     expert_matmul   residual[m, hidden] += weighted sum over the chosen experts of h * down,
 *                     with KEEL_EXPERTS_SUM and KEEL_EXPERTS_ACCUMULATE
 *
 * A SHARED EXPERT, which all tokens use, is an ordinary feed-forward. If a sigmoid scales its
 * result, the core calls the two ops below with one expert, which is always chosen.
 *
 * The rules of all ops are in ops.h. Everything here exists since 0.1. */
#ifndef KEEL_OPS_EXPERTS_H
#define KEEL_OPS_EXPERTS_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The score of an expert is the sigmoid of its logit. Without this bit, the scores of a row are the
 * softmax over all logits of the row. */
#define KEEL_CHOOSE_SIGMOID 1u
/* The weights of a row are divided by their sum. A sum of 0 counts as 1. With softmax, this is the
 * same as a softmax over the logits of the chosen experts. */
#define KEEL_CHOOSE_NORMALIZE 2u
/* `bias` is added to the scores for the choice. The weights are made from the scores without it. */
#define KEEL_CHOOSE_BIAS 4u
/* Only experts of the best groups are chosen, see `groups`. */
#define KEEL_CHOOSE_GROUPS 8u
/* choose_experts: for each row of logits, the k experts with the largest rank, and their weights.
 *
 * The rank of an expert is its logit. With KEEL_CHOOSE_BIAS or KEEL_CHOOSE_GROUPS the rank is its
 * score, plus its bias with KEEL_CHOOSE_BIAS. The largest rank comes first. If two ranks are equal,
 * the lower index comes first. weights[r, j] is the score of expert index[r, j], normalized with
 * KEEL_CHOOSE_NORMALIZE, then multiplied by `scale`.
 * A row with a logit or rank that is NaN or infinite gives indices -1 and weights NaN.
 * Bound of the weights: 4e-6. The indices are exact, unless ranks differ by less than the rounding
 * of a score. */
typedef struct keel_choose_experts_args {
    KEEL_ARGS_HEAD;
    /* Output of the router: A [m, experts]. */
    const keel_tensor *logits;
    /* f32 [experts]. With KEEL_CHOOSE_BIAS, else NULL. */
    const keel_tensor *bias;
    /* The chosen experts: i32 [m, k]. k is at most `experts`. */
    const keel_tensor *index;
    /* Their weights: f32 [m, k]. */
    const keel_tensor *weights;
    /* Factor of the weights. */
    float scale;
    /* With KEEL_CHOOSE_GROUPS, else 0. `groups` divides the number of experts. Neighbouring experts
     * form a group. The score of a group is the sum of its group_top largest ranks. The
     * groups_kept groups with the largest scores are kept; if two scores are equal, the group with
     * the lower index. The kept groups have at least k experts. */
    uint32_t groups;
    uint32_t groups_kept;
    uint32_t group_top;
} keel_choose_experts_args;

/* The products of the chosen experts are added with `weights`. Then `out` has rank 2. */
#define KEEL_EXPERTS_SUM 1u
/* With KEEL_EXPERTS_SUM: the sum is added to the previous contents of `out`, which is f32. */
#define KEEL_EXPERTS_ACCUMULATE 2u
/* expert_matmul: multiplies each row with the matrices of its chosen experts.
 *
 *   y[r, j, :] = x[r, j, :] * W(index[r, j])^T. If x has the shape [m, 1, k], all experts of a row
 *                read the same x[r, 0, :].
 *   out = y.                                     With KEEL_EXPERTS_SUM:
 *   out[r, :] = sum over j of weights[r, j] * y[r, j, :] (+ out[r, :]).
 *
 * W has the rows of all experts: rows e * n to e * n + n - 1 are the matrix of expert e. The types
 * of W and the bounds are those of matmul. A row's index may name an expert more than once. If an
 * index is not the number of an expert, y[r, j, :] is NaN.
 * An implementation reads only the experts that `index` names, and reads each of them once. */
typedef struct keel_expert_matmul_args {
    KEEL_ARGS_HEAD;
    /* Input: A [m, top_k, k] or A [m, 1, k]. */
    const keel_tensor *x;
    /* W in the backend's layout, [experts * n, k], prepared with keel_weight_desc.experts; or
     * NULL. */
    keel_weight *weight;
    /* W as a tensor, [experts * n, k]. Used if `weight` is NULL. */
    const keel_tensor *w;
    /* The chosen experts: i32 [m, top_k]. */
    const keel_tensor *index;
    /* f32 [m, top_k]. With KEEL_EXPERTS_SUM, else NULL. */
    const keel_tensor *weights;
    /* Result: A [m, top_k, n]. With KEEL_EXPERTS_SUM: A [m, n], f32 with KEEL_EXPERTS_ACCUMULATE.
     * Must not overlap x, not even in place. */
    const keel_tensor *out;
    /* Number of experts in W, at least 1. It divides the number of rows of W. */
    int64_t experts;
} keel_expert_matmul_args;

#ifdef __cplusplus
}
#endif
#endif

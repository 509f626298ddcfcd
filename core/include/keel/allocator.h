/* A budget allocator: shares the cache's budget out over layers and heads. Decides nothing about
 * single slots. */
#ifndef KEEL_ALLOCATOR_H
#define KEEL_ALLOCATOR_H

#include "policy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct keel_allocator_state keel_allocator_state;

#define KEEL_ALLOCATOR_NEED_SCORES (1ull << 0) /* input.scores */

enum keel_allocator_flags_e {
    /* heads of a layer may get different budgets: the policy's granularity must be
     * HEAD_RAGGED-capable (HEAD_EQUAL and HEAD_RAGGED are) */
    KEEL_ALLOCATOR_RAGGED = 1,
    /* weighs the scores of one head against another's as they are: refused for a policy without
     * KEEL_POLICY_COMPARABLE */
    KEEL_ALLOCATOR_COMPARES = 2,
    /* layers may get different budgets: the policy's granularity must not be TOKEN */
    KEEL_ALLOCATOR_BY_LAYER = 4
};

/* Out-struct of create. An unknown bit in needs makes the core refuse the allocator. */
typedef struct keel_allocator_needs {
    keel_header h;
    uint64_t needs;
    uint32_t flags;
    uint32_t reserved;
} keel_allocator_needs;

/* The core's, valid during the call. */
typedef struct keel_allocator_input {
    keel_header h;
    uint32_t layers, kv_heads;
    /* slots per head on average, protected ones included: the sum to share out is budget *
     * layers * kv_heads */
    int64_t budget;
    /* slots of each head that stay in any case: no budget may be below */
    int64_t protected_slots;
    /* elements from one head's scores to the next */
    int64_t stride;
    /* [layers, kv_heads] slots in use */
    const int32_t *lengths;
    /* per layer f32 [kv_heads, stride] from the policy, or NULL */
    const float *const *scores;
    /* per layer u8 [kv_heads, stride], with scores: what is protected and what the policy lets
     * stay, which also counts in protected_slots */
    const uint8_t *const *protected_masks;
    /* of each head those that nobody chooses among: what is protected, and what the policy keeps
     * of itself (an observation window, sinks: its least_budget but for one), what is both
     * counted once. PyramidKV's pyramid stands on these. At most the budget. since 0.1 */
    int64_t fixed_slots;
} keel_allocator_input;

/* The table. Required up to `allocate`. */
typedef struct keel_allocator {
    keel_header h;
    /* since 0.1. [init] */
    keel_status(KEEL_CALL *create)(const keel_host *, const keel_geometry *,
                                   const keel_param *const *params, uint32_t n_params,
                                   keel_allocator_needs *needs, keel_allocator_state **out);
    /* NULL is fine. since 0.1. [ctx] */
    void(KEEL_CALL *destroy)(keel_allocator_state *);
    /* Writes budgets[layers, kv_heads], each at least protected_slots; the core checks that the
     * sum is not above the budget's. Called each time before a trigger's decisions. since 0.1.
     * [ctx] */
    keel_status(KEEL_CALL *allocate)(keel_allocator_state *, const keel_allocator_input *,
                                     int32_t *budgets);
} keel_allocator;

#ifdef __cplusplus
}
#endif
#endif

/* A budget allocator: it divides the cache's budget over layers and KV heads.
 *
 * Without an allocator all KV heads have the same budget. An allocator gives a larger budget to
 * some heads and a smaller budget to other heads. The sum over all heads does not change. An
 * allocator does not choose slots: the policy (policy.h) does that later, within each head's
 * budget.
 *
 * LIFE CYCLE. create() makes a state for one sequence. Whenever a trigger fires, the core calls
 * allocate() once for all layers. With KEEL_ALLOCATOR_NEED_SCORES the policy scores all layers
 * before this call, so allocate() can read the scores. destroy() frees the state.
 *
 * EXAMPLE. An allocate() function that gives all heads the same budget:
 *
 *     keel_status allocate(keel_allocator_state *state, const keel_allocator_input *in,
 *                          int32_t *budgets) {
 *         for (uint32_t i = 0; i < in->layers * in->kv_heads; ++i)
 *             budgets[i] = (int32_t)in->budget;
 *         return KEEL_OK;
 *     }
 *
 * In C++, sdk_policy.hpp turns a class into an allocator plugin, and its share_out() divides a sum
 * with bounds. Everything here exists since 0.1. */
#ifndef KEEL_ALLOCATOR_H
#define KEEL_ALLOCATOR_H

#include "policy.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An allocator's state for one sequence. create makes it, destroy frees it. */
typedef struct keel_allocator_state keel_allocator_state;

/* Bit of keel_allocator_needs.needs: allocate() reads input.scores. Refused for a policy that
 * answers with keep-lists or has granularity TOKEN. */
#define KEEL_ALLOCATOR_NEED_SCORES (1ull << 0)

/* Bits of keel_allocator_needs.flags. The core refuses an allocator with a bit that it does not
 * know. */
enum keel_allocator_flags_e {
    /* Heads of a layer may get different budgets. Refused for a policy whose granularity is TOKEN
     * or LAYER. */
    KEEL_ALLOCATOR_RAGGED = 1,
    /* The allocator compares the scores of one head with those of another. Refused for a policy
     * without KEEL_POLICY_COMPARABLE. */
    KEEL_ALLOCATOR_COMPARES = 2,
    /* Layers may get different budgets. Refused for a policy whose granularity is TOKEN. */
    KEEL_ALLOCATOR_BY_LAYER = 4
};

/* Out-struct of create: what the allocator needs with these parameters. The core zeroes it before
 * the call. */
typedef struct keel_allocator_needs {
    keel_header h;
    /* Bits KEEL_ALLOCATOR_NEED_*. The core refuses an allocator with a bit that it does not
     * know. */
    uint64_t needs;
    /* Bits of keel_allocator_flags_e. */
    uint32_t flags;
    uint32_t reserved;
} keel_allocator_needs;

/* The input of allocate(): the budget to divide, and properties of the cache. The core owns the
 * struct and the arrays; they are valid during the call. All arrays are in host memory. */
typedef struct keel_allocator_input {
    keel_header h;
    /* Number of layers and of KV heads of a layer. */
    uint32_t layers, kv_heads;
    /* Average number of slots of a head that may stay, including protected slots. The sum to divide
     * is budget * layers * kv_heads. */
    int64_t budget;
    /* Smallest budget that allocate() should give to a head. It is at most `budget`.
     * Without scores, it is the larger of two numbers: the protected slots of a head, and the
     * policy's least_budget. If `fixed_slots` is smaller, allocate() may also give a head
     * `fixed_slots`.
     * With scores, it is the number of slots of a head that always stay, at least 1. These are the
     * protected slots and the slots that the policy marks in keel_policy_decision.stay. */
    int64_t protected_slots;
    /* Elements from the row of one head to the row of the next head in `scores` and
     * `protected_masks`. */
    int64_t stride;
    /* Slots in use: [layers, kv_heads]. */
    const int32_t *lengths;
    /* The policy's scores: for each layer a pointer to f32 [kv_heads, stride]. NULL without
     * KEEL_ALLOCATOR_NEED_SCORES. */
    const float *const *scores;
    /* For each layer a pointer to u8 [kv_heads, stride]. 1: the slot is protected, or the policy
     * always keeps it (keel_policy_decision.stay). NULL if `scores` is NULL. */
    const uint8_t *const *protected_masks;
    /* Number of slots of each head that are not chosen by scores: the protected slots, and the
     * slots that the policy always keeps. The policy always keeps least_budget - 1 slots: first the
     * newest needs.window slots, then slots at the front. A slot of both kinds counts once.
     * `fixed_slots` is at most `budget`. The allocator `pyramid` divides only the part of the
     * budget above this number. */
    int64_t fixed_slots;
} keel_allocator_input;

/* The table of functions. All members are required and must not be NULL. */
typedef struct keel_allocator {
    keel_header h;
    /* Makes the state of a new sequence in *out, and fills *needs (keel_emit in abi.h). `params`
     * are n_params values, one for each row of the plugin's table. `host` is valid until destroy.
     * On an error, *out is not used. Thread: no other create call of the plugin at the same
     * time. */
    keel_status(KEEL_CALL *create)(const keel_host *, const keel_geometry *,
                                   const keel_param *const *params, uint32_t n_params,
                                   keel_allocator_needs *needs, keel_allocator_state **out);
    /* Frees the state. NULL is allowed. Thread: one call at a time on a state. */
    void(KEEL_CALL *destroy)(keel_allocator_state *);
    /* Writes the budget of each head, in slots: `budgets` is [layers, kv_heads]. The core checks
     * the answer. The run fails in three cases:
     * - A budget is below protected_slots. (Without scores, it may be as low as fixed_slots.)
     * - The sum is above budget * layers * kv_heads.
     * - The budgets of two heads differ, although the flags do not allow this.
     * Thread: one call at a time on a state. */
    keel_status(KEEL_CALL *allocate)(keel_allocator_state *, const keel_allocator_input *,
                                     int32_t *budgets);
} keel_allocator;

#ifdef __cplusplus
}
#endif
#endif

/* A KV-cache eviction policy: it decides which slots stay. The core reduces what the policy
 * needs on the backend, enforces budget and protection, moves the cache, re-rotates keys and
 * keeps the books.
 *
 * Four things are separate and combine: the scorer (this), the budget allocator (allocator.h),
 * the trigger and the position mode (both the core's, from the config). Same inputs and seed,
 * same answer: a policy reads no clock, no file after create, no randomness but its seed. It
 * never sees a device pointer. */
#ifndef KEEL_POLICY_H
#define KEEL_POLICY_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A policy's state for one sequence; made by create. */
typedef struct keel_policy_state keel_policy_state;

/* What the model looks like. */
typedef struct keel_geometry {
    keel_header h;
    uint32_t layers, heads, kv_heads, head_dim;
    /* positions the model was trained for */
    uint32_t context;
    /* elements of a head that RoPE rotates; 0: the layers differ */
    uint32_t rot;
    /* [rot / 2] radians per position, the model's scaling included; the core's, valid during
     * create. NULL: the layers differ */
    const double *rope_frequencies;
    /* keel_rope_mode (kv.h) */
    uint32_t rope_mode;
    /* 1 / sqrt(head_dim) for Llama */
    float attention_scale;
} keel_geometry;

/* What a policy needs to decide; the core computes these and nothing else. A bit that the core
 * does not know (or cannot serve in this pipeline) makes it refuse the policy, naming the bit. */
/* input.positions */
#define KEEL_NEED_POSITIONS (1ull << 0)
/* input.key_norms */
#define KEEL_NEED_KEY_NORMS (1ull << 1)
/* input.value_norms */
#define KEEL_NEED_VALUE_NORMS (1ull << 2)
/* input.scores: attention of the last needs.window queries */
#define KEEL_NEED_WINDOW_SCORES (1ull << 3)
/* input.scores: attention of all queries since the start, kept with the slots */
#define KEEL_NEED_RUNNING_SCORES (1ull << 4)
/* input.key_sum: of normalized keys */
#define KEEL_NEED_KEY_SUM (1ull << 5)
/* input.key_project: keys times needs.projection */
#define KEEL_NEED_KEY_PROJECT (1ull << 6)
/* input.query_sum, query_second */
#define KEEL_NEED_QUERY_STATS (1ull << 7)
/* input.scores from a replay of the context (KVzip) */
#define KEEL_NEED_REPLAY (1ull << 8)
/* input.keys: all keys as f32 */
#define KEEL_NEED_KEYS (1ull << 9)
/* input.key_anchor: of each key with its head's key_sum */
#define KEEL_NEED_KEY_ANCHOR (1ull << 10)
/* input.chunk_scores: attention within pieces of the prompt, not causal */
#define KEEL_NEED_CHUNK_SCORES (1ull << 11)
/* key_project and keys are of keys before RoPE */
#define KEEL_NEED_UNROTATED (1ull << 12)

typedef uint32_t keel_granularity;
enum keel_granularity_e {
    KEEL_KEEP_TOKEN = 1,      /* one keep-set for all layers and heads */
    KEEL_KEEP_LAYER = 2,      /* one per layer, the same for its heads */
    KEEL_KEEP_HEAD_EQUAL = 3, /* one per KV head, equal counts in a layer */
    KEEL_KEEP_HEAD_RAGGED = 4 /* one per KV head, any counts */
};

typedef uint32_t keel_policy_output;
enum keel_policy_output_e {
    /* decide() fills scores; the core keeps the best within the budget, newer slot first on ties */
    KEEL_OUTPUT_SCORES = 1,
    /* decide() fills keep-lists */
    KEEL_OUTPUT_KEEP = 2
};

enum keel_policy_flags_e {
    /* scores compare across the heads of a layer (probabilities do, cosines do not) */
    KEEL_POLICY_COMPARABLE = 1,
    /* acts once, at the end of the prompt */
    KEEL_POLICY_PREFILL_ONLY = 2,
    /* may also be asked between the chunks of a prefill: caps its memory */
    KEEL_POLICY_BLOCKWISE = 4,
    /* wants to be asked after each layer of a step rather than after the last */
    KEEL_POLICY_BETWEEN_LAYERS = 8,
    /* never evicts: budget and trigger do not apply (`none`) */
    KEEL_POLICY_KEEPS_ALL = 16,
    /* what it keeps depends on the seed: an experiment repeats it with several */
    KEEL_POLICY_SEEDED = 32
};

/* Out-struct of create: what the policy is like with these parameters. */
typedef struct keel_policy_needs {
    keel_header h;
    /* KEEL_NEED_* */
    uint64_t needs;
    keel_granularity granularity;
    keel_policy_output output;
    /* keel_policy_flags_e */
    uint32_t flags;
    /* queries that the scores need; the last chunk of a prefill holds as many. 0: none */
    uint32_t window;
    /* keel_reduce_e (ops_attention.h) for scores */
    uint32_t reduce_queries;
    /* keel_reduce_e; NONE hands over scores per query head */
    uint32_t reduce_group;
    /* slots per head, beyond the protected prefix, that the policy itself wants to keep; used
     * when the config names no budget. 0: none, the config has to */
    uint32_t own_budget;
    /* r of KEEL_NEED_KEY_PROJECT */
    uint32_t projection_cols;
    /* [head_dim, r]; the policy's, valid until destroy */
    const float *projection;
    /* slots per head below which it cannot work, what it lets stay itself included; a smaller
     * budget is refused with this number. 0: any */
    uint32_t least_budget;
    /* queries at the start of the sequence that stay out of KEEL_NEED_QUERY_STATS */
    uint32_t skip_queries;
    /* tokens of a piece of KEEL_NEED_CHUNK_SCORES */
    uint32_t chunk;
    /* KEEL_NEED_REPLAY: tokens of context that are repeated at a time */
    uint32_t replay_chunk;
    /* last tokens of the piece before that each but the first repetition begins with */
    uint32_t replay_lead;
    /* first slots that the repeated tokens see beside their own piece and themselves */
    uint32_t replay_sinks;
} keel_policy_needs;

typedef uint32_t keel_trigger;
enum keel_trigger_e {
    KEEL_TRIGGER_PREFILL_END = 1,
    KEEL_TRIGGER_BUDGET = 2, /* heads hold more than budget + slack on average */
    KEEL_TRIGGER_INSERT = 3, /* the tokens about to come would not fit */
    KEEL_TRIGGER_EVERY_N = 4,
    KEEL_TRIGGER_PRESSURE = 5, /* the system runs out of memory */
    KEEL_TRIGGER_CHUNK = 6     /* between two chunks of a prefill */
};

/* One layer, about to be decided on. Arrays are f32 or i32 or u8 in host memory, [heads, stride]
 * with slot as the inner index; the core's, valid during the call. What was not asked for is
 * NULL. */
typedef struct keel_policy_input {
    keel_header h;
    keel_trigger trigger;
    uint32_t layer;
    uint32_t kv_heads;
    /* query heads: rows of scores with reduce_group NONE */
    uint32_t heads;
    /* logical position of the token to come */
    int64_t next_position;
    /* elements from one head's row to the next; at least the largest length */
    int64_t stride;
    /* [kv_heads] slots in use */
    const int32_t *lengths;
    /* [kv_heads] slots that may stay, protected ones included. With an allocator that reads
     * scores it is not shared out yet: the average */
    const int32_t *budgets;
    /* [kv_heads, stride] 1: stays whatever the policy says */
    const uint8_t *protected_mask;
    /* [kv_heads, stride] logical position of the token in each slot, rising */
    const int32_t *positions;
    /* [kv_heads, stride] */
    const float *key_norms;
    /* [kv_heads, stride] */
    const float *value_norms;
    /* [kv_heads or heads, stride]: of WINDOW_SCORES, RUNNING_SCORES or REPLAY, whichever it is */
    const float *scores;
    /* [kv_heads, head_dim] */
    const float *key_sum;
    /* [kv_heads, stride, r] */
    const float *key_project;
    /* [heads, head_dim] */
    const float *query_sum;
    /* [heads, head_dim, head_dim] */
    const float *query_second;
    /* [kv_heads, stride, head_dim] */
    const float *keys;
    /* queries in query_sum and query_second, or else in scores */
    int64_t query_count;
    /* [kv_heads, stride]: K_j . key_sum of its head */
    const float *key_anchor;
    /* [kv_heads, stride]: sum over the queries of a slot's own piece of the prompt, reduced over
     * the group as needs.reduce_group says; 0 for tokens that were decoded */
    const float *chunk_scores;
} keel_policy_input;

/* Where decide() answers. The core's arrays; which one is used follows from needs.output. */
typedef struct keel_policy_decision {
    keel_header h;
    /* SCORES: [kv_heads, stride], higher stays; one row [stride] with granularity TOKEN or
     * LAYER. NaN is an error */
    float *scores;
    /* KEEP: [kv_heads, stride] slot numbers, strictly rising */
    int32_t *keep;
    /* KEEP: [kv_heads] */
    int32_t *keep_count;
    /* SCORES: [kv_heads, stride], zeros; set to 1 what stays whatever its score, as if it were
     * protected (an observation window, sinks). Row 0 with granularity TOKEN or LAYER. Where
     * these and the protected slots do not fit into the budget, the newest of these stay */
    uint8_t *stay;
} keel_policy_decision;

/* The table. Required up to `decide`. */
typedef struct keel_policy {
    keel_header h;

    /* State for a new sequence. `params` is the plugin's table, checked and complete; `seed` the
     * config's. *needs is filled. Reads files here or never. since 0.1. [init] */
    keel_status(KEEL_CALL *create)(const keel_host *, const keel_geometry *,
                                   const keel_param *const *params, uint32_t n_params,
                                   uint64_t seed, keel_policy_needs *needs,
                                   keel_policy_state **out);
    /* NULL is fine. since 0.1. [ctx] */
    void(KEEL_CALL *destroy)(keel_policy_state *);
    /* Decides on one layer; called for layers 0.. in order (once, with layer 0, for granularity
     * TOKEN). Keeping more than the budget is cut by the core, oldest unprotected first; keeping
     * less is fine. since 0.1. [ctx] */
    keel_status(KEEL_CALL *decide)(keel_policy_state *, const keel_policy_input *,
                                   keel_policy_decision *);

    /* ---- optional ---- */

    /* The sequence begins anew. NULL: the core destroys and creates. since 0.1. [ctx] */
    keel_status(KEEL_CALL *reset)(keel_policy_state *);
    /* An independent copy (an experiment's arms share one prefill). NULL: no state of
     * its own; the core creates a fresh one. A table with fork has state: without save its
     * sessions are refused where one is to be saved. since 0.1. [ctx] */
    keel_status(KEEL_CALL *fork)(const keel_policy_state *, keel_policy_state **out);
    /* Tokens from logical position `position` on were taken back. NULL: nothing to do. since
     * 0.1. [ctx] */
    keel_status(KEEL_CALL *truncate)(keel_policy_state *, int64_t position);
    /* State as bytes; data NULL: only *size is written. Both NULL: no state, or none that is
     * saved (see fork). since 0.1. [ctx] */
    keel_status(KEEL_CALL *save)(const keel_policy_state *, void *data, uint64_t *size);
    keel_status(KEEL_CALL *load)(keel_policy_state *, const void *data, uint64_t size);
} keel_policy;

#ifdef __cplusplus
}
#endif
#endif

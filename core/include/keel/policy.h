/* A KV-cache eviction policy: it decides which slots of the cache stay.
 *
 * The KV cache grows with every token. When it holds more than its budget, slots are EVICTED: their
 * keys and values are dropped. The policy only decides which slots are evicted. The core does
 * everything else. It decides when to evict (the TRIGGER) and how many slots can stay (the BUDGET).
 * It computes the numbers that the policy needs, moves the slots that stay, and rotates keys to new
 * positions. kv.h explains slots and positions. A policy never sees device memory.
 *
 * LIFE CYCLE
 * 1. create() makes the policy's state for one sequence. It fills in keel_policy_needs: which
 *    inputs the core must compute, whether the policy decides per head, per layer or for all
 *    layers, and the form of its answers.
 * 2. A trigger fires and the cache holds more than the budget. The core computes what the policy
 *    needs and calls decide() for layer 0, 1, and so on. The core moves slots only after all layers
 *    are decided. So if decide() fails, the cache does not change.
 * 3. Between evictions the core may call reset(), truncate(), fork(), save() and load(), all
 *   optional.
 * 4. destroy() frees the state.
 *
 * RULES
 * - The same inputs and the same seed give the same answer. A policy reads no clock, no file after
 *   create(), and no randomness except its seed. It has no mutable global variables.
 * - The core enforces budget and protection. PROTECTED slots always stay: the first and the newest
 *   tokens, whose numbers are in the pipeline file, and pinned tokens. If the answer keeps too many
 *   slots, the core also evicts the oldest unprotected slots of the answer.
 * - A budget allocator (allocator.h) can give each head its own budget. The policy does not choose
 *   the budget.
 *
 * EXAMPLE. decide() of a policy that keeps the keys with the smallest norm. In create() it has set
 * needs->needs = KEEL_NEED_KEY_NORMS, granularity = KEEL_KEEP_HEAD_EQUAL, output =
 * KEEL_OUTPUT_SCORES:
 *
 *     keel_status decide(keel_policy_state *state, const keel_policy_input *in,
 *                        keel_policy_decision *out) {
 *         for (uint32_t h = 0; h < in->kv_heads; ++h)
 *             for (int32_t j = 0; j < in->lengths[h]; ++j)
 *                 out->scores[h * in->stride + j] = -in->key_norms[h * in->stride + j];
 *         return KEEL_OK;
 *     }
 *
 * In C++, sdk_policy.hpp turns a class into such a plugin. Everything here exists since 0.1. */
#ifndef KEEL_POLICY_H
#define KEEL_POLICY_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A policy's state for one sequence. create and fork make it, destroy frees it. Only the policy
 * knows its contents. */
typedef struct keel_policy_state keel_policy_state;

/* The sizes of the model. The core owns the struct. It is valid during create. */
typedef struct keel_geometry {
    keel_header h;
    /* Number of layers on which the policy decides, query heads of a layer, KV heads of a layer,
     * and elements of a head. In a model where only some layers have an attention window, `layers`
     * counts only the layers without a window. */
    uint32_t layers, heads, kv_heads, head_dim;
    /* Number of positions that the model was trained for. */
    uint32_t context;
    /* Number of elements of a head that RoPE rotates. 0: the layers have different numbers. */
    uint32_t rot;
    /* Frequencies of RoPE: rot / 2 numbers, in radians per position, with the model's scaling.
     * NULL: the layers have different frequencies. */
    const double *rope_frequencies;
    /* Which elements are rotated together: keel_rope_mode (kv.h). */
    uint32_t rope_mode;
    /* Factor of the dot products of attention. 1 / sqrt(head_dim) for Llama. */
    float attention_scale;
    /* RoPE multiplies the rotated elements of queries and keys by this number (YaRN, LongRoPE). It
     * is 1 in most models. 0: the host is older than this member, and the number is 1. Keys in the
     * cache include the factor. Keys as they were before RoPE do not. */
    double rope_factor;
} keel_geometry;

/* ---- what a policy needs --------------------------------------------------------------------- */

/* Bits of keel_policy_needs.needs. Each bit fills a member of keel_policy_input. The core computes
 * only what the policy needs. If the core does not know a bit, or cannot compute it in this
 * pipeline, it refuses the policy and names the bit. Only one of WINDOW_SCORES, RUNNING_SCORES and
 * REPLAY can be set, because all three fill input.scores. REPLAY and CHUNK_SCORES cannot be set
 * together. */

/* Requests `positions`. */
#define KEEL_NEED_POSITIONS (1ull << 0)
/* Requests `key_norms`. */
#define KEEL_NEED_KEY_NORMS (1ull << 1)
/* Requests `value_norms`. */
#define KEEL_NEED_VALUE_NORMS (1ull << 2)
/* Requests `scores`: attention probabilities of the last needs.window queries. */
#define KEEL_NEED_WINDOW_SCORES (1ull << 3)
/* Requests `scores`: attention probabilities of all queries since the start. The core keeps a sum
 * (or maximum) for each slot and moves it with the slot. needs.reduce_queries must be SUM or MAX,
 * and needs.reduce_group must not be NONE. */
#define KEEL_NEED_RUNNING_SCORES (1ull << 4)
/* Requests `key_sum`. */
#define KEEL_NEED_KEY_SUM (1ull << 5)
/* Requests `key_project`. needs.projection must be set. */
#define KEEL_NEED_KEY_PROJECT (1ull << 6)
/* Requests `query_sum` and `query_second`. */
#define KEEL_NEED_QUERY_STATS (1ull << 7)
/* Requests `scores`: the core makes the model repeat its context, and records the largest attention
 * probability that each slot gets (KVzip). The policy must set KEEL_POLICY_PREFILL_ONLY. */
#define KEEL_NEED_REPLAY (1ull << 8)
/* Requests `keys`. */
#define KEEL_NEED_KEYS (1ull << 9)
/* Requests `key_anchor`. */
#define KEEL_NEED_KEY_ANCHOR (1ull << 10)
/* Requests `chunk_scores`. needs.chunk must be set. */
#define KEEL_NEED_CHUNK_SCORES (1ull << 11)
/* `key_project` and `keys` are made from the keys as they were before RoPE. At least one of these
 * two must be requested. */
#define KEEL_NEED_UNROTATED (1ull << 12)

/* The number of keep-sets on which the policy decides. A keep-set is a set of slots that stay. */
typedef uint32_t keel_granularity;
enum keel_granularity_e {
    KEEL_KEEP_TOKEN = 1,      /* one keep-set for all layers and heads; decide is called only for
                               * one layer */
    KEEL_KEEP_LAYER = 2,      /* one keep-set for each layer, which all its heads share */
    KEEL_KEEP_HEAD_EQUAL = 3, /* one keep-set for each KV head; all heads of a layer keep equal
                               * numbers of slots */
    KEEL_KEEP_HEAD_RAGGED = 4 /* one keep-set for each KV head; heads may keep different numbers of
                               * slots */
};

/* How decide() answers. */
typedef uint32_t keel_policy_output;
enum keel_policy_output_e {
    /* decide() writes a score for each slot. The core keeps the slots with the highest scores
     * within the budget. If scores are equal, the newer slot stays. */
    KEEL_OUTPUT_SCORES = 1,
    /* decide() writes the lists of the slots that stay. */
    KEEL_OUTPUT_KEEP = 2
};

/* Bits of keel_policy_needs.flags. The core refuses a policy with a bit that it does not know. */
enum keel_policy_flags_e {
    /* Scores of different heads and layers have the same meaning, so they can be compared. This is
     * true for probabilities, but not for cosines. */
    KEEL_POLICY_COMPARABLE = 1,
    /* The policy acts once, at the end of the prompt. */
    KEEL_POLICY_PREFILL_ONLY = 2,
    /* The policy is allowed to act also between the chunks of a prompt. So a long prompt needs less
     * memory. */
    KEEL_POLICY_BLOCKWISE = 4,
    /* The policy requests to decide after each layer of a step instead of after the last layer.
     * This version of the core does not support this, and refuses the policy. */
    KEEL_POLICY_BETWEEN_LAYERS = 8,
    /* The policy never evicts, so it needs no budget and no trigger (policy `none`). */
    KEEL_POLICY_KEEPS_ALL = 16,
    /* The answer depends on the seed. An experiment repeats such a policy with several seeds. */
    KEEL_POLICY_SEEDED = 32,
    /* KEEL_NEED_REPLAY: the core asks the model to repeat its context, in the words of NVIDIA's
     * kvpress. The model repeats the context in pieces. Before each piece, the core inserts the end
     * of the question in the model's chat template. If there is no template, the core inserts a
     * line break. Tokens of the template before the first question are not repeated. */
    KEEL_POLICY_KVPRESS_WORDS = 64
};

/* Out-struct of create: what the policy needs with these parameters. The core zeroes it before the
 * call. */
typedef struct keel_policy_needs {
    keel_header h;
    /* KEEL_NEED_* bits. */
    uint64_t needs;
    /* How many keep-sets there are. */
    keel_granularity granularity;
    /* Scores or keep-lists. */
    keel_policy_output output;
    /* Bits of keel_policy_flags_e. */
    uint32_t flags;
    /* Number of the newest queries that the scores use: 1 to 4096 with KEEL_NEED_WINDOW_SCORES,
     * else 0 to 4096. The core cuts a prompt into chunks so that the last chunk has this many
     * tokens, if the prompt is long enough. 0: the scores use no window. */
    uint32_t window;
    /* How the probabilities of several queries become one number: keel_reduce_e (ops_attention.h),
     * SUM, MEAN or MAX. Used for window and running scores. */
    uint32_t reduce_queries;
    /* How the probabilities of the query heads of a KV head become one number: NONE, SUM, MEAN or
     * MAX. Used for window, running and chunk scores. NONE is allowed only for window scores: then
     * `scores` has a row for each query head. */
    uint32_t reduce_group;
    /* The budget of the policy itself: the number of slots per head to keep in addition to the
     * protected prefix. The core uses this number if the pipeline file has no budget. 0: the
     * pipeline file must have a budget. */
    uint32_t own_budget;
    /* Number of columns of `projection`, called r. With KEEL_NEED_KEY_PROJECT. */
    uint32_t projection_cols;
    /* The matrix for KEEL_NEED_KEY_PROJECT: f32 [head_dim, r]. The policy owns it; it is valid
     * until destroy. */
    const float *projection;
    /* The smallest budget that the policy works with, in slots per head: the slots that the policy
     * always keeps, and one more. The core refuses a smaller budget and names this number. An
     * allocator may give a head one slot less, which leaves only the slots that always stay. 0: the
     * policy works with any budget. */
    uint32_t least_budget;
    /* KEEL_NEED_QUERY_STATS: number of queries at the start of the sequence that query_sum and
     * query_second leave out. */
    uint32_t skip_queries;
    /* KEEL_NEED_CHUNK_SCORES: number of tokens of a piece of the prompt, at least 1. */
    uint32_t chunk;
    /* KEEL_NEED_REPLAY: number of tokens that the model repeats at a time, at least 1. They are a
     * piece of the context. */
    uint32_t replay_chunk;
    /* KEEL_NEED_REPLAY: the lead, a number of tokens below replay_chunk. Each repetition except the
     * first begins with the lead: the last tokens of the previous piece. */
    uint32_t replay_lead;
    /* KEEL_NEED_REPLAY: number of slots at the front of the cache that the repeating tokens attend
     * to. They also attend to the piece that they repeat, and to each other. */
    uint32_t replay_sinks;
} keel_policy_needs;

/* ---- a decision ------------------------------------------------------------------------------ */

/* The reason why slots are evicted now. The pipeline file chooses the triggers (policy.trigger).
 * `slack` is policy.budget.slack: slots above the budget that are allowed until an eviction. */
typedef uint32_t keel_trigger;
enum keel_trigger_e {
    KEEL_TRIGGER_PREFILL_END = 1, /* the prompt was read */
    KEEL_TRIGGER_BUDGET = 2,      /* on average a head holds more than budget plus slack */
    KEEL_TRIGGER_INSERT = 3,      /* the tokens of the next step would not fit */
    KEEL_TRIGGER_EVERY_N = 4,     /* policy.trigger.every_n tokens have passed */
    KEEL_TRIGGER_PRESSURE = 5,    /* the system runs out of memory */
    KEEL_TRIGGER_CHUNK = 6        /* a chunk of a prompt was read, and more of the prompt follows */
};

/* The layer for which decide() is called, with its inputs. The core owns the struct and the arrays.
 * They are valid during the call. Arrays are in host memory. In the shapes below, `stride` is the
 * dimension of the slots: the entry for slot j of head h is array[h * stride + j]. Only the entries
 * of slots below lengths[h] have a meaning. An array that needs.needs does not request is NULL. */
typedef struct keel_policy_input {
    keel_header h;
    /* Why the core evicts. */
    keel_trigger trigger;
    /* Number of the layer, below geometry.layers. With KEEL_KEEP_TOKEN: the first layer. If two
     * backends hold the layers, each backend has its own state, and the layers of the second
     * backend do not begin at 0. */
    uint32_t layer;
    /* Number of KV heads. */
    uint32_t kv_heads;
    /* Number of query heads. */
    uint32_t heads;
    /* Position of the next token: the number of tokens so far. */
    int64_t next_position;
    /* Number of elements from the row of one head to the row of the next head. The stride is the
     * last dimension of the shapes [kv_heads, stride]. It is at least the largest of `lengths`. */
    int64_t stride;
    /* Slots in use. Shape [kv_heads]. */
    const int32_t *lengths;
    /* Number of slots of each head that may stay, including protected slots. Shape [kv_heads]. With
     * an allocator that reads scores, the budget is not divided yet, so each entry is the
     * average. */
    const int32_t *budgets;
    /* 1: the slot is protected, so it stays even if the policy's answer does not keep it. Shape
     * [kv_heads, stride]. */
    const uint8_t *protected_mask;
    /* Position that RoPE encoded in the key of each slot, rising. If the core has rotated a key to
     * a new position, this is the new position. Shape [kv_heads, stride]. */
    const int32_t *positions;
    /* L2 norm of each key. Shape [kv_heads, stride]. */
    const float *key_norms;
    /* L2 norm of each value. Shape [kv_heads, stride]. */
    const float *value_norms;
    /* A reduced attention probability for each slot, see KEEL_NEED_WINDOW_SCORES,
     * KEEL_NEED_RUNNING_SCORES and KEEL_NEED_REPLAY. Shape [kv_heads, stride]; for window scores
     * with reduce_group NONE [heads, stride]. All 0 if no query of the window is available. */
    const float *scores;
    /* Sum of the keys of a head, each divided by its L2 norm. Shape [kv_heads, head_dim]. */
    const float *key_sum;
    /* Each key times needs.projection. Shape [kv_heads, stride, r]. */
    const float *key_project;
    /* Sum of the queries before RoPE. Shape [heads, head_dim]. */
    const float *query_sum;
    /* Sum of q q^T over the queries of query_sum; the mean is not subtracted. Shape [heads,
     * head_dim, head_dim]. */
    const float *query_second;
    /* The keys. Shape [kv_heads, stride, head_dim]. */
    const float *keys;
    /* Number of queries in query_sum and query_second. Without KEEL_NEED_QUERY_STATS: number of
     * queries in `scores`. The number can be below needs.window, for example after a short prompt.
     * */
    int64_t query_count;
    /* Dot product of each key with the key_sum of its head. Shape [kv_heads, stride]. */
    const float *key_anchor;
    /* Attention within pieces. Shape [kv_heads, stride]. The prompt is cut into pieces of
     * needs.chunk tokens. The queries of a piece attend to all slots of their own piece, also to
     * later ones, and to no other slot. The probabilities are summed over the queries of the piece
     * and reduced over the group (needs.reduce_group). 0 for decoded tokens. */
    const float *chunk_scores;
} keel_policy_input;

/* The arrays to which decide() writes its answer. The core owns the arrays; they are valid during
 * the call. needs.output determines which arrays are used; the others are NULL. With granularity
 * TOKEN or LAYER, only row 0 is used. */
typedef struct keel_policy_decision {
    keel_header h;
    /* KEEL_OUTPUT_SCORES: the score of each slot below lengths[h]. Slots with higher scores stay.
     * Shape [kv_heads, stride]. A NaN or a slot without a score is an error. */
    float *scores;
    /* KEEL_OUTPUT_KEEP: numbers of the slots that stay, strictly rising. Shape [kv_heads,
     * stride]. */
    int32_t *keep;
    /* KEEL_OUTPUT_KEEP: length of each list. Shape [kv_heads]. */
    int32_t *keep_count;
    /* KEEL_OUTPUT_SCORES: the core sets all entries to 0 before the call. The policy sets 1 for
     * slots that stay at any score, such as sinks or an observation window. Shape [kv_heads,
     * stride]. If the slots marked 1 and the protected slots together do not fit into the budget,
     * the protected slots stay, and only the newest of the marked slots. */
    uint8_t *stay;
} keel_policy_decision;

/* The table of functions. Members up to `decide` are required and must not be NULL. */
typedef struct keel_policy {
    keel_header h;

    /* Makes the state of a new sequence in *out, and fills *needs (keel_emit in abi.h). `params`
     * are n_params values, one for each row of the plugin's table. `seed` is the seed of the run.
     * `host` is valid until destroy. Only create may read files. On an error, *out is not used.
     * Thread: no other create call of the plugin at the same time. */
    keel_status(KEEL_CALL *create)(const keel_host *, const keel_geometry *,
                                   const keel_param *const *params, uint32_t n_params,
                                   uint64_t seed, keel_policy_needs *needs,
                                   keel_policy_state **out);
    /* Frees the state. NULL is allowed. Thread: one call at a time on a state. */
    void(KEEL_CALL *destroy)(keel_policy_state *);
    /* Decides which slots of one layer stay. Called for the layers in rising order; with
     * KEEL_KEEP_TOKEN once, for the first layer. If an answer keeps more slots than the budget, the
     * core evicts the oldest unprotected slots. An answer with fewer slots than the budget is
     * allowed. Thread: one call at a time on a state. */
    keel_status(KEEL_CALL *decide)(keel_policy_state *, const keel_policy_input *,
                                   keel_policy_decision *);

    /* ---- optional ---- */

    /* Resets the state for an empty sequence. If reset is NULL, the core destroys the state and
     * creates a new one. Thread: one call at a time on a state. */
    keel_status(KEEL_CALL *reset)(keel_policy_state *);
    /* Makes an independent copy of the state in *out, for a second sequence that continues from the
     * same prompt. If fork is NULL, the state depends only on the parameters and the seed, so the
     * core creates a new state. A policy with fork but without save cannot be saved: the core
     * refuses to save its sessions. Thread: one call at a time on a state. */
    keel_status(KEEL_CALL *fork)(const keel_policy_state *, keel_policy_state **out);
    /* Called after the tokens from position `position` on were removed. If truncate is NULL, the
     * state does not depend on the tokens. Thread: one call at a time on a state. */
    keel_status(KEEL_CALL *truncate)(keel_policy_state *, int64_t position);
    /* Writes the state as bytes, at most 1 GiB. If `data` is NULL, save only writes the number of
     * bytes to *size. Otherwise, *size on entry is the size of `data`. On return it is the number
     * of written bytes, which is at most the size on entry. Thread: one call at a time on a
     * state. */
    keel_status(KEEL_CALL *save)(const keel_policy_state *, void *data, uint64_t *size);
    /* Replaces the state by a state that save() wrote. The bytes come from a file that can be
     * damaged or changed, so load must check them. Required if save is not NULL. If both functions
     * are NULL, no state is saved (see fork). Thread: one call at a time on a state. */
    keel_status(KEEL_CALL *load)(keel_policy_state *, const void *data, uint64_t size);
} keel_policy;

#ifdef __cplusplus
}
#endif
#endif

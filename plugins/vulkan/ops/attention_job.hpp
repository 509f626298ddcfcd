// Attention over the cache of one layer. The ops attention and attention_scores share this code.
// There are two passes:
// 1. Tiles of query rows loop over the slots with an online softmax. If the cache is long and the
//    rows are few, the slots are split into parts, and a second dispatch combines the results of
//    the parts.
// 2. Only if the op requests scores: for each slot, the probabilities of the contributing queries
//    are computed again with the known max and sum, and reduced to one number.
#pragma once

#include "vulkan/ops/kv_access.hpp"

namespace keel_vulkan {

struct AttentionJob {
    const keel_kv_view *kv = nullptr;
    int64_t m = 0, group = 1;
    bool output = true; // false: only max and sum of each row are computed
    const keel_scores *scores = nullptr;
    bool logits = false; // true: logits are reduced, and the first pass is skipped
    // Only for a batch of sequences, in which m is 1. The heads are numbered one sequence after the
    // other.
    const Seats *seats = nullptr;
    bool k_by_fours = false;
    AttentionParams params = {};

    // The following members are sizes of areas in scratch memory.
    uint32_t parts = 1;
    uint64_t parts_bytes = 0, stats_bytes = 0, saved_bytes = 0;

    uint32_t heads() const { return kv->kv_heads * (seats != nullptr ? seats->n : 1); }
    uint64_t scratch_bytes() const { return parts_bytes + stats_bytes + saved_bytes; }
    // Scratch memory that is enough for every call with at most the planned number of queries and
    // the planned cache length.
    uint64_t planned_bytes = 0;
};

// Decides everything that depends only on shapes, so buffers may be NULL. q is f32 [m, heads,
// head_dim].
void settle_attention(keel_ctx &ctx, const keel_tensor *q, const keel_kv_view *kv, bool output,
                      const keel_scores *scores, bool logits, AttentionJob &job,
                      const Seats *seats = nullptr);
// Sets the model's attention window in `job`. q_positions has type i32 and shape [m] or [m,
// kv_heads].
void set_window(keel_ctx &ctx, AttentionJob &job, const keel_tensor *q_positions, int64_t window,
                const char *op);
// Makes the pipelines of all passes.
void prepare_attention(keel_ctx &ctx, const AttentionJob &job);
// Queues all passes. The caller has set the members of job.params that depend on buffers. q_is_lost
// is true if the op overwrites its queries with the result. Then this function first copies the
// queries that the scores need to scratch memory.
void run_attention_job(keel_ctx &ctx, AttentionJob &job, bool q_is_lost, const char *op);

} // namespace keel_vulkan

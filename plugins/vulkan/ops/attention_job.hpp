// Attention over one layer's cache. The attention and attention_scores ops share it. Passes:
// 1. Tiles of query rows loop over the slots with an online softmax. If the cache is long and the
// rows are few, the slots are split into parts, and a second dispatch combines the parts.
// 2. If scores are wanted: for each slot, the probabilities of the contributing queries are
// computed again with the known normalizers, and reduced to one number.
#pragma once

#include "vulkan/ops/kv_access.hpp"

namespace keel_vulkan {

struct AttentionJob {
    const keel_kv_view *kv = nullptr;
    int64_t m = 0, group = 1;
    bool output = true; // false: compute only the normalizers
    const keel_scores *scores = nullptr;
    bool logits = false; // reduce logits; the first pass is skipped
    // For several sequences at once; m is then 1. Their heads are numbered one sequence after the
    // other.
    const Seats *seats = nullptr;
    bool k_by_fours = false;
    AttentionParams params = {};

    // Sizes of the areas in scratch memory.
    uint32_t parts = 1;
    uint64_t parts_bytes = 0, stats_bytes = 0, saved_bytes = 0;

    uint32_t heads() const { return kv->kv_heads * (seats != nullptr ? seats->n : 1); }
    uint64_t scratch_bytes() const { return parts_bytes + stats_bytes + saved_bytes; }
    // Enough scratch for every call with at most this many queries and this cache length.
    uint64_t planned_bytes = 0;
};

// Decides everything that depends only on shapes; buffers may be NULL. q: f32 [m, heads, head_dim].
void settle_attention(keel_ctx &ctx, const keel_tensor *q, const keel_kv_view *kv, bool output,
                      const keel_scores *scores, bool logits, AttentionJob &job,
                      const Seats *seats = nullptr);
// Sets the model's attention window. q_positions: i32 [m] or [m, kv_heads].
void set_window(keel_ctx &ctx, AttentionJob &job, const keel_tensor *q_positions, int64_t window,
                const char *op);
// Makes the pipelines of all passes.
void prepare_attention(keel_ctx &ctx, const AttentionJob &job);
// Queues all passes. The caller has set in job.params what settle_attention() could not know.
// q_is_lost: the op overwrites its queries with the result, so the queries needed for scores are
// first copied to scratch memory.
void run_attention_job(keel_ctx &ctx, AttentionJob &job, bool q_is_lost, const char *op);

} // namespace keel_vulkan

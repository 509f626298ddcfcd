// Attention over one layer's cache, as the attention and attention_scores ops share it. Passes:
//   1. Tiles of query rows walk over the slots with an online softmax. A long cache with few rows
//      is split over its length into parts, which a second dispatch puts together.
//   2. If scores are wanted, each slot takes the contributing queries again, with the normalizers
//      now known, and reduces their probabilities.
#pragma once

#include "vulkan/ops/kv_access.hpp"

namespace keel_vulkan {

struct AttentionJob {
    const keel_kv_view *kv = nullptr;
    int64_t m = 0, group = 1;
    bool output = true; // false: only the normalizers
    const keel_scores *scores = nullptr;
    bool logits = false; // reduce logits: no first pass
    // of several sequences at once, m being 1: their heads follow each other
    const Seats *seats = nullptr;
    bool k_by_fours = false;
    AttentionParams params = {};

    // What the scratch holds.
    uint32_t parts = 1;
    uint64_t parts_bytes = 0, stats_bytes = 0, saved_bytes = 0;

    uint32_t heads() const { return kv->kv_heads * (seats != nullptr ? seats->n : 1); }
    uint64_t scratch_bytes() const { return parts_bytes + stats_bytes + saved_bytes; }
    uint64_t planned_bytes = 0; // that no call with fewer queries or a shorter cache exceeds
};

// Settles everything that hangs on shapes alone; buffers may be NULL. q: f32 [m, heads, head_dim].
void settle_attention(keel_ctx &ctx, const keel_tensor *q, const keel_kv_view *kv, bool output,
                      const keel_scores *scores, bool logits, AttentionJob &job,
                      const Seats *seats = nullptr);
// A window of the model. q_positions: i32 [m] or [m, kv_heads].
void set_window(keel_ctx &ctx, AttentionJob &job, const keel_tensor *q_positions, int64_t window,
                const char *op);
// Makes the pipelines of all passes.
void prepare_attention(keel_ctx &ctx, const AttentionJob &job);
// Queues all passes; job.params has everything but what settle_attention knew. q_is_lost: the
// result is written over the queries, so those that scores need are kept in the scratch.
void run_attention_job(keel_ctx &ctx, AttentionJob &job, bool q_is_lost, const char *op);

} // namespace keel_vulkan

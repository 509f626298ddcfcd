// Code that the ops attention and attention_scores share (kernels/attention.cl).
#pragma once

#include "opencl/ops/ops.hpp"

#include <algorithm>

namespace keel_opencl {

enum RuleFlags : uint32_t {
    rule_stats = 16,
    rule_ranges = 32,
    rule_weights = 64,
    rule_logits = 128
}; // the other flags are the KEEL_ATTENTION_* flags

// Has the same layout as the struct of this name in the kernels.
struct Rules {
    uint32_t flags, tokens, group;
    float scale, softcap;
    int32_t window;
    PositionConstants place;
};

// Arguments of the kernels that reduce probabilities (or logits) to one number per slot.
struct ScoresJob {
    const keel_kv_view *view;
    KvConstants kv;
    cl_mem q;
    View qv;
    const keel_tensor *q_positions; // NULL if the model has no attention window
    Rules rules;
    cl_mem stats; // the maximum and the sum of each row
    const keel_tensor *weights, *ranges;
    const keel_scores *scores;
    // number of queries that contribute to scores; these are the last queries
    uint32_t contributing;
};

// Converts the model's attention window to the form that the kernels take.
inline int32_t window_of(int64_t window) {
    return static_cast<int32_t>(std::clamp<int64_t>(window, INT32_MIN, INT32_MAX));
}

inline uint32_t contributing(const keel_scores *scores, uint32_t m) {
    return scores->window == 0 || scores->window > m ? m : scores->window;
}

// Builds the kernels of the two functions below, so that a planned call does not build them.
void build_scores(keel_ctx &ctx, const KvConstants &kv, bool with_stats);
// Computes job.stats for the rows that contribute to the scores.
void run_score_stats(keel_ctx &ctx, const ScoresJob &job);
void run_scores(keel_ctx &ctx, const ScoresJob &job);

void build_copy_queries(keel_ctx &ctx);
// Copies `from` into `memory`. `to` describes the place of the copy.
void copy_queries(keel_ctx &ctx, const keel_tensor &from, const keel_tensor &to, cl_mem memory);

} // namespace keel_opencl

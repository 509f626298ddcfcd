// Scores: attention probabilities reduced to a number per slot, made from what the walk over the
// slots computes anyway. Nothing of size queries x length is ever in memory.
//
// One query (attention/kept.cpp): exp(logit - max) of each slot stays in f32, as [tiles of
// slots][rows][kTileSlots], with the running max at each tile. When the softmax sum is known, one
// factor per tile turns them into probabilities.
//
// Several queries (attention/sums.cpp): each task keeps these numbers of its rows, in f32 as above
// or in bf16 as they were multiplied with the values. Tasks of one head are not cut over the
// length. After its walk a task knows its rows' normalizers and adds its columns to the sums of its
// head. Tasks of a head do so in the order in which they were given out, so that a sum does not
// depend on the number of workers.
//
// Logits (attention/logits.cpp): not normalized. There is no walk, so keys are multiplied there.
#pragma once

#include "cpu/attention/job.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {

// ---- while a task walks ----

// Gives a task a place for its softmax, if any of its rows count; else it keeps nothing.
// Scoring::several.
bool keep_task(const AttentionJob &job, AttentionScratch &w, uint32_t worker,
               const AttentionTask &task);
// The same for those rows of a task in bf16 that begin at `row`, a multiple of the step.
void keep_step(const AttentionJob &job, const AttentionTask &task, int64_t row,
               AttentionScratch &w);

// Nobody walks over a tile. place: of its maxima.
inline void skip_kept(const AttentionScratch &w, int64_t place) {
    if (w.kept_max != nullptr) w.kept_max[place] = __builtin_nanf("");
}
inline bool
was_skipped(const float *kept_max) { // a max is a number or an infinity: NaN logits are passed over
    return kept_max[0] != kept_max[0];
}

// ---- reducing ----

// Several: before all tasks; each task that kept something, when it is done; slots first..end-1 of
// a head, when all are.
void begin_sums(const AttentionJob &job);
void add_scores(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);
void finish_sums(const AttentionJob &job, int64_t head, int64_t first, int64_t end);

// One: slots first..end-1 of a head; first is a tile's.
void score_one(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
               int64_t end);

// Logits: the queries that count, scaled, by the whole team; and one tile of slots.
void pack_queries(const AttentionJob &job, const Team &team);
void score_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
                  int64_t end);

// ---- shared by them ----

constexpr float kNoLogit = -__builtin_inff();

// Are all query heads of a KV head simply added up, and all queries of each?
inline bool sums_of_heads(const keel_scores &scores) {
    return scores.reduce_queries != KEEL_REDUCE_MAX && scores.reduce_group != KEEL_REDUCE_MAX &&
           scores.reduce_group != KEEL_REDUCE_NONE;
}

// What brings exp(logit - max) of a tile's time to probabilities. A max that was the last one, or
// that saw logits of -inf only, has nothing to make up for.
inline float since_then(float max_then, float last_max) {
    return max_then == last_max || max_then == kNoLogit ? 1.0f : expf(max_then - last_max);
}

// Query head g of a KV head into the group's reduction.
inline void take_head(const AttentionJob &job, float *group, const float *x, int64_t g, int64_t n) {
    if (g == 0)
        memcpy(group, x, static_cast<size_t>(n) * 4);
    else if (job.scores->reduce_group == KEEL_REDUCE_MAX)
        job.kernels->max(group, x, n);
    else
        job.kernels->add(group, x, n);
}

// n scores to a row of the result. inside: which slots the ranges have, NULL for all.
inline void write_scores(const AttentionJob &job, int64_t row, int64_t first, int64_t n, float *x,
                         const bool *inside) {
    const keel_tensor *out = job.scores->out;
    float *to = data_as<float>(out) + row * outer_stride(out) + first;
    for (int64_t j = 0; inside != nullptr && j < n; ++j)
        if (!inside[j]) x[j] = 0;
    if (job.scores->accumulate == 0)
        memcpy(to, x, static_cast<size_t>(n) * 4);
    else if (job.scores->reduce_queries == KEEL_REDUCE_MAX)
        job.kernels->max(to, x, n);
    else
        job.kernels->add(to, x, n);
}

// The group's reduction, where it has one.
inline void write_group(const AttentionJob &job, float *group, int64_t head, int64_t first,
                        int64_t n, const bool *inside) {
    if (job.scores->reduce_group == KEEL_REDUCE_NONE) return;
    if (job.scores->reduce_group == KEEL_REDUCE_MEAN)
        for (int64_t j = 0; j < n; ++j) group[j] /= static_cast<float>(job.group);
    write_scores(job, head, first, n, group, inside);
}

} // namespace keel_cpu

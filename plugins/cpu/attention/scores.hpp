// Scores: attention probabilities reduced to one number per slot, computed from values that the
// pass over the slots computes anyway. No array of size queries x length is ever stored.
//
// One query (attention/kept.cpp): exp(logit - max) of each slot is kept in f32, as [tiles of
// slots][rows][kTileSlots], with the running max at each tile. When the softmax sum is known, one
// factor per tile turns these values into probabilities.
//
// Several queries (attention/sums.cpp): each task keeps these values of its rows. They are in f32
// as above, or in bf16 as they were multiplied with the values. The slots of such a task are not
// split. After its pass a task knows the normalizers of its rows. It then adds its columns to the
// sums of its head. The tasks of a head add in the order in which they were started, so that sums
// do not depend on the number of workers.
//
// Logits (attention/logits.cpp): not normalized. There is no pass before, so keys are multiplied
// there.
#pragma once

#include "cpu/attention/job.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {

// ---- during the pass of a task ----

// Scoring::several: if any row of the task contributes, sets the place for its softmax and returns
// true. Otherwise nothing is kept.
bool keep_task(const AttentionJob &job, AttentionScratch &w, uint32_t worker,
               const AttentionTask &task);
// The same for the step of rows of a bf16 task that begins at `row`, a multiple of the step.
void keep_step(const AttentionJob &job, const AttentionTask &task, int64_t row,
               AttentionScratch &w);

// Marks a tile that no row walks over. `place`: index of its maxima.
inline void skip_kept(const AttentionScratch &w, int64_t place) {
    if (w.kept_max != nullptr) w.kept_max[place] = __builtin_nanf("");
}
inline bool
// A NaN marks a skipped tile. The max of other tiles is never NaN, because NaN logits are ignored.
was_skipped(const float *kept_max) {
    return kept_max[0] != kept_max[0];
}

// ---- reduction ----

// Several queries. begin_sums() runs before all tasks. add_scores() runs after each task that kept
// its softmax. finish_sums() runs after all tasks, for slots first..end-1 of a head.
void begin_sums(const AttentionJob &job);
void add_scores(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);
void finish_sums(const AttentionJob &job, int64_t head, int64_t first, int64_t end);

// One query: computes the scores of slots first..end-1 of a head. `first` is the start of a tile.
void score_one(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
               int64_t end);

// Logits. pack_queries() scales the contributing queries; the whole team runs it. score_logits()
// handles one tile of slots.
void pack_queries(const AttentionJob &job, const Team &team);
void score_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
                  int64_t end);

// ---- shared by these files ----

constexpr float kNoLogit = -__builtin_inff();

// Whether the scores of a KV head are a plain sum over its query heads and their queries.
inline bool sums_of_heads(const keel_scores &scores) {
    return scores.reduce_queries != KEEL_REDUCE_MAX && scores.reduce_group != KEEL_REDUCE_MAX &&
           scores.reduce_group != KEEL_REDUCE_NONE;
}

// The factor that corrects exp(logit - max) for a max that rose later. It is 1 if the max did not
// change, or if all logits so far were -inf.
inline float since_then(float max_then, float last_max) {
    return max_then == last_max || max_then == kNoLogit ? 1.0f : expf(max_then - last_max);
}

// Adds query head g of a KV head to the reduction of its group.
inline void take_head(const AttentionJob &job, float *group, const float *x, int64_t g, int64_t n) {
    if (g == 0)
        memcpy(group, x, static_cast<size_t>(n) * 4);
    else if (job.scores->reduce_group == KEEL_REDUCE_MAX)
        job.kernels->max(group, x, n);
    else
        job.kernels->add(group, x, n);
}

// Writes n scores to a row of the result. `inside`: whether each slot is in the ranges; NULL: all
// are.
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

// Writes the reduction over the group, if there is one.
inline void write_group(const AttentionJob &job, float *group, int64_t head, int64_t first,
                        int64_t n, const bool *inside) {
    if (job.scores->reduce_group == KEEL_REDUCE_NONE) return;
    if (job.scores->reduce_group == KEEL_REDUCE_MEAN)
        for (int64_t j = 0; j < n; ++j) group[j] /= static_cast<float>(job.group);
    write_scores(job, head, first, n, group, inside);
}

} // namespace keel_cpu

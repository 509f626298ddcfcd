// Scores are attention probabilities, reduced to one number per slot. They are computed from values
// that the loop over the slots computes for attention. No array of size queries x length is stored.
// There are three cases (enum Scoring).
//
// One query (attention/kept.cpp): the values exp(logit - max) of all slots are stored in f32, as
// [tiles of slots][rows][kTileSlots]. The running max at each tile is stored too. When the softmax
// sum is known, one factor per tile turns the stored values into probabilities.
//
// Several queries (attention/sums.cpp): each task keeps exp(logit - max) of its rows, either in f32
// or in bf16. The slots of a task are not split. After its loop over the slots, a task knows the
// max and the softmax sum of each of its rows. Then the task adds its probabilities to the sums of
// its head. The tasks of a head add in the order in which they were started, so that the sums do
// not depend on the number of workers.
//
// Logits (attention/logits.cpp): these scores are not normalized. No loop over the slots runs
// before, so this code multiplies the keys with the queries.
#pragma once

#include "cpu/attention/job.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {

// ---- while a task loops over the slots ----

// For Scoring::several. If a row of the task contributes to scores, sets the place where the
// softmax is kept and returns true. Otherwise returns false, and nothing is kept.
bool keep_task(const AttentionJob &job, AttentionScratch &w, uint32_t worker,
               const AttentionTask &task);
// For Scoring::several in bf16: sets the place where the softmax is kept for the step of rows that
// begins at `row`. `row` is a multiple of the step.
void keep_step(const AttentionJob &job, const AttentionTask &task, int64_t row,
               AttentionScratch &w);

// Marks a tile of slots as skipped by all rows. `place` is the index of the tile's maxima.
inline void skip_kept(const AttentionScratch &w, int64_t place) {
    if (w.kept_max != nullptr) w.kept_max[place] = __builtin_nanf("");
}
inline bool
// Returns true if a tile was marked by skip_kept(), which stores NaN as its max. The max of other
// tiles is never NaN, because NaN logits are ignored.
was_skipped(const float *kept_max) {
    return kept_max[0] != kept_max[0];
}

// ---- reduction ----

// For Scoring::several. begin_sums() runs before all tasks. add_scores() runs after each task that
// kept its softmax. finish_sums() runs after all tasks, for slots first..end-1 of a head.
void begin_sums(const AttentionJob &job);
void add_scores(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);
void finish_sums(const AttentionJob &job, int64_t head, int64_t first, int64_t end);

// For Scoring::one: computes the scores of slots first..end-1 of a head. `first` is the start of a
// tile.
void score_one(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
               int64_t end);

// For Scoring::logits. pack_queries() scales the contributing queries; all workers run it together.
// score_logits() computes the scores of one tile of slots.
void pack_queries(const AttentionJob &job, const Team &team);
void score_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
                  int64_t end);

// ---- shared by these files ----

constexpr float kNoLogit = -__builtin_inff();

// True if the score of a KV head is the plain sum over its query heads and their queries.
inline bool sums_of_heads(const keel_scores &scores) {
    return scores.reduce_queries != KEEL_REDUCE_MAX && scores.reduce_group != KEEL_REDUCE_MAX &&
           scores.reduce_group != KEEL_REDUCE_NONE;
}

// Returns the factor that corrects exp(logit - max_then) to the final max. The factor is 1 if the
// max did not change, or if all logits so far were -inf.
inline float since_then(float max_then, float last_max) {
    return max_then == last_max || max_then == kNoLogit ? 1.0f : expf(max_then - last_max);
}

// Adds the scores of query head g to the reduction over the query heads of its KV head.
inline void take_head(const AttentionJob &job, float *group, const float *x, int64_t g, int64_t n) {
    if (g == 0)
        memcpy(group, x, static_cast<size_t>(n) * 4);
    else if (job.scores->reduce_group == KEEL_REDUCE_MAX)
        job.kernels->max(group, x, n);
    else
        job.kernels->add(group, x, n);
}

// Writes n scores to row `row` of the result. inside[j] is true if slot first + j is in the ranges
// of the job. `inside` is NULL if the job has no ranges.
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

// Writes the reduction over the query heads of a KV head, if the scores are reduced over query
// heads.
inline void write_group(const AttentionJob &job, float *group, int64_t head, int64_t first,
                        int64_t n, const bool *inside) {
    if (job.scores->reduce_group == KEEL_REDUCE_NONE) return;
    if (job.scores->reduce_group == KEEL_REDUCE_MEAN)
        for (int64_t j = 0; j < n; ++j) group[j] /= static_cast<float>(job.group);
    write_scores(job, head, first, n, group, inside);
}

} // namespace keel_cpu

// Scores of a single query, computed from the softmax that was kept during its pass.
#include "cpu/attention/scores.hpp"

namespace keel_cpu {
namespace {

// For each query head of a KV head: the factor that turns the kept values exp(logit - max) of a
// tile into probabilities.
struct KeptFactors {
    const AttentionJob &job;
    int64_t head;
    float max[kTileRows], value[kTileRows];

    KeptFactors(const AttentionJob &j, int64_t h) : job(j), head(h) {
        for (int64_t g = 0; g < job.group; ++g)
            max[g] = job.factors(head, g)[0], value[g] = finish(g, 1.0f);
    }
    float finish(int64_t g, float factor) const {
        const bool mean = job.scores->reduce_group == KEEL_REDUCE_MEAN;
        return factor * job.factors(head, g)[1] / (mean ? static_cast<float>(job.group) : 1.0f);
    }
    bool are_numbers() const {
        bool all = true;
        for (int64_t g = 0; g < job.group; ++g) all &= value[g] - value[g] == 0;
        return all;
    }
    void update(const float *tile_max) {
        for (int64_t g = 0; g < job.group; ++g) {
            if (tile_max[g] == max[g]) continue; // usually the max did not change after this tile
            max[g] = tile_max[g];
            value[g] = finish(g, since_then(max[g], job.factors(head, g)[0]));
        }
    }
};

// Computes the scores of a tile in which some slots must not count. Either the model's window hides
// all slots of the tile (`skipped`), or a factor is not finite and must not change hidden slots.
void score_masked(const AttentionJob &job, const AttentionScratch &w, const KeptFactors &factors,
                  int64_t head, int64_t first, int64_t n, bool skipped) {
    float hidden[kTileSlots] = {}, *group = w.acc;
    mask_row(job, head, 0, first, n, nullptr, hidden);
    for (int64_t g = 0; g < job.group; ++g) {
        float x[kTileSlots];
        const float *tile = w.kept + first * job.group + g * kTileSlots;
        for (int64_t j = 0; j < n; ++j)
            x[j] = skipped || hidden[j] != 0 ? 0.0f : tile[j] * factors.value[g];
        if (job.scores->reduce_group == KEEL_REDUCE_NONE)
            write_scores(job, head * job.group + g, first, n, x, nullptr);
        else
            take_head(job, group, x, g, n);
    }
    if (job.scores->reduce_group != KEEL_REDUCE_NONE)
        write_scores(job, head, first, n, group, nullptr);
}

} // namespace

// Computes the scores of a tile: one factor per tile turns the kept values into probabilities. If
// the query does not see a slot, the kept value of the slot is 0.
void score_one(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
               int64_t end) {
    const keel_scores &scores = *job.scores;
    const bool apart = scores.reduce_group == KEEL_REDUCE_NONE;
    const bool sums = !apart && scores.reduce_group != KEEL_REDUCE_MAX;
    // gemm adds to the result, so it cannot accumulate a maximum.
    const bool direct =
        sums && (scores.accumulate == 0 || scores.reduce_queries != KEEL_REDUCE_MAX);
    KeptFactors factors(job, head);
    float *group = w.acc;
    for (int64_t slot = first; slot < end; slot += kTileSlots) {
        const int64_t n = end - slot < kTileSlots ? end - slot : kTileSlots;
        float *tile = w.kept + slot * job.group;
        const float *tile_max = w.kept_max + slot / kTileSlots * job.group;
        const bool skipped = was_skipped(tile_max);
        if (!skipped) factors.update(tile_max);
        if (job.windowed && (skipped || !factors.are_numbers())) {
            score_masked(job, w, factors, head, slot, n, skipped);
            continue;
        }
        if (sums) {
            const bool whole = direct && n == kTileSlots; // gemm writes whole tiles only
            float *to =
                whole ? data_as<float>(scores.out) + head * outer_stride(scores.out) + slot : group;
            job.kernels->gemm({factors.value, job.group, 1}, 1, tile, kTileSlots, job.group,
                              padded(n), to, kTileSlots, whole && scores.accumulate != 0);
            if (!whole) write_scores(job, head, slot, n, group, nullptr);
            continue;
        }
        for (int64_t g = 0; g < job.group; ++g) {
            float *x = tile + g * kTileSlots;
            job.kernels->scale(x, n, factors.value[g]);
            if (apart)
                write_scores(job, head * job.group + g, slot, n, x, nullptr);
            else
                take_head(job, group, x, g, n);
        }
        if (!apart) write_scores(job, head, slot, n, group, nullptr);
    }
}

} // namespace keel_cpu

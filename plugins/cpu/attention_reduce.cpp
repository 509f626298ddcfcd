// Scores: the second pass, one tile of slots of a head at a time, with the normalizers known.
#include "attention_job.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {
namespace {

constexpr float kNone = -__builtin_inff();

// What a tile of slots is reduced into; each [kTileSlots].
struct Reduction {
    float *queries;           // of one query head, over its queries
    float *group;             // of the KV head, over its query heads
    int64_t seen[kTileSlots]; // by how many of a head's queries (LOGITS)
};

void clear(const AttentionJob &job, Reduction &r, int64_t n) {
    const bool lowest = job.scores->reduce_queries == KEEL_REDUCE_MAX;
    for (int64_t j = 0; j < n; ++j)
        r.queries[j] = lowest ? kNone : 0.0f, r.seen[j] = 0;
}

// One query's logits into the reduction. hidden[j] is -inf where the query does not see the slot, 0 elsewhere.
void take_row(const AttentionJob &job, Reduction &r, int64_t head, float *s, const float *hidden,
              const float *factors, int64_t first, int64_t n) {
    const bool largest = job.scores->reduce_queries == KEEL_REDUCE_MAX;
    if (!job.logits) job.kernels->probabilities(s, n, factors[0], factors[1]);
    const float unseen = job.logits && largest ? kNone : 0.0f;
    for (int64_t j = 0; j < n; ++j) {
        const bool seen = hidden[j] == 0;
        s[j] = seen ? s[j] : unseen;
        r.seen[j] += seen;
    }
    if (job.weights != nullptr) {
        const float *weights = job.weights + head * job.weight_stride + first;
        for (int64_t j = 0; j < n; ++j)
            s[j] = hidden[j] == 0 ? s[j] * weights[j] : s[j];
    }
    if (largest)
        job.kernels->max(r.queries, s, n);
    else
        job.kernels->add(r.queries, s, n);
}

void finish_queries(const AttentionJob &job, Reduction &r, int64_t n) {
    if (job.scores->reduce_queries != KEEL_REDUCE_MEAN) return;
    for (int64_t j = 0; j < n; ++j) {
        const int64_t count = job.logits ? r.seen[j] : job.contributing;
        r.queries[j] = count == 0 ? 0.0f : r.queries[j] / static_cast<float>(count);
    }
}

void take_head(const AttentionJob &job, Reduction &r, int64_t g, int64_t n) {
    if (g == 0)
        memcpy(r.group, r.queries, static_cast<size_t>(n) * 4);
    else if (job.scores->reduce_group == KEEL_REDUCE_MAX)
        job.kernels->max(r.group, r.queries, n);
    else
        job.kernels->add(r.group, r.queries, n);
}

void write(const AttentionJob &job, int64_t row, int64_t first, int64_t n, float *x, const bool *inside) {
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

void finish_group(const AttentionJob &job, Reduction &r, int64_t head, int64_t first, int64_t n,
                  const bool *inside) {
    if (job.scores->reduce_group == KEEL_REDUCE_NONE) return;
    if (job.scores->reduce_group == KEEL_REDUCE_MEAN) {
        for (int64_t j = 0; j < n; ++j)
            r.group[j] /= static_cast<float>(job.group);
    }
    write(job, head, first, n, r.group, inside);
}

} // namespace

void reduce_tile(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first, int64_t n) {
    Reduction r;
    r.queries = w.acc;
    r.group = w.acc + kTileSlots;
    float hidden[kTileSlots];
    bool inside_ranges[kTileSlots];
    const bool *inside = job.ranges != nullptr ? inside_ranges : nullptr;
    const bool any = inside == nullptr || slots_in_ranges(job, first, n, inside_ranges);
    const int64_t queries = job.contributing, from = job.m - queries, rows = queries * job.group;
    const bool apart = job.scores->reduce_group == KEEL_REDUCE_NONE;
    for (int64_t row = 0; row < rows; row += kTileRows) {
        const int64_t count = rows - row < kTileRows ? rows - row : kTileRows;
        if (any) tile_logits(job, w, head, job.packed(head, row), count, first, n);
        for (int64_t i = 0; i < count; ++i) {
            const int64_t g = (row + i) / queries, query = (row + i) % queries;
            float *s = w.s + i * kTileSlots;
            if (query == 0) clear(job, r, n);
            if (any) {
                memset(hidden, 0, sizeof hidden);
                mask_row(job, head, from + query, first, n, inside, hidden);
                take_row(job, r, head, s, hidden, job.factors(head, row + i), first, n);
            }
            if (query + 1 != queries) continue;
            finish_queries(job, r, n);
            if (apart)
                write(job, head * job.group + g, first, n, r.queries, inside);
            else
                take_head(job, r, g, n);
        }
    }
    finish_group(job, r, head, first, n, inside);
}

namespace {

// What brings a tile's exp(logit - max) to probabilities, for each query head of a head.
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
    // A max that was the last one, or that saw logits of -inf only, has nothing to make up for.
    void update(const float *tile_max) {
        for (int64_t g = 0; g < job.group; ++g) {
            if (tile_max[g] == max[g]) continue; // as in the tile before, mostly
            const float last = job.factors(head, g)[0];
            max[g] = tile_max[g];
            value[g] = finish(g, max[g] == last || max[g] == kNone ? 1.0f : expf(max[g] - last));
        }
    }
};

} // namespace

// A single query that sees all slots: nothing to mask, and its probabilities are a factor away.
void reduce_kept(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
                 int64_t end) {
    const keel_scores &scores = *job.scores;
    const bool apart = scores.reduce_group == KEEL_REDUCE_NONE;
    const bool sums = !apart && scores.reduce_group != KEEL_REDUCE_MAX;
    // The largest is not what gemm adds up.
    const bool direct = sums && (scores.accumulate == 0 || scores.reduce_queries != KEEL_REDUCE_MAX);
    KeptFactors factors(job, head);
    Reduction r;
    r.group = w.acc;
    for (int64_t slot = first; slot < end; slot += kTileSlots) {
        const int64_t n = end - slot < kTileSlots ? end - slot : kTileSlots;
        float *tile = w.kept + slot * job.group;
        factors.update(w.kept_max + slot / kTileSlots * job.group);
        if (sums) {
            const bool whole =
                direct && n == kTileSlots; // else what lies behind n is not this tile's to write
            float *to = whole ? data_as<float>(scores.out) + head * outer_stride(scores.out) + slot : r.group;
            job.kernels->gemm(factors.value, job.group, 1, tile, kTileSlots, job.group, padded(n), to,
                              kTileSlots, whole && scores.accumulate != 0);
            if (!whole) write(job, head, slot, n, r.group, nullptr);
            continue;
        }
        for (int64_t g = 0; g < job.group; ++g) {
            r.queries = tile + g * kTileSlots;
            job.kernels->scale(r.queries, n, factors.value[g]);
            if (apart)
                write(job, head * job.group + g, slot, n, r.queries, nullptr);
            else
                take_head(job, r, g, n);
        }
        if (!apart) write(job, head, slot, n, r.group, nullptr);
    }
}

} // namespace keel_cpu

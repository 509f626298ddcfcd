// Scores that are computed from logits without a softmax, one tile of slots of a head at a time.
#include "cpu/attention/scores.hpp"

namespace keel_cpu {
namespace {

// Partial results of one tile of slots. Each array has kTileSlots floats.
struct Reduction {
    float *queries;           // logits of one query head, reduced over its queries
    float *group;             // logits of the KV head, reduced over its query heads
    int64_t seen[kTileSlots]; // number of queries of one head that see the slot
};

void clear(const AttentionJob &job, Reduction &r, int64_t n) {
    const bool lowest = job.scores->reduce_queries == KEEL_REDUCE_MAX;
    for (int64_t j = 0; j < n; ++j) r.queries[j] = lowest ? kNoLogit : 0.0f, r.seen[j] = 0;
}

// Adds the logits of one query to the reduction. hidden[j] is -inf if the query does not see slot
// first + j, otherwise 0.
void take_row(const AttentionJob &job, Reduction &r, int64_t head, float *s, const float *hidden,
              int64_t first, int64_t n) {
    const bool largest = job.scores->reduce_queries == KEEL_REDUCE_MAX;
    const float unseen = largest ? kNoLogit : 0.0f;
    const float *weights =
        job.weights != nullptr ? job.weights + head * job.weight_stride + first : nullptr;
    for (int64_t j = 0; j < n; ++j) {
        const bool seen = hidden[j] == 0;
        s[j] = !seen ? unseen : weights != nullptr ? s[j] * weights[j] : s[j];
        r.seen[j] += seen;
    }
    if (largest)
        job.kernels->max(r.queries, s, n);
    else
        job.kernels->add(r.queries, s, n);
}

void finish_queries(const AttentionJob &job, Reduction &r, int64_t n) {
    if (job.scores->reduce_queries != KEEL_REDUCE_MEAN) return;
    for (int64_t j = 0; j < n; ++j)
        r.queries[j] = r.seen[j] == 0 ? 0.0f : r.queries[j] / static_cast<float>(r.seen[j]);
}

} // namespace

void pack_queries(const AttentionJob &job, const Team &team) {
    const int64_t dim = job.head_dim(), stride = padded(dim), rows = job.contributing * job.group;
    const Range mine = share(job.kv.heads * rows, 1, team);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
        const int64_t h = r / rows, row = r % rows, g = row / job.contributing;
        const int64_t i = job.m - job.contributing + row % job.contributing;
        float *to = job.packed(h, row);
        job.kernels->load[job.q_type](job.q + i * job.q_token + (h * job.group + g) * job.q_head,
                                      dim, to);
        job.kernels->scale(to, dim, job.scale);
        for (int64_t d = dim; d < stride; ++d) to[d] = 0;
    }
}

void score_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
                  int64_t end) {
    const int64_t n = end - first;
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
            if (query == 0) clear(job, r, n);
            if (any) {
                memset(hidden, 0, sizeof hidden);
                mask_row(job, head, from + query, first, n, inside, hidden);
                take_row(job, r, head, w.s + i * kTileSlots, hidden, first, n);
            }
            if (query + 1 != queries) continue;
            finish_queries(job, r, n);
            if (apart)
                write_scores(job, head * job.group + g, first, n, r.queries, inside);
            else
                take_head(job, r.group, r.queries, g, n);
        }
    }
    write_group(job, r.group, head, first, n, inside);
}

} // namespace keel_cpu

#include "cpu/attention/scores.hpp"

namespace keel_cpu {
namespace {

// Returns the number of parts into which the slots of a tile of query rows are split. The number
// depends only on the heads, rows and slots, so that results do not change with the number of
// workers.
int64_t parts_of(int64_t heads, int64_t tiles, int64_t slots) {
    if (heads * tiles >= kWantedTasks) return 1;
    const int64_t wanted = ceil_div(kWantedTasks, heads * tiles), worth = slots / kSplitSlots;
    return worth < 2 ? 1 : worth < wanted ? worth : wanted;
}

void add_tile(AttentionJob &job, int64_t head, int64_t row, int64_t rows, int64_t tiles,
              int64_t &parts) {
    const int64_t end = job.limit(head, (row + rows - 1) / job.group);
    // A sequence in a batch is split into as many parts as it would be alone. With Scoring::several
    // the slots are not split, because one worker keeps the whole softmax of its rows.
    const int64_t n =
        job.scoring == Scoring::several ? 1 : parts_of(job.kv.heads / job.sequences(), tiles, end);
    if (n == 1) {
        job.tasks()[job.n_tasks++] = {head, row, rows, 0, end, -1};
        return;
    }
    const int64_t length = round_up(ceil_div(end, n), kTileSlots);
    AttentionMerge merge = {head, row, rows, parts, 0};
    for (int64_t begin = 0; begin < end; begin += length, ++merge.parts)
        job.tasks()[job.n_tasks++] = {
            head, row, rows, begin, begin + length < end ? begin + length : end, parts++};
    job.merges()[job.n_merges++] = merge;
}

// Makes the list of tasks. The longest tasks come first, so that a short task finishes last.
void make_tasks(AttentionJob &job) {
    const int64_t rows = job.rows(), tiles = tiles_of(rows), step = job.layout.tile_rows;
    job.n_tasks = job.n_merges = 0;
    int64_t parts = 0;
    for (int64_t t = ceil_div(rows, step); t-- > 0;) {
        for (int64_t h = 0; h < job.kv.heads; ++h)
            add_tile(job, h, t * step, rows - t * step < step ? rows - t * step : step, tiles,
                     parts);
    }
}

void reduce_scores(AttentionJob &job, AttentionScratch &w) {
    int64_t longest = 0;
    for (int64_t h = 0; h < job.kv.heads; ++h)
        longest = job.kv.length(h) > longest ? job.kv.length(h) : longest;
    // Reducing the kept results takes little time, so each piece covers more slots.
    const int64_t piece = job.scoring == Scoring::logits ? kTileSlots : 16 * kTileSlots,
                  pieces = ceil_div(longest, piece);
    for (int64_t t;
         (t = job.next_tile.fetch_add(1, std::memory_order_relaxed)) < pieces * job.kv.heads;) {
        const int64_t head = t / pieces, first = t % pieces * piece,
                      left = job.kv.length(head) - first;
        if (left <= 0) continue;
        const int64_t end = first + (left < piece ? left : piece);
        if (job.scoring == Scoring::logits) {
            score_logits(job, w, head, first, end);
        } else if (job.scoring == Scoring::several) {
            finish_sums(job, head, first, end);
        } else {
            job.keep_at(w, head);
            score_one(job, w, head, first, end);
        }
    }
}

// Each worker handles one head at a time, including the head's scores. So the kept softmax stays in
// the worker's cache, and no worker waits for another. The slots are split into the same parts as
// without this function, so the results are the same.
void work_by_heads(AttentionJob &job, AttentionScratch &w, const Team &team) {
    job.keep_at(w, team.worker);
    for (int64_t h; (h = job.next_task.fetch_add(1, std::memory_order_relaxed)) < job.kv.heads;) {
        for (int64_t t = 0; t < job.n_tasks; ++t)
            if (job.tasks()[t].head == h) run_task(job, w, job.tasks()[t]);
        for (int64_t t = 0; t < job.n_merges; ++t)
            if (job.merges()[t].head == h) run_merge(job, w, job.merges()[t]);
        score_one(job, w, h, 0, job.kv.length(h));
    }
}

void work(AttentionJob &job, const Team &team) {
    AttentionScratch w = job.worker(team.worker);
    if (job.scoring == Scoring::one && job.kv.heads % team.n == 0)
        return work_by_heads(job, w, team);
    if (job.scoring == Scoring::logits) pack_queries(job, team);
    for (int64_t t; (t = job.next_task.fetch_add(1, std::memory_order_relaxed)) < job.n_tasks;) {
        const AttentionTask &task = job.tasks()[t];
        if (job.scoring == Scoring::one) job.keep_at(w, task.head);
        if (job.scoring != Scoring::several) {
            run_task(job, w, task);
            continue;
        }
        const bool counts = keep_task(job, w, team.worker, task);
        run_task(job, w, task);
        if (counts) add_scores(job, w, task);
    }
    if (job.n_merges != 0) {
        team.barrier();
        for (int64_t t;
             (t = job.next_merge.fetch_add(1, std::memory_order_relaxed)) < job.n_merges;)
            run_merge(job, w, job.merges()[t]);
    }
    if (job.scoring != Scoring::none) {
        team.barrier();
        reduce_scores(job, w);
    }
}

} // namespace

AttentionScratch AttentionJob::worker(uint32_t index) const {
    const int64_t dim = padded(kv.k.dim), v_dim = padded(kv.v.dim),
                  wide = dim > v_dim ? dim : v_dim;
    AttentionScratch w;
    float *p = base + layout.workers + index * layout.worker_stride;
    w.q = p, p += kTileRows * dim;
    w.k = p, p += dim * kTileSlots;
    w.rows = p, p += kTileSlots * wide;
    w.s = p, p += kTileRows * kTileSlots;
    w.acc = p, p += layout.most_rows * v_dim + 2 * kTileSlots;
    w.max = p, p += layout.most_rows;
    w.sum = p, p += layout.most_rows;
    uint16_t *h = reinterpret_cast<uint16_t *>(p);
    w.q16 = h, h += layout.most_rows * bf16_padded(kv.k.dim);
    w.k16 = h, h += kTileSlots * bf16_padded(kv.k.dim);
    w.panels16 = h, h += layout.chunk * bf16_padded(kv.k.dim);
    w.v16 = h, h += layout.chunk * v_dim;
    w.p16 = h;
    w.kept = w.kept_max = nullptr;
    w.kept16 = nullptr;
    return w;
}

keel_status run_attention(keel_ctx *ctx, AttentionJob &job) noexcept {
    AttentionSize size = {job.kv.heads, job.group, job.m, job.kv.k.dim, job.kv.v.dim, ctx->threads};
    size.bf16_step = job.bf16 != nullptr ? job.bf16->rows_at_once : 0;
    size.in_bf16 = job.products_in_bf16();
    size.sequences = job.sequences();
    size.scoring = job.scoring;
    size.contributing = job.contributing;
    for (int64_t h = 0; h < job.kv.heads && job.scoring != Scoring::none; ++h)
        size.slots = job.kv.length(h) > size.slots ? job.kv.length(h) : size.slots;
    if (job.scoring == Scoring::several)
        size.sums = score_sums(*job.scores, job.kv.heads, job.group);
    job.layout = attention_layout(size);
    job.base = reinterpret_cast<float *>(scratch(ctx, static_cast<uint64_t>(job.layout.total) * 4));
    if (job.base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    if (job.scoring == Scoring::logits)
        // logits need no softmax sums, so there are no tasks before the scores
        job.n_tasks = job.n_merges = 0;
    else
        make_tasks(job);
    if (job.scoring == Scoring::several) begin_sums(job);
    uint64_t slots = 0;
    for (int64_t h = 0; h < job.kv.heads; ++h)
        slots += static_cast<uint64_t>(job.kv.length(h) > 0 ? job.kv.length(h) : 0);
    const uint64_t flops = slots * static_cast<uint64_t>(job.rows()) * 2 *
                           static_cast<uint64_t>(job.kv.k.dim + job.kv.v.dim);
    return parallel(ctx, workers_for(ctx, 0, flops), [&job](const Team &team) { work(job, team); });
}

} // namespace keel_cpu

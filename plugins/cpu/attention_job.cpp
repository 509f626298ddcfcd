#include "attention_job.hpp"

namespace keel_cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

int64_t tiles_of(int64_t rows) {
    return ceil_div(rows, kTileRows);
}

// Rows of a tile: as equal as can be, a multiple of the six that gemm takes at a time.
int64_t tile_rows(int64_t rows) {
    const int64_t tiles = tiles_of(rows);
    return tiles == 0 ? 0 : round_up(ceil_div(rows, tiles), 6);
}

// The same in bf16 where slots are not cut into parts. Multiples of kTileRows, so that a row has the same neighbours in its block of
// rows however many workers there are, and with them the same result.
int64_t wide_rows(int64_t heads, int64_t rows, uint32_t threads) {
    const int64_t fair = ceil_div(heads * rows, threads * kTasksEach), most = fair < kTileRows   ? kTileRows
                                                                              : fair < kWideRows ? fair
                                                                                                 : kWideRows;
    return round_up(most, kTileRows);
}

// Into how many parts a tile's slots are cut. Depends on the cache alone, so that results do not change with the number of workers.
int64_t parts_of(int64_t heads, int64_t tiles, int64_t slots) {
    if (heads * tiles >= kWantedTasks) return 1;
    const int64_t wanted = ceil_div(kWantedTasks, heads * tiles), worth = slots / kSplitSlots;
    return worth < 2 ? 1 : worth < wanted ? worth : wanted;
}

void add_tile(AttentionJob &job, int64_t head, int64_t row, int64_t rows, int64_t tiles, int64_t &parts) {
    const int64_t end = job.limit(head, (row + rows - 1) / job.group);
    const int64_t n = parts_of(job.kv.heads / job.sequences(), tiles, end); // as a sequence alone has it
    if (n == 1) {
        job.tasks()[job.n_tasks++] = {head, row, rows, 0, end, -1};
        return;
    }
    const int64_t length = round_up(ceil_div(end, n), kTileSlots);
    AttentionMerge merge = {head, row, rows, parts, 0};
    for (int64_t begin = 0; begin < end; begin += length, ++merge.parts)
        job.tasks()[job.n_tasks++] = {head,   row, rows, begin, begin + length < end ? begin + length : end,
                                      parts++};
    job.merges()[job.n_merges++] = merge;
}

// The longest tasks come first: what is left for the last worker is short.
void make_tasks(AttentionJob &job) {
    const int64_t rows = job.rows(), tiles = tiles_of(rows), step = job.layout.tile_rows;
    job.n_tasks = job.n_merges = 0;
    int64_t parts = 0;
    for (int64_t t = ceil_div(rows, step); t-- > 0;) {
        for (int64_t h = 0; h < job.kv.heads; ++h)
            add_tile(job, h, t * step, rows - t * step < step ? rows - t * step : step, tiles, parts);
    }
}

// The contributing queries, before a result written in place overwrites them.
void pack_queries(const AttentionJob &job, const Team &team) {
    const int64_t dim = job.head_dim(), stride = padded(dim), rows = job.contributing * job.group;
    const Range mine = share(job.kv.heads * rows, 1, team);
    for (int64_t r = mine.begin; r < mine.end; ++r) {
        const int64_t h = r / rows, row = r % rows, g = row / job.contributing;
        const int64_t i = job.m - job.contributing + row % job.contributing;
        float *to = job.packed(h, row);
        job.kernels->load[job.q_type](job.q + i * job.q_token + (h * job.group + g) * job.q_head, dim, to);
        job.kernels->scale(to, dim, job.scale);
        for (int64_t d = dim; d < stride; ++d)
            to[d] = 0;
    }
}

void reduce_scores(AttentionJob &job, AttentionScratch &w) {
    int64_t longest = 0;
    for (int64_t h = 0; h < job.kv.heads; ++h)
        longest = job.kv.length(h) > longest ? job.kv.length(h) : longest;
    // What was kept is quickly reduced: in larger pieces.
    const int64_t piece = job.keeps ? 16 * kTileSlots : kTileSlots, pieces = ceil_div(longest, piece);
    for (int64_t t; (t = job.next_tile.fetch_add(1, std::memory_order_relaxed)) < pieces * job.kv.heads;) {
        const int64_t head = t / pieces, first = t % pieces * piece, left = job.kv.length(head) - first;
        if (left <= 0) continue;
        const int64_t n = left < piece ? left : piece;
        if (job.keeps) {
            job.keep_at(w, head);
            reduce_kept(job, w, head, first, first + n);
        } else {
            reduce_tile(job, w, head, first, n);
        }
    }
}

// A head at a time, with its scores: what is kept of it stays near, and nobody waits for anybody. The parts are the same, and so
// are the results.
void work_by_heads(AttentionJob &job, AttentionScratch &w, const Team &team) {
    job.keep_at(w, team.worker);
    for (int64_t h; (h = job.next_task.fetch_add(1, std::memory_order_relaxed)) < job.kv.heads;) {
        for (int64_t t = 0; t < job.n_tasks; ++t)
            if (job.tasks()[t].head == h) run_task(job, w, job.tasks()[t]);
        for (int64_t t = 0; t < job.n_merges; ++t)
            if (job.merges()[t].head == h) run_merge(job, w, job.merges()[t]);
        reduce_kept(job, w, h, 0, job.kv.length(h));
    }
}

void work(AttentionJob &job, const Team &team) {
    AttentionScratch w = job.worker(team.worker);
    if (job.keeps && job.kv.heads % team.n == 0) return work_by_heads(job, w, team);
    if (job.scores != nullptr && !job.keeps) {
        pack_queries(job, team);
        team.barrier();
    }
    for (int64_t t; (t = job.next_task.fetch_add(1, std::memory_order_relaxed)) < job.n_tasks;) {
        if (job.keeps) job.keep_at(w, job.tasks()[t].head);
        run_task(job, w, job.tasks()[t]);
    }
    if (job.n_merges != 0) {
        team.barrier();
        for (int64_t t; (t = job.next_merge.fetch_add(1, std::memory_order_relaxed)) < job.n_merges;)
            run_merge(job, w, job.merges()[t]);
    }
    if (job.scores != nullptr) {
        team.barrier();
        reduce_scores(job, w);
    }
}

} // namespace

AttentionScratch AttentionJob::worker(uint32_t index) const {
    const int64_t dim = padded(kv.k.dim), v_dim = padded(kv.v.dim), wide = dim > v_dim ? dim : v_dim;
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
    return w;
}

AttentionLayout attention_layout(int64_t heads, int64_t group, int64_t m, int64_t head_dim, int64_t v_dim,
                                 int64_t contributing, bool with_scores, int64_t kept_slots, uint32_t threads,
                                 bool bf16, int64_t sequences) {
    const int64_t dim = padded(head_dim), value = padded(v_dim), wide_dim = dim > value ? dim : value;
    const int64_t rows = m * group, tiles = heads * tiles_of(rows);
    // splitting happens with few tiles only; a smaller m than planned may have them
    const int64_t parts = heads / sequences < kWantedTasks ? sequences * 2 * kWantedTasks : 0;
    const int64_t part_rows = rows < kTileRows ? rows : kTileRows;
    const auto line = [](int64_t floats) { return round_up(floats, 16); }; // whole lines of the cache
    AttentionLayout l;
    static_assert(kTileRows >= bf16_walk_tiles * bf16_rows);
    const bool wide = bf16 && heads / sequences * tiles_of(rows) >= kWantedTasks;
    l.tile_rows = wide ? wide_rows(heads, rows, threads) : tile_rows(rows);
    l.most_rows = wide ? l.tile_rows : kTileRows;
    l.chunk = wide ? kChunkSlots : kTileSlots;
    l.part_stride = line(2 * kTileRows + part_rows * value);
    l.worker_stride = line(kTileRows * dim + dim * kTileSlots + kTileSlots * wide_dim +
                           kTileRows * kTileSlots + l.most_rows * value + 2 * kTileSlots + 2 * l.most_rows) +
                      line(((l.most_rows + kTileSlots + l.chunk) * bf16_padded(head_dim) + l.chunk * value +
                            kTileRows * kTileSlots) /
                           2);
    l.tasks = 0;
    l.merges = line((tiles + parts) * static_cast<int64_t>(sizeof(AttentionTask)) / 4);
    l.parts = l.merges + line((tiles + 1) * static_cast<int64_t>(sizeof(AttentionMerge)) / 4);
    l.queries = l.parts + parts * l.part_stride;
    l.factors = l.queries + (with_scores ? heads * group * contributing * dim : 0);
    l.kept = l.factors + line(with_scores ? heads * group * contributing * 2 : 0);
    l.kept_tiles = line(ceil_div(kept_slots, kTileSlots) * group);
    l.kept_stride = l.kept_tiles * kTileSlots;
    l.kept_max = l.kept + heads * l.kept_stride;
    l.workers = l.kept_max + heads * l.kept_tiles;
    l.total = l.workers + threads * l.worker_stride;
    return l;
}

keel_status run_attention(keel_ctx *ctx, AttentionJob &job) noexcept {
    int64_t longest = 0;
    for (int64_t h = 0; h < job.kv.heads && job.keeps; ++h)
        longest = job.kv.length(h) > longest ? job.kv.length(h) : longest;
    job.layout =
        attention_layout(job.kv.heads, job.group, job.m, job.kv.k.dim, job.kv.v.dim, job.contributing,
                         job.scores != nullptr, longest, ctx->threads, job.bf16 != nullptr, job.sequences());
    job.base = reinterpret_cast<float *>(scratch(ctx, static_cast<uint64_t>(job.layout.total) * 4));
    if (job.base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    if (job.logits)
        job.n_tasks = job.n_merges = 0; // no normalizers
    else
        make_tasks(job);
    uint64_t slots = 0;
    for (int64_t h = 0; h < job.kv.heads; ++h)
        slots += static_cast<uint64_t>(job.kv.length(h) > 0 ? job.kv.length(h) : 0);
    const uint64_t flops =
        slots * static_cast<uint64_t>(job.rows()) * 2 * static_cast<uint64_t>(job.kv.k.dim + job.kv.v.dim);
    return parallel(ctx, workers_for(ctx, 0, flops), [&job](const Team &team) { work(job, team); });
}

} // namespace keel_cpu

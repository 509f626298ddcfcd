#include "attention_scores.hpp"

namespace keel_cpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
    return b == 0 ? 0 : (a + b - 1) / b; // none of nothing: an op may be planned for no queries at all
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
    // As a sequence alone has it. What is kept for scores stays with one worker: not split.
    const int64_t n =
        job.scoring == Scoring::several ? 1 : parts_of(job.kv.heads / job.sequences(), tiles, end);
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

void reduce_scores(AttentionJob &job, AttentionScratch &w) {
    int64_t longest = 0;
    for (int64_t h = 0; h < job.kv.heads; ++h)
        longest = job.kv.length(h) > longest ? job.kv.length(h) : longest;
    // What the tasks left is quickly reduced: in larger pieces.
    const int64_t piece = job.scoring == Scoring::logits ? kTileSlots : 16 * kTileSlots,
                  pieces = ceil_div(longest, piece);
    for (int64_t t; (t = job.next_tile.fetch_add(1, std::memory_order_relaxed)) < pieces * job.kv.heads;) {
        const int64_t head = t / pieces, first = t % pieces * piece, left = job.kv.length(head) - first;
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

// A head at a time, with its scores: what is kept of it stays near, and nobody waits for anybody. The parts are the same, and so
// are the results.
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
    if (job.scoring == Scoring::one && job.kv.heads % team.n == 0) return work_by_heads(job, w, team);
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
        for (int64_t t; (t = job.next_merge.fetch_add(1, std::memory_order_relaxed)) < job.n_merges;)
            run_merge(job, w, job.merges()[t]);
    }
    if (job.scoring != Scoring::none) {
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
    w.kept16 = nullptr;
    return w;
}

namespace {

int64_t line(int64_t floats) { // whole lines of the cache
    return round_up(floats, 16);
}

// Rows of a task of those that keep their softmax: as many as the caches hold of it, and in f32, where rows have no neighbours to
// stay with, no more than leave a few tasks to share out.
int64_t keeping_rows(const AttentionSize &size, int64_t usual) {
    const int64_t least = size.in_bf16 ? kTileRows : kKeptRows, rows = size.m * size.group,
                  row_bytes = round_up(size.slots, kTileSlots) * (size.in_bf16 ? 2 : 4),
                  counted = size.contributing * size.group < usual ? size.contributing * size.group : usual;
    int64_t most = usual;
    if (counted * row_bytes > kKeptBytes) most = kKeptBytes / row_bytes / least * least;
    const int64_t fair = round_up(ceil_div(size.heads * rows, kWantedTasks / 2), least);
    if (!size.in_bf16 && fair < most) most = fair;
    return most > least ? most : least < usual ? least : usual;
}

// Room for what Scoring::several needs. A worker's softmax: of the rows that count, or of as many as a task has.
void lay_out_sums(AttentionLayout &l, const AttentionSize &size) {
    const int64_t rows = size.m * size.group;
    l.keep_step = size.in_bf16 ? size.bf16_step : rows < l.tile_rows ? rows : l.tile_rows;
    l.keep_tiles = ceil_div(size.slots, kTileSlots);
    const int64_t row_bytes = l.keep_tiles * kTileSlots * (size.in_bf16 ? 2 : 4),
                  counted = ceil_div(size.contributing * size.group, l.keep_step) + 1;
    const auto bytes = [&](int64_t of_task) {
        const int64_t steps = ceil_div(of_task, l.keep_step);
        return (steps < counted ? steps : counted) * l.keep_step * row_bytes;
    };
    // of fewer slots a task may keep more rows
    const int64_t kept = bytes(l.tile_rows), fewer = bytes(l.most_rows),
                  held = kKeptBytes + l.keep_step * row_bytes, most = fewer < held ? fewer : held;
    l.keep_floats = line((kept > most ? kept : most) / 4);
    l.keep_stride = l.keep_floats + line(l.keep_floats * (size.in_bf16 ? 2 : 1) / kTileSlots);
    l.worker_stride += l.keep_stride;
    l.sum_stride = l.keep_tiles * kTileSlots;
    l.sums = l.total;
    l.turns = l.sums + size.sums * l.sum_stride;
    l.total = l.turns + line(size.heads);
}

} // namespace

AttentionLayout attention_layout(const AttentionSize &size) {
    const int64_t heads = size.heads, group = size.group, m = size.m;
    const int64_t dim = padded(size.head_dim), value = padded(size.v_dim),
                  wide_dim = dim > value ? dim : value;
    const int64_t rows = m * group, tiles = heads * tiles_of(rows);
    // splitting happens with few tiles only; a smaller m than planned may have them
    const int64_t parts = heads / size.sequences < kWantedTasks ? size.sequences * 2 * kWantedTasks : 0;
    const int64_t part_rows = rows < kTileRows ? rows : kTileRows;
    const bool several = size.scoring == Scoring::several;
    AttentionLayout l = {};
    static_assert(kTileRows >= bf16_walk_tiles * bf16_rows);
    const bool wide = size.bf16_step != 0 && heads / size.sequences * tiles_of(rows) >= kWantedTasks;
    l.tile_rows = wide ? wide_rows(heads, rows, size.threads) : tile_rows(rows);
    l.most_rows = l.tile_rows > kTileRows ? l.tile_rows : kTileRows;
    if (several) l.tile_rows = keeping_rows(size, l.tile_rows);
    l.chunk = wide ? kChunkSlots : kTileSlots;
    l.part_stride = line(2 * kTileRows + part_rows * value);
    l.worker_stride = line(kTileRows * dim + dim * kTileSlots + kTileSlots * wide_dim +
                           kTileRows * kTileSlots + l.most_rows * value + 2 * kTileSlots + 2 * l.most_rows) +
                      line(((l.most_rows + kTileSlots + l.chunk) * bf16_padded(size.head_dim) +
                            l.chunk * value + kTileRows * kTileSlots) /
                           2);
    const int64_t tasks = heads * (ceil_div(rows, l.tile_rows) + 1);
    const bool with_scores = size.scoring != Scoring::none;
    l.tasks = 0;
    l.merges =
        line(((tasks > tiles ? tasks : tiles) + parts) * static_cast<int64_t>(sizeof(AttentionTask)) / 4);
    l.parts = l.merges + line((tiles + 1) * static_cast<int64_t>(sizeof(AttentionMerge)) / 4);
    l.queries = l.parts + parts * l.part_stride;
    l.factors = l.queries + (size.scoring == Scoring::logits ? heads * group * size.contributing * dim : 0);
    l.kept = l.factors + line(with_scores ? heads * group * size.contributing * 2 : 0);
    const int64_t kept_slots = size.scoring == Scoring::one ? size.slots : 0;
    l.kept_tiles = line(ceil_div(kept_slots, kTileSlots) * group);
    l.kept_stride = l.kept_tiles * kTileSlots;
    l.kept_max = l.kept + heads * l.kept_stride;
    l.total = l.kept_max + heads * l.kept_tiles;
    if (several) lay_out_sums(l, size);
    l.workers = l.total;
    l.total += size.threads * l.worker_stride;
    return l;
}

int64_t score_sums(const keel_scores &scores, int64_t heads, int64_t group) {
    return sums_of_heads(scores) ? heads : heads * group;
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
    if (job.scoring == Scoring::several) size.sums = score_sums(*job.scores, job.kv.heads, job.group);
    job.layout = attention_layout(size);
    job.base = reinterpret_cast<float *>(scratch(ctx, static_cast<uint64_t>(job.layout.total) * 4));
    if (job.base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    if (job.scoring == Scoring::logits)
        job.n_tasks = job.n_merges = 0; // no normalizers
    else
        make_tasks(job);
    if (job.scoring == Scoring::several) begin_sums(job);
    uint64_t slots = 0;
    for (int64_t h = 0; h < job.kv.heads; ++h)
        slots += static_cast<uint64_t>(job.kv.length(h) > 0 ? job.kv.length(h) : 0);
    const uint64_t flops =
        slots * static_cast<uint64_t>(job.rows()) * 2 * static_cast<uint64_t>(job.kv.k.dim + job.kv.v.dim);
    return parallel(ctx, workers_for(ctx, 0, flops), [&job](const Team &team) { work(job, team); });
}

} // namespace keel_cpu

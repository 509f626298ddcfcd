// Attention that multiplies in bf16. A chunk of slots is rounded to bf16 once for all queries of a
// task. Then the queries are processed a few rows at a time, so that their logits and sums stay in
// the L1 cache.
#include "cpu/attention/scores.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

constexpr int64_t kChunkTiles = kChunkSlots / kTileSlots;

// A range of slots whose keys and values are in scratch memory, rounded to bf16.
struct Chunk {
    int64_t first, n;
    // true: the job has few query rows, so keys stay in rows and are not packed into panels
    bool few;
    // true: the model's window hides all slots of the tile from all query rows of the task
    bool hidden[kChunkTiles];
    // 1: all values of the tile are finite; 0: some are not; -1: not checked yet
    int8_t finite[kChunkTiles];
};

// The choice between the two kinds of products depends on the number of rows of the job, because
// each kind rounds sums differently. It does not depend on the number of rows of a task. The last
// task's number of rows depends on the number of workers, but the result must not depend on it.
bool is_few(const AttentionJob &job) { return job.rows() <= job.bf16->few_rows; }

Ahead behind(const Ahead &ahead, int64_t rows) {
    return {ahead.data == nullptr ? nullptr : ahead.data + rows * ahead.row_bytes, ahead.row_bytes};
}

// Loads the keys of n slots as rows. Zeroes the rows from n up to the next whole panel of 16 rows.
void load_keys(const AttentionJob &job, int64_t head, int64_t first, int64_t n, uint16_t *to,
               const Ahead &ahead) {
    const KvSide &k = job.kv.k;
    const int64_t depth = bf16_padded(k.dim);
    for_stretches(job.kv, k, head, first, n, [&](const uint8_t *row, int64_t rows, int64_t offset) {
        job.bf16->load_keys[k.type](row, k.row_stride, rows, k.dim, to + offset * depth,
                                    behind(ahead, offset));
    });
    memset(to + n * depth, 0, static_cast<size_t>((round_up(n, 16) - n) * depth) * 2);
}

void load_values(const AttentionJob &job, int64_t head, int64_t first, int64_t n, uint16_t *to,
                 const Ahead &ahead) {
    const KvSide &v = job.kv.v;
    for_stretches(job.kv, v, head, first, n, [&](const uint8_t *row, int64_t rows, int64_t offset) {
        job.bf16->load_values[v.type](row, v.row_stride, offset, rows, v.dim, offset + rows == n,
                                      to, behind(ahead, offset));
    });
}

// Return the addresses of the tile's packed keys and values in scratch memory.
uint16_t *keys_of(const AttentionJob &job, const AttentionScratch &w, int64_t tile) {
    return w.panels16 + tile * kTileSlots * bf16_padded(job.head_dim());
}
uint16_t *values_of(const AttentionJob &job, const AttentionScratch &w, int64_t tile) {
    return w.v16 + tile * kTileSlots * padded(job.kv.v.dim);
}

// Returns the number of slots of a tile that are loaded. `first` is the first slot of the tile.
// This can be more slots than the task needs, so that the result does not depend on how the work is
// divided into tasks.
int64_t loaded(const AttentionJob &job, int64_t head, int64_t first) {
    const int64_t left = job.kv.length(head) - first;
    return left < kTileSlots ? left : kTileSlots;
}

void load_chunk(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
                Chunk &chunk) {
    for (int64_t at = 0; at < chunk.n; at += kTileSlots) {
        const int64_t tile = at / kTileSlots, first = chunk.first + at,
                      n = loaded(job, task.head, first),
                      next = first + 2 * kTileSlots <= task.end ? first + kTileSlots : -1;
        chunk.finite[tile] = -1;
        chunk.hidden[tile] = out_of_window(job, task, first, n);
        if (chunk.hidden[tile]) continue;
        load_keys(job, task.head, first, n, w.k16, ahead_of(job, job.kv.k, task.head, next, n));
        if (!chunk.few)
            job.bf16->turn_keys(w.k16, round_up(n, 16), job.head_dim(), keys_of(job, w, tile));
        if (job.out != nullptr)
            load_values(job, task.head, first, n, values_of(job, w, tile),
                        ahead_of(job, job.kv.v, task.head, next, n));
    }
}

// Returns true if all values of the tile are finite. `n` is the number of loaded slots.
bool values_finite(const AttentionJob &job, const AttentionScratch &w, Chunk &chunk, int64_t tile,
                   int64_t n) {
    int8_t &known = chunk.finite[tile];
    const uint16_t *values = values_of(job, w, tile);
    for (int64_t d = 0; known != 0 && d < job.kv.v.dim; d += 16)
        known = job.bf16->finite(values + d * kTileSlots, bf16_padded(n) * 16);
    return known != 0;
}

// Computes attention of `task.rows` query rows over one tile of slots. For each of the first n
// slots of the tile, at least one of these rows sees the slot.
void walk_tile(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
               Chunk &chunk, int64_t tile, int64_t n, float *lanes) {
    const Bf16AttentionKernels &kernels = *job.bf16;
    const int64_t depth = bf16_padded(job.head_dim()), stride = padded(job.kv.v.dim),
                  columns = round_up(n, 16), first = chunk.first + tile * kTileSlots;
    if (chunk.few)
        kernels.dots_few(w.q16, task.rows, w.k16, columns, job.head_dim(), w.s, kTileSlots);
    else
        kernels.multiply({w.q16, task.rows, depth, depth, keys_of(job, w, tile), 16 * depth,
                          columns, w.s, kTileSlots, false});
    for (int64_t r = 0; job.cap != 0 && r < task.rows; ++r)
        job.kernels->softcap(w.s + r * kTileSlots, n, job.cap);
    const bool masked = mask_tile(job, w, task, first, n, nullptr);
    const int64_t values = loaded(job, task.head, first);
    const bool apart =
        job.out != nullptr && (masked || n < values) && !values_finite(job, w, chunk, tile, values);
    const SoftmaxState state = {w.max, w.sum, job.out != nullptr ? w.acc : nullptr, stride, stride};
    const int64_t place = (first / kTileSlots) * job.layout.keep_step;
    uint16_t *p = w.kept16 != nullptr ? w.kept16 + place * kTileSlots : w.p16;
    kernels.softmax(w.s, kTileSlots, task.rows, n, state, lanes, apart || w.kept != nullptr, p);
    if (w.kept16 != nullptr) memcpy(w.kept_max + place, w.max, static_cast<size_t>(task.rows) * 4);
    if (apart)
        mix_seen(job, w, task.head, task.rows, first, n);
    else if (job.out != nullptr)
        kernels.multiply({p, task.rows, kTileSlots, bf16_padded(n), values_of(job, w, tile),
                          16 * kTileSlots, stride, w.acc, stride, true});
}

// Counts the tiles at the start of the chunk that kernels.walk can process. Two conditions: all
// query rows of the task see all slots of the tile; and the task has no soft cap, no window and no
// f32 softmax that is kept for scores (AttentionScratch::kept).
int64_t whole_tiles(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
                    const Chunk &chunk) {
    if (job.bf16->walk == nullptr || task.rows < job.bf16->walk_rows || chunk.few) return 0;
    if (job.out == nullptr || w.kept != nullptr || job.windowed || job.cap != 0) return 0;
    const int64_t limit = job.limit(task.head, task.row / job.group) - chunk.first,
                  seen = limit < chunk.n ? limit : chunk.n;
    return seen < 0 ? 0 : seen / kTileSlots;
}

// Computes attention of `task.rows` query rows over the slots of a chunk.
void walk_chunk(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
                Chunk &chunk) {
    const int64_t limit =
                      job.limit(task.head, (task.row + task.rows - 1) / job.group) - chunk.first,
                  end = limit < chunk.n ? limit : chunk.n, stride = padded(job.kv.v.dim);
    if (end <= 0) return;
    alignas(64) float lanes[bf16_rows * 16] = {};
    job.bf16->begin(task.rows);
    const int64_t whole = whole_tiles(job, w, task, chunk),
                  place = chunk.first / kTileSlots * job.layout.keep_step;
    if (whole != 0)
        job.bf16->walk({w.q16,
                        task.rows,
                        job.head_dim(),
                        stride,
                        keys_of(job, w, 0),
                        values_of(job, w, 0),
                        whole,
                        {w.max, w.sum, w.acc, stride, stride},
                        lanes,
                        w.s,
                        w.kept16 != nullptr ? w.kept16 + place * kTileSlots : w.p16,
                        w.kept16 != nullptr ? w.kept_max + place : nullptr});
    for (int64_t at = whole * kTileSlots; at < end; at += kTileSlots)
        if (!chunk.hidden[at / kTileSlots])
            walk_tile(job, w, task, chunk, at / kTileSlots,
                      end - at < kTileSlots ? end - at : kTileSlots, lanes);
        else if (w.kept16 != nullptr)
            skip_kept(w, place + at / kTileSlots * job.layout.keep_step);
    job.bf16->end();
    job.bf16->add_lanes(lanes, task.rows, w.sum);
}

// Rounds the queries of a task to bf16 and packs them into w.q16.
void pack_queries(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task) {
    const auto pack = is_few(job) ? job.bf16->pack_few : job.bf16->pack_rows;
    const int64_t dim = job.head_dim();
    for (int64_t r = 0; r < task.rows; r += kTileRows) {
        const int64_t rows = task.rows - r < kTileRows ? task.rows - r : kTileRows;
        load_queries(job, w, task, r, rows);
        pack(w.q, padded(dim), rows, dim, w.q16 + r * bf16_padded(dim));
    }
}

} // namespace

const Bf16AttentionKernels *bf16_of(const keel_ctx *ctx, keel_dtype k, keel_dtype v,
                                    uint32_t block_slots) {
    const Bf16AttentionKernels *bf16 = ctx->attention_bf16;
    // a block of slots must hold at least one pair of slots
    if (bf16 == nullptr || block_slots < 2) return nullptr;
    const int keys = row_type(k), values = row_type(v);
    return bf16->load_keys[keys] != nullptr && bf16->load_values[values] != nullptr ? bf16
                                                                                    : nullptr;
}

void walk_bf16(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task) {
    const int64_t step = job.bf16->rows_at_once, depth = bf16_padded(job.head_dim());
    // If all rows fit into one step, a chunk is a single tile. Then each tile is used while it is
    // in the L1 cache.
    const int64_t length = job.rows() > step && w.kept == nullptr ? job.layout.chunk : kTileSlots;
    pack_queries(job, w, task);
    for (int64_t first = task.begin; first < task.end; first += length) {
        Chunk chunk = {
            first, task.end - first < length ? task.end - first : length, is_few(job), {}, {}};
        load_chunk(job, w, task, chunk);
        for (int64_t r = 0; r < task.rows; r += step) {
            AttentionTask some = task;
            some.row += r;
            some.rows = task.rows - r < step ? task.rows - r : step;
            AttentionScratch at = w;
            at.q16 += r * depth, at.max += r, at.sum += r, at.acc += r * padded(job.kv.v.dim);
            // A kept softmax has its own place for each tile.
            if (w.kept != nullptr) at.s = w.kept + first * task.rows + r * kTileSlots;
            if (w.kept16 != nullptr) keep_step(job, task, r, at);
            walk_chunk(job, at, some, chunk);
        }
        if (w.kept != nullptr && chunk.hidden[0])
            skip_kept(w, first / kTileSlots * task.rows);
        else if (w.kept != nullptr)
            memcpy(w.kept_max + first / kTileSlots * task.rows, w.max,
                   static_cast<size_t>(task.rows) * 4);
    }
}

} // namespace keel_cpu

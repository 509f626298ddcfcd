// Attention over one layer's cache, in one parallel region. The attention and attention_scores ops
// share it. Tiles of query rows loop over the slots with an online softmax, kTileSlots slots at a
// time. If the cache is long and the rows are few, the slots are split into parts, which are merged
// afterwards. Scores are computed from the results of that loop (attention/scores.hpp). A row is
// one query of one head: row r of a KV head is query r / group of head r % group of the group. So K
// and V are read once for all heads of the group.
#pragma once

#include "cpu/kernels/tables.hpp"
#include "cpu/ops/kv_access.hpp"

#include <atomic>

namespace keel_cpu {

constexpr int64_t kTileRows = 96; // the most query rows that share a pass over the slots
// The same with products in bf16. More rows share the cost of packing keys and values.
constexpr int64_t kWideRows = 960;
constexpr int64_t kChunkSlots = 512; // slots packed at a time for kWideRows rows
// tiles are narrow enough that each worker gets at least this many tasks
constexpr int64_t kTasksEach = 8;
constexpr int64_t kWantedTasks = 32; // if there are fewer tasks than this, the slots are split too
constexpr int64_t kSplitSlots = 512; // least number of slots in a part
// The most bytes of softmax that a worker keeps for one task, small enough to stay in its cache. If
// the cache is very long, a task has fewer rows, but at least kTileRows in bf16 and kKeptRows in
// f32.
constexpr int64_t kKeptBytes = 4 << 20;
constexpr int64_t kKeptRows = 24;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
    // an op may be planned for no queries at all: a and b are 0
    return b == 0 ? 0 : (a + b - 1) / b;
}
constexpr int64_t tiles_of(int64_t rows) { return ceil_div(rows, kTileRows); }

struct AttentionTask {
    int64_t head, row, rows, begin, end;
    // place of the partial results; -1: the task handles all slots and writes the result
    int64_t part;
};

struct AttentionMerge { // the parts of one tile, to be merged
    int64_t head, row, rows, first_part, parts;
};

// Scratch memory of one worker.
struct AttentionScratch {
    float *q, *k, *rows, *s, *acc, *max, *sum;
    // bf16: queries, rows of keys, keys of a chunk in panels, values in panels, probabilities
    uint16_t *q16, *k16, *panels16, *v16, *p16;
    // The place where a task's softmax is kept for scores; NULL: it is not kept
    // (attention/scores.hpp).
    float *kept;
    uint16_t *kept16;
    float *kept_max;
};

// How scores are computed.
enum class Scoring {
    none,
    logits,  // from logits: keys are multiplied only for the scores
    one,     // one query: its whole softmax is kept
    several, // several queries: each task adds its kept softmax to sums
};

// The sizes that determine the layout.
struct AttentionSize {
    int64_t heads, group, m, head_dim, v_dim; // heads: KV heads of all sequences together
    uint32_t threads;
    // Bf16AttentionKernels::rows_at_once if products may be in bf16, otherwise 0
    int64_t bf16_step = 0;
    bool in_bf16 = false; // products are in bf16
    int64_t sequences = 1;
    Scoring scoring = Scoring::none;
    // with scores: the number of contributing queries, which are the last ones
    int64_t contributing = 0;
    int64_t slots = 0; // slots of the longest head whose softmax is kept
    int64_t sums = 0;  // Scoring::several: number of rows of sums
};

// Offsets of all areas in the context's scratch memory, in floats.
struct AttentionLayout {
    // most_rows: the rows for which a worker has room
    int64_t tile_rows, most_rows, chunk, part_stride, worker_stride;
    int64_t tasks, merges, parts, queries, factors, kept, kept_stride, kept_max, kept_tiles,
        workers, total;
    int64_t sums, sum_stride, turns; // used by Scoring::several
    // keep_step: rows of a step. keep_tiles: tiles of slots. keep_floats: a worker's room for
    // softmax. keep_stride: this room plus the room for the maxima.
    int64_t keep_step, keep_tiles, keep_floats, keep_stride;
};

struct AttentionJob {
    const AttentionKernels *kernels = nullptr;
    const Bf16AttentionKernels *bf16 = nullptr; // NULL: products in f32
    KvAccess kv;
    // queries [m, heads, head_dim]; strides are in bytes
    const uint8_t *q = nullptr;
    int64_t q_token = 0, q_head = 0;
    int q_type = 0;
    int64_t m = 0, group = 1;
    // result [m, heads, v_dim]; NULL: only the normalizers are computed
    uint8_t *out = nullptr;
    int64_t out_token = 0, out_head = 0;
    int out_type = 0;
    float *lse = nullptr;
    int64_t lse_stride = 0;

    float scale = 1, cap = 0; // cap 0: no soft cap
    bool causal = false;
    bool windowed = false;
    int64_t window = 0;
    const int32_t *q_positions = nullptr;
    // in elements, from token to token and from head to head
    int64_t q_position_stride = 0, q_position_head = 0;

    // scores
    const keel_scores *scores = nullptr;
    Scoring scoring = Scoring::none;
    const int32_t *ranges = nullptr; // [n_ranges][2]; slots outside are not seen
    int64_t n_ranges = 0, range_stride = 0;
    const float *weights = nullptr;
    int64_t weight_stride = 0;
    int64_t contributing = 0; // the number of contributing queries, which are the last ones

    // set by run_attention
    AttentionLayout layout = {};
    float *base = nullptr; // the scratch memory
    int64_t n_tasks = 0, n_merges = 0;
    std::atomic<int64_t> next_task{0}, next_merge{0}, next_tile{0};

    int64_t head_dim() const { return kv.k.dim; }
    int64_t rows() const { return m * group; }
    // With several sequences (KvAccess::seats; m is 1), the first dimension of q and out is the
    // sequence. token(): the index of query i of a KV head in that dimension. own_head(): the KV
    // head's number within its sequence.
    int64_t token(int64_t head, int64_t i) const {
        return kv.seats != nullptr ? head / kv.seat_heads : i;
    }
    int64_t own_head(int64_t head) const {
        return kv.seats != nullptr ? head % kv.seat_heads : head;
    }
    int64_t sequences() const { return kv.seats != nullptr ? kv.heads / kv.seat_heads : 1; }
    int64_t q_position(int64_t head, int64_t i) const {
        return q_positions[token(head, i) * q_position_stride + own_head(head) * q_position_head];
    }
    // Query i of a head sees the slots below this number. Ranges and the window hide more slots.
    int64_t limit(int64_t head, int64_t i) const {
        const int64_t length = kv.length(head);
        const int64_t n = causal ? length - m + i + 1 : length;
        return n < 0 ? 0 : n < length ? n : length;
    }
    bool products_in_bf16() const { // true for all tasks or for none
        return ranges == nullptr && bf16 != nullptr && rows() >= bf16->least_rows;
    }
    AttentionScratch worker(uint32_t index) const;
    AttentionTask *tasks() const { return reinterpret_cast<AttentionTask *>(base + layout.tasks); }
    AttentionMerge *merges() const {
        return reinterpret_cast<AttentionMerge *>(base + layout.merges);
    }
    float *part(int64_t index) const { return base + layout.parts + index * layout.part_stride; }
    // Scoring::logits: the contributing queries, scaled, [head][group][contributing][padded
    // head_dim].
    float *packed(int64_t head, int64_t row) const {
        return base + layout.queries + (head * group * contributing + row) * padded(kv.k.dim);
    }
    // Max and 1 / sum of the contributing queries, [head][group][contributing].
    float *factors(int64_t head, int64_t row) const {
        return base + layout.factors + (head * group * contributing + row) * 2;
    }
    // Scoring::one: sets the place for a head's softmax. `place` is the worker's number if it
    // handles whole heads, otherwise the head's number.
    void keep_at(AttentionScratch &w, int64_t place) const {
        w.kept = base + layout.kept + place * layout.kept_stride;
        w.kept_max = base + layout.kept_max + place * layout.kept_tiles;
    }
};

// The layout is also large enough for fewer queries and slots (attention/layout.cpp).
AttentionLayout attention_layout(const AttentionSize &size);
// The kernels that multiply such a cache in bf16, or NULL if products are in f32.
const Bf16AttentionKernels *bf16_of(const keel_ctx *ctx, keel_dtype k, keel_dtype v,
                                    uint32_t block_slots);
// How `m` queries are scored if the slots are not limited to ranges.
inline Scoring scoring_of(int64_t m, int64_t group) {
    return m == 1 && group <= kTileRows ? Scoring::one : Scoring::several;
}
// Rows of sums for Scoring::several: one per query head, or one per KV head if its query heads are
// simply added.
int64_t score_sums(const keel_scores &scores, int64_t heads, int64_t group);

// Runs all passes. The caller has checked the job's arguments.
keel_status run_attention(keel_ctx *ctx, AttentionJob &job) noexcept;

// ---- shared by attention and attention_scores (ops/attention.cpp) ----

inline bool is_activation(const keel_tensor *t) {
    return t->dtype == KEEL_DTYPE_F32 || t->dtype == KEEL_DTYPE_F16 || t->dtype == KEEL_DTYPE_BF16;
}
keel_status check_scores(keel_ctx *ctx, const keel_scores *scores, const char *op) noexcept;
int64_t contributing_queries(const keel_scores *scores, int64_t m);
// Sets the sizes that depend on scores. `slots`: length of the longest head.
void plan_scores(AttentionSize &size, const keel_scores &scores, Scoring scoring, uint32_t slots);
void set_queries(AttentionJob &job, const keel_tensor *q, int64_t kv_heads);
// Sets the model's attention window. q_positions: i32 [m] or [m, kv_heads].
void set_window(AttentionJob &job, const keel_tensor *q_positions, int64_t window);

// ---- parts of a pass (attention/tiles.cpp) ----

// Calls f(address of the first row, number of rows, offset from `first`) for each run of slots that
// is in one block.
template <class F>
void for_stretches(const KvAccess &kv, const KvSide &side, int64_t head, int64_t first, int64_t n,
                   F &&f) {
    const int32_t *blocks = kv.blocks_of(head);
    for (int64_t done = 0; done < n;) {
        const int64_t slot = first + done, room = kv.block_slots - (slot & (kv.block_slots - 1));
        const int64_t rows = n - done < room ? n - done : room;
        f(kv.row(side, blocks, slot), rows, done);
        done += rows;
    }
}
// The memory to prefetch while n slots are processed: the slots from `next` on, if they are in one
// block. Nothing if next is -1.
Ahead ahead_of(const AttentionJob &job, const KvSide &side, int64_t head, int64_t next, int64_t n);
// Masks the logits of a tile. Returns true if some row does not see all n slots.
bool mask_tile(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
               int64_t first, int64_t n, const bool *inside);
// acc += s * V, for the case that some rows do not see all n slots and some values are not finite.
// Each row skips its hidden slots, because 0 * infinity would give NaN.
void mix_seen(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t rows,
              int64_t first, int64_t n);
// Loads the queries of `rows` rows of a task, from row `first` on, scaled, into w.q.
void load_queries(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
                  int64_t first, int64_t rows);
// True if the model's window hides all these slots from all rows of the task, because the keys are
// too old.
bool out_of_window(const AttentionJob &job, const AttentionTask &task, int64_t first, int64_t n);
// Runs a task with products in bf16 (attention/bf16.cpp).
void walk_bf16(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);

// s[rows][kTileSlots] = logits of `rows` packed queries with slots first..first+n-1 of a head,
// soft-capped.
void tile_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, const float *q,
                 int64_t rows, int64_t first, int64_t n);
// Sets inside[j] if slot first + j is in the ranges, for n slots. Returns false if none is.
bool slots_in_ranges(const AttentionJob &job, int64_t first, int64_t n, bool *inside);
// Writes -inf to the slots that query i of a head does not see. Returns true if there are such
// slots.
bool mask_row(const AttentionJob &job, int64_t head, int64_t i, int64_t first, int64_t n,
              const bool *inside, float *s);
void run_task(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);
void run_merge(const AttentionJob &job, const AttentionScratch &w, const AttentionMerge &merge);

} // namespace keel_cpu

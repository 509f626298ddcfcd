// Attention over the cache of one layer, in one parallel region. The ops `attention` and
// `attention_scores` share this code.
//
// A row is one query of one query head. `group` is the number of query heads of a KV head. Row r of
// a KV head has the index r / group of the query, and the index r % group of the query head within
// the group. So K and V are read once for all query heads of a KV head. A tile of rows loops over
// the slots with an online softmax, kTileSlots slots at a time. If the cache is long and the rows
// are few, the slots are split into parts, and the results of the parts are merged. Scores are
// computed from the results of this loop (attention/scores.hpp).
#pragma once

#include "cpu/kernels/tables.hpp"
#include "cpu/ops/kv_access.hpp"

#include <atomic>

namespace keel_cpu {

// largest number of query rows that share one pass over the slots
constexpr int64_t kTileRows = 96;
// Like kTileRows, for products in bf16. This number is larger, because then more rows share the
// cost of packing keys and values.
constexpr int64_t kWideRows = 960;
constexpr int64_t kChunkSlots = 512; // number of slots that are packed at a time (bf16)
// For products in bf16: if a worker would get fewer tasks than this, tiles have fewer than
// kWideRows rows.
constexpr int64_t kTasksEach = 8;
constexpr int64_t kWantedTasks = 32; // if there are fewer tasks, slots are split into parts
constexpr int64_t kSplitSlots = 512; // smallest number of slots in a part
// Largest number of bytes of softmax that a worker keeps for one task. This amount fits the
// worker's cache. If the cached sequence is very long, a task has fewer rows, but at least
// kTileRows in bf16 and kKeptRows in f32.
constexpr int64_t kKeptBytes = 4 << 20;
constexpr int64_t kKeptRows = 24;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
    // An op can be planned for zero queries. Then a and b are 0.
    return b == 0 ? 0 : (a + b - 1) / b;
}
constexpr int64_t tiles_of(int64_t rows) { return ceil_div(rows, kTileRows); }

struct AttentionTask {
    int64_t head, row, rows, begin, end;
    // Index of the partial result that the task writes. -1: the task handles all slots and writes
    // the final result.
    int64_t part;
};

struct AttentionMerge { // the partial results of one tile of rows, to be merged
    int64_t head, row, rows, first_part, parts;
};

// Addresses in the scratch memory of one worker.
struct AttentionScratch {
    float *q, *k, *rows, *s, *acc, *max, *sum;
    // For products in bf16: queries, rows of keys, the chunk's keys in panels, values in panels,
    // probabilities.
    uint16_t *q16, *k16, *panels16, *v16, *p16;
    // Place where the task's softmax is kept for scores (attention/scores.hpp). NULL: it is not
    // kept.
    float *kept;
    uint16_t *kept16;
    float *kept_max;
};

// How the scores of attention are computed.
enum class Scoring {
    none,
    logits,  // scores are not normalized: the keys are multiplied only for the scores
    one,     // there is one query: its whole softmax is kept
    several, // there are several queries: each task adds its kept softmax to the sums
};

// The sizes that determine the layout of the scratch memory.
struct AttentionSize {
    // heads: number of KV heads of all sequences together
    int64_t heads, group, m, head_dim, v_dim;
    uint32_t threads;
    // Bf16AttentionKernels::rows_at_once if products can be in bf16, otherwise 0.
    int64_t bf16_step = 0;
    bool in_bf16 = false; // true: products are in bf16
    int64_t sequences = 1;
    Scoring scoring = Scoring::none;
    // If there are scores: number of queries that contribute to them. These are the last queries.
    int64_t contributing = 0;
    int64_t slots = 0; // number of slots of the longest head whose softmax is kept
    int64_t sums = 0;  // Scoring::several: number of arrays of sums (see score_sums)
};

// Offsets of the areas in the context's scratch memory, and their strides, in floats.
struct AttentionLayout {
    // tile_rows: query rows of a task. most_rows: number of rows for which each worker has memory.
    // chunk: number of slots that are packed at a time.
    int64_t tile_rows, most_rows, chunk, part_stride, worker_stride;
    int64_t tasks, merges, parts, queries, factors, kept, kept_stride, kept_max, kept_tiles,
        workers, total;
    int64_t sums, sum_stride, turns; // only for Scoring::several
    // Only for Scoring::several. keep_step: query rows in one step. keep_tiles: number of tiles of
    // slots. keep_floats: memory of a worker for the kept softmax. keep_stride: keep_floats plus
    // the memory for the maxima.
    int64_t keep_step, keep_tiles, keep_floats, keep_stride;
};

struct AttentionJob {
    const AttentionKernels *kernels = nullptr;
    const Bf16AttentionKernels *bf16 = nullptr; // NULL: products are in f32
    KvAccess kv;
    // Queries [m, heads, head_dim]. The strides q_token and q_head are in bytes.
    const uint8_t *q = nullptr;
    int64_t q_token = 0, q_head = 0;
    int q_type = 0;
    int64_t m = 0, group = 1;
    // Result [m, heads, v_dim]. NULL: only the softmax sums are computed.
    uint8_t *out = nullptr;
    int64_t out_token = 0, out_head = 0;
    int out_type = 0;
    float *lse = nullptr;
    int64_t lse_stride = 0;

    float scale = 1, cap = 0; // cap: soft cap of the logits; 0: no soft cap
    bool causal = false;
    bool windowed = false;
    int64_t window = 0;
    const int32_t *q_positions = nullptr;
    // Distances from token to token and from head to head, in elements.
    int64_t q_position_stride = 0, q_position_head = 0;

    // The following members describe the scores.
    const keel_scores *scores = nullptr;
    Scoring scoring = Scoring::none;
    // [n_ranges][2]; queries do not see slots outside these ranges
    const int32_t *ranges = nullptr;
    int64_t n_ranges = 0, range_stride = 0;
    const float *weights = nullptr;
    int64_t weight_stride = 0;
    // number of queries that contribute to scores; these are the last queries
    int64_t contributing = 0;

    // run_attention sets the following members.
    AttentionLayout layout = {};
    float *base = nullptr; // start of the scratch memory
    int64_t n_tasks = 0, n_merges = 0;
    std::atomic<int64_t> next_task{0}, next_merge{0}, next_tile{0};

    int64_t head_dim() const { return kv.k.dim; }
    int64_t rows() const { return m * group; }
    // For a batch of sequences (KvAccess::seats is set, and m is 1), the first dimension of q and
    // out is the sequence. token() returns the index of query i of KV head `head` in this first
    // dimension. own_head() returns the number of the KV head within its sequence.
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
    // Causal limit: query i of a head sees only slots below this number. Ranges and the window can
    // hide more slots.
    int64_t limit(int64_t head, int64_t i) const {
        const int64_t length = kv.length(head);
        const int64_t n = causal ? length - m + i + 1 : length;
        return n < 0 ? 0 : n < length ? n : length;
    }
    bool products_in_bf16() const { // all tasks of a job use the same type
        return ranges == nullptr && bf16 != nullptr && rows() >= bf16->least_rows;
    }
    AttentionScratch worker(uint32_t index) const;
    AttentionTask *tasks() const { return reinterpret_cast<AttentionTask *>(base + layout.tasks); }
    AttentionMerge *merges() const {
        return reinterpret_cast<AttentionMerge *>(base + layout.merges);
    }
    float *part(int64_t index) const { return base + layout.parts + index * layout.part_stride; }
    // Address of a contributing query for Scoring::logits, scaled. The queries of all heads form an
    // array [head][group][contributing][padded head_dim].
    float *packed(int64_t head, int64_t row) const {
        return base + layout.queries + (head * group * contributing + row) * padded(kv.k.dim);
    }
    // Address of two floats of a contributing query: the max of its logits and 1 / the softmax sum.
    // The floats of all heads form an array [head][group][contributing][2].
    float *factors(int64_t head, int64_t row) const {
        return base + layout.factors + (head * group * contributing + row) * 2;
    }
    // For Scoring::one: sets w.kept and w.kept_max to the memory with index `place`. The index is
    // the worker's number if a worker handles whole heads, otherwise the head's number.
    void keep_at(AttentionScratch &w, int64_t place) const {
        w.kept = base + layout.kept + place * layout.kept_stride;
        w.kept_max = base + layout.kept_max + place * layout.kept_tiles;
    }
};

// Returns a layout for `size`. The layout is also large enough for fewer queries and slots
// (attention/layout.cpp).
AttentionLayout attention_layout(const AttentionSize &size);
// Returns the kernels for products in bf16 with a cache of these dtypes. Returns NULL if products
// are in f32.
const Bf16AttentionKernels *bf16_of(const keel_ctx *ctx, keel_dtype k, keel_dtype v,
                                    uint32_t block_slots);
// Returns how the scores of `m` queries are computed if they are normalized probabilities.
inline Scoring scoring_of(int64_t m, int64_t group) {
    return m == 1 && group <= kTileRows ? Scoring::one : Scoring::several;
}
// Number of arrays of sums for Scoring::several: one per KV head if the scores of its query heads
// are simply added, otherwise one per query head.
int64_t score_sums(const keel_scores &scores, int64_t heads, int64_t group);

// Computes attention and scores of a job. The caller has checked the job's arguments.
keel_status run_attention(keel_ctx *ctx, AttentionJob &job) noexcept;

// ---- shared by attention and attention_scores (ops/attention.cpp) ----

inline bool is_activation(const keel_tensor *t) {
    return t->dtype == KEEL_DTYPE_F32 || t->dtype == KEEL_DTYPE_F16 || t->dtype == KEEL_DTYPE_BF16;
}
keel_status check_scores(keel_ctx *ctx, const keel_scores *scores, const char *op) noexcept;
int64_t contributing_queries(const keel_scores *scores, int64_t m);
// Sets the members of `size` that depend on scores. `slots` is the length of the longest head.
void plan_scores(AttentionSize &size, const keel_scores &scores, Scoring scoring, uint32_t slots);
void set_queries(AttentionJob &job, const keel_tensor *q, int64_t kv_heads);
// Sets the model's attention window in `job`. q_positions has type i32 and shape [m] or [m,
// kv_heads].
void set_window(AttentionJob &job, const keel_tensor *q_positions, int64_t window);

// ---- parts of a pass (attention/tiles.cpp) ----

// Splits slots first..first+n-1 at the block boundaries and calls f for each piece. The arguments
// of f are the address of the piece's first row, its number of rows, and its offset from `first`.
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
// Returns the memory that a kernel prefetches while it works on n earlier slots. This memory is the
// rows of the n slots from `next` on. Returns an empty range if these rows are not in one block, or
// if `next` is -1.
Ahead ahead_of(const AttentionJob &job, const KvSide &side, int64_t head, int64_t next, int64_t n);
// Sets the logits of hidden slots of a tile to -inf. Returns true if at least one row does not see
// all n slots.
bool mask_tile(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
               int64_t first, int64_t n, const bool *inside);
// Computes acc += s * V for a tile with two properties: some rows do not see all n slots, and some
// values are not finite. Each row skips its hidden slots, because 0 * infinity would give NaN.
void mix_seen(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t rows,
              int64_t first, int64_t n);
// Loads `rows` query rows of a task into w.q, scaled. `first` is the first of these rows within the
// task.
void load_queries(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
                  int64_t first, int64_t rows);
// Returns true if the model's window hides all n slots from all rows of the task, because the slots
// are too old.
bool out_of_window(const AttentionJob &job, const AttentionTask &task, int64_t first, int64_t n);
// Runs a task with products in bf16 (attention/bf16.cpp).
void walk_bf16(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);

// Computes s[rows][kTileSlots]: the soft-capped logits of `rows` packed queries for the n slots
// from `first` on.
void tile_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, const float *q,
                 int64_t rows, int64_t first, int64_t n);
// Sets inside[j] to true if slot first + j is in the ranges of the job, for n slots. Returns false
// if no slot is in the ranges.
bool slots_in_ranges(const AttentionJob &job, int64_t first, int64_t n, bool *inside);
// Sets s[j] to -inf if query i of a head does not see slot first + j, for n slots. Returns true if
// there is such a slot.
bool mask_row(const AttentionJob &job, int64_t head, int64_t i, int64_t first, int64_t n,
              const bool *inside, float *s);
void run_task(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);
void run_merge(const AttentionJob &job, const AttentionScratch &w, const AttentionMerge &merge);

} // namespace keel_cpu

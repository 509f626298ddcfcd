// Attention over one layer's cache, as the attention and attention_scores ops share it, in one
// parallel region: tiles of query rows walk over the slots, a tile of kTileSlots at a time, with an
// online softmax; a long cache with few rows is split over its length, and the parts are merged
// afterwards. Scores are made of what that walk leaves (attention/scores.hpp). A "row" is one query
// of one head: row r of a KV head is query r / group, head r % group of the group, so that K and V
// are read once for all of them.
#pragma once

#include "cpu/kernels/tables.hpp"
#include "cpu/ops/kv_access.hpp"

#include <atomic>

namespace keel_cpu {

constexpr int64_t kTileRows = 96; // query rows that share a pass over the slots, at most
constexpr int64_t kWideRows =
    960; // the same with products in bf16: what packing keys and values costs is shared by more
constexpr int64_t kChunkSlots = 512; // slots that are packed at a time for so many rows
constexpr int64_t kTasksEach = 8;    // of a worker: no wider tiles than leave so many
constexpr int64_t kWantedTasks = 32; // fewer tasks than this: split over the length too
constexpr int64_t kSplitSlots = 512; // into parts no shorter than this
// Softmax that a worker keeps of one task: near enough to be read again soon. Of a very long cache
// a task has few rows, no fewer than kTileRows in bf16 and kKeptRows in f32.
constexpr int64_t kKeptBytes = 4 << 20;
constexpr int64_t kKeptRows = 24;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
    // none of nothing: an op may be planned for no queries at all
    return b == 0 ? 0 : (a + b - 1) / b;
}
constexpr int64_t tiles_of(int64_t rows) { return ceil_div(rows, kTileRows); }

struct AttentionTask {
    int64_t head, row, rows, begin, end;
    int64_t part; // place in the partial results; -1: the task does all slots and writes the result
};

struct AttentionMerge { // parts of one tile
    int64_t head, row, rows, first_part, parts;
};

// Scratch of one worker.
struct AttentionScratch {
    float *q, *k, *rows, *s, *acc, *max, *sum;
    // bf16: queries, rows of keys, those of a chunk turned into panels, values in panels,
    // probabilities
    uint16_t *q16, *k16, *panels16, *v16, *p16;
    // Where the softmax of a task is kept for the scores; NULL: not (attention/scores.hpp).
    float *kept;
    uint16_t *kept16;
    float *kept_max;
};

// How scores are made.
enum class Scoring {
    none,
    logits,  // of logits, for which keys are multiplied here and nowhere else
    one,     // of a single query: its softmax is kept whole
    several, // of several: each task adds what it kept to sums
};

// What the layout depends on.
struct AttentionSize {
    int64_t heads, group, m, head_dim, v_dim; // heads: KV heads, of all sequences together
    uint32_t threads;
    // Bf16AttentionKernels::rows_at_once where products may be in bf16, else 0
    int64_t bf16_step = 0;
    bool in_bf16 = false; // and they are
    int64_t sequences = 1;
    Scoring scoring = Scoring::none;
    int64_t contributing = 0; // with scores: the last so many queries
    int64_t slots = 0;        // whose softmax is kept: of the longest head
    int64_t sums = 0;         // Scoring::several: rows of sums
};

// Where things lie in the scratch of the context; offsets in floats.
struct AttentionLayout {
    // most_rows: that a worker has room for
    int64_t tile_rows, most_rows, chunk, part_stride, worker_stride;
    int64_t tasks, merges, parts, queries, factors, kept, kept_stride, kept_max, kept_tiles,
        workers, total;
    int64_t sums, sum_stride, turns; // Scoring::several
    // Rows of a step, tiles of slots; a worker's room for softmax, and with that for its maxima.
    int64_t keep_step, keep_tiles, keep_floats, keep_stride;
};

struct AttentionJob {
    const AttentionKernels *kernels = nullptr;
    const Bf16AttentionKernels *bf16 = nullptr; // NULL: products in f32
    KvAccess kv;
    // queries [m, heads, head_dim]; strides in bytes
    const uint8_t *q = nullptr;
    int64_t q_token = 0, q_head = 0;
    int q_type = 0;
    int64_t m = 0, group = 1;
    // result [m, heads, v_dim]; NULL: only the normalizers are wanted
    uint8_t *out = nullptr;
    int64_t out_token = 0, out_head = 0;
    int out_type = 0;
    float *lse = nullptr;
    int64_t lse_stride = 0;

    float scale = 1, cap = 0; // cap 0: none
    bool causal = false;
    bool windowed = false;
    int64_t window = 0;
    const int32_t *q_positions = nullptr;
    // elements from token to token, head to head
    int64_t q_position_stride = 0, q_position_head = 0;

    // scores
    const keel_scores *scores = nullptr;
    Scoring scoring = Scoring::none;
    const int32_t *ranges = nullptr; // [n_ranges][2]: slots outside are not seen
    int64_t n_ranges = 0, range_stride = 0;
    const float *weights = nullptr;
    int64_t weight_stride = 0;
    int64_t contributing = 0; // the last so many queries

    // made by run_attention
    AttentionLayout layout = {};
    float *base = nullptr; // of the scratch
    int64_t n_tasks = 0, n_merges = 0;
    std::atomic<int64_t> next_task{0}, next_merge{0}, next_tile{0};

    int64_t head_dim() const { return kv.k.dim; }
    int64_t rows() const { return m * group; }
    // Of several sequences at once (KvAccess::seats; m is 1) the first dimension of q and out is
    // the sequence's: where query i of a KV head stands, and which of the KV heads there it is.
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
    // Slots that query i sees of a head: those below. Ranges and window take more away.
    int64_t limit(int64_t head, int64_t i) const {
        const int64_t length = kv.length(head);
        const int64_t n = causal ? length - m + i + 1 : length;
        return n < 0 ? 0 : n < length ? n : length;
    }
    bool products_in_bf16() const { // of the tasks: all or none
        return ranges == nullptr && bf16 != nullptr && rows() >= bf16->least_rows;
    }
    AttentionScratch worker(uint32_t index) const;
    AttentionTask *tasks() const { return reinterpret_cast<AttentionTask *>(base + layout.tasks); }
    AttentionMerge *merges() const {
        return reinterpret_cast<AttentionMerge *>(base + layout.merges);
    }
    float *part(int64_t index) const { return base + layout.parts + index * layout.part_stride; }
    // Scoring::logits: contributing queries, scaled, [head][group][contributing][padded head_dim].
    float *packed(int64_t head, int64_t row) const {
        return base + layout.queries + (head * group * contributing + row) * padded(kv.k.dim);
    }
    // Max and 1 / sum of contributing queries, [head][group][contributing].
    float *factors(int64_t head, int64_t row) const {
        return base + layout.factors + (head * group * contributing + row) * 2;
    }
    // Scoring::one: a place for a head's softmax: a worker's own where it does whole heads, else
    // the head's.
    void keep_at(AttentionScratch &w, int64_t place) const {
        w.kept = base + layout.kept + place * layout.kept_stride;
        w.kept_max = base + layout.kept_max + place * layout.kept_tiles;
    }
};

// Sizes that hold for fewer queries and slots too (attention/layout.cpp).
AttentionLayout attention_layout(const AttentionSize &size);
// Of a context: what multiplies such a cache in bf16, NULL where the products are in f32.
const Bf16AttentionKernels *bf16_of(const keel_ctx *ctx, keel_dtype k, keel_dtype v,
                                    uint32_t block_slots);
// How `m` queries are scored that the op's slots are not narrowed for.
inline Scoring scoring_of(int64_t m, int64_t group) {
    return m == 1 && group <= kTileRows ? Scoring::one : Scoring::several;
}
// Rows of sums that Scoring::several needs: of each query head where they are not all added up.
int64_t score_sums(const keel_scores &scores, int64_t heads, int64_t group);

// Runs all passes; the job's arguments were checked.
keel_status run_attention(keel_ctx *ctx, AttentionJob &job) noexcept;

// ---- what attention and attention_scores share (ops/attention.cpp) ----

inline bool is_activation(const keel_tensor *t) {
    return t->dtype == KEEL_DTYPE_F32 || t->dtype == KEEL_DTYPE_F16 || t->dtype == KEEL_DTYPE_BF16;
}
keel_status check_scores(keel_ctx *ctx, const keel_scores *scores, const char *op) noexcept;
int64_t contributing_queries(const keel_scores *scores, int64_t m);
// What a layout needs to know of scores; slots: no head is longer.
void plan_scores(AttentionSize &size, const keel_scores &scores, Scoring scoring, uint32_t slots);
void set_queries(AttentionJob &job, const keel_tensor *q, int64_t kv_heads);
// A window of the model. q_positions: i32 [m] or [m, kv_heads].
void set_window(AttentionJob &job, const keel_tensor *q_positions, int64_t window);

// ---- pieces of a pass (attention/tiles.cpp) ----

// Calls f(first row's address, number of rows, offset from `first`) for each stretch of slots that
// lies in one block.
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
// What to prefetch while n slots are worked on: those from `next` on, if they lie in one block;
// next -1: nothing.
Ahead ahead_of(const AttentionJob &job, const KvSide &side, int64_t head, int64_t next, int64_t n);
// Masks the logits of a tile; true if a row does not see all n slots.
bool mask_tile(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
               int64_t first, int64_t n, const bool *inside);
// acc += s * V for rows that do not see all of n slots, one of whose values is no finite number: it
// must not reach them, not even as 0 * infinity.
void mix_seen(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t rows,
              int64_t first, int64_t n);
// Queries of `rows` rows of a task from row `first` of it on, scaled, to w.q.
void load_queries(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
                  int64_t first, int64_t rows);
// True if no row of the task can see any of the slots because of the model's window: keys too far
// back.
bool out_of_window(const AttentionJob &job, const AttentionTask &task, int64_t first, int64_t n);
// A task with products in bf16 (attention/bf16.cpp).
void walk_bf16(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);

// s[rows][kTileSlots] = logits of `rows` packed queries with slots first..first+n-1 of a head,
// capped.
void tile_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, const float *q,
                 int64_t rows, int64_t first, int64_t n);
// Which of n slots from `first` on lie in the ranges: false if none does.
bool slots_in_ranges(const AttentionJob &job, int64_t first, int64_t n, bool *inside);
// Writes -inf over what query i of a head does not see; true if there was any.
bool mask_row(const AttentionJob &job, int64_t head, int64_t i, int64_t first, int64_t n,
              const bool *inside, float *s);
void run_task(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task);
void run_merge(const AttentionJob &job, const AttentionScratch &w, const AttentionMerge &merge);

} // namespace keel_cpu

// Scores of several queries. Each task adds its kept softmax, summed over rows, to the sums of its
// head.
#include "cpu/attention/scores.hpp"

#include <new>
#include <thread>

namespace keel_cpu {
namespace {

// number of tasks of a head that have added their softmax to the sums
using Turn = std::atomic<int32_t>;
static_assert(sizeof(Turn) == sizeof(float));

Turn &turn_of(const AttentionJob &job, int64_t head) { // begin_sums() creates the object
    return reinterpret_cast<Turn *>(job.base + job.layout.turns)[head];
}

// Returns the index, within the task, of the first row that contributes to scores. If no row
// contributes, the result is at least the task's number of rows.
int64_t first_counting(const AttentionJob &job, const AttentionTask &task) {
    const int64_t row = (job.m - job.contributing) * job.group - task.row;
    return row > 0 ? row : 0;
}
// For products in bf16: the first step of rows whose softmax is kept.
int64_t first_step(const AttentionJob &job, const AttentionTask &task) {
    return first_counting(job, task) / job.layout.keep_step;
}

// Returns the sums of KV head `head`, or of its query head g if query heads have separate sums.
float *sums_of(const AttentionJob &job, int64_t head, int64_t g) {
    const int64_t row = sums_of_heads(*job.scores) ? head : head * job.group + g;
    return job.base + job.layout.sums + row * job.layout.sum_stride;
}

bool takes_largest(const AttentionJob &job) {
    return job.scores->reduce_queries == KEEL_REDUCE_MAX;
}

void wait_for(const Turn &turn, int32_t mine) {
    for (int spins = 0; turn.load(std::memory_order_acquire) != mine; ++spins) {
        if (spins >= 1024) {
            std::this_thread::yield();
            // the other hardware thread of the core can run the task that this thread waits for
        } else {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#elif defined(__aarch64__)
            asm volatile("yield");
#endif
        }
    }
}

// A range of rows of a task, at most kTileRows, whose softmax is summed together.
class KeptRows {
  public:
    KeptRows(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
             int64_t begin, int64_t end)
        : job_(job), w_(w), task_(task), begin_(begin), end_(end) {
        for (int64_t r = begin; r < end; ++r) {
            const float *factors = job.factors(task.head, place(r));
            last_max_[r - begin] = max_[r - begin] = factors[0];
            last_[r - begin] = value_[r - begin] = factors[1];
            finite_ &= factors[1] - factors[1] == 0;
        }
    }
    void add() {
        if (!finite_ || takes_largest(job_))
            for (int64_t r = begin_; r < end_; ++r) add_row(r);
        else
            for (int64_t first = 0; first < task_.end; first += kTileSlots) add_tile(first);
    }

  private:
    const AttentionJob &job_;
    const AttentionScratch &w_;
    const AttentionTask &task_;
    int64_t begin_, end_; // range of rows within the task
    bool finite_ = true;  // true: all factors are finite
    float max_[kTileRows],
        // for each row: the max at the current tile, and the factor that turns the tile's values
        // into probabilities
        value_[kTileRows];
    float last_max_[kTileRows], last_[kTileRows]; // max_ and value_ at the last tile

    int64_t place(int64_t r) const { // index of the row among the contributing queries
        const int64_t i = (task_.row + r) / job_.group, g = (task_.row + r) % job_.group;
        return g * job_.contributing + i - (job_.m - job_.contributing);
    }
    int64_t query_head(int64_t r) const { return (task_.row + r) % job_.group; }

    // The kept softmax of one step of rows, for one tile of slots.
    struct Tile {
        int64_t begin, rows; // range of rows within the task
        int64_t n;           // number of slots that the rows walked over; 0: the tile was skipped
        const float *values; // in f32; NULL if the values are in bf16 (values16)
        const uint16_t *values16;
        const float *max;
    };
    Tile tile_at(int64_t r, int64_t first) const {
        const bool in_f32 = w_.kept16 == nullptr;
        const int64_t step = in_f32 ? task_.rows : job_.layout.keep_step, s = in_f32 ? 0 : r / step,
                      left = task_.rows - s * step;
        Tile tile = {s * step, left < step ? left : step, 0, nullptr, nullptr, nullptr};
        const int64_t last = (task_.row + tile.begin + tile.rows - 1) / job_.group,
                      seen = job_.limit(task_.head, last) - first;
        int64_t at = first / kTileSlots * step;
        if (!in_f32) at += (s - first_step(job_, task_)) * job_.layout.keep_tiles * step;
        tile.max = w_.kept_max + at;
        if (in_f32)
            tile.values = w_.kept + at * kTileSlots;
        else
            tile.values16 = w_.kept16 + at * kTileSlots;
        if (seen > 0 && !was_skipped(tile.max)) tile.n = seen < kTileSlots ? seen : kTileSlots;
        return tile;
    }
    void update(const Tile &tile, int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const int64_t i = r - begin_;
            const float max = tile.max[r - tile.begin];
            if (max == max_[i]) continue; // usually the max is the same as at the tile before
            max_[i] = max;
            value_[i] = last_[i] * since_then(max, last_max_[i]);
        }
    }

    // Computes x[kTileSlots] += the probabilities of rows `from`, from + every, from + 2 * every,
    // ... below `end`.
    void add_columns(const Tile &tile, int64_t from, int64_t every, int64_t end, float *x) const {
        const int64_t count = from < end ? (end - from + every - 1) / every : 0;
        if (count == 0) return;
        float by[kTileRows];
        for (int64_t i = 0; i < count; ++i) by[i] = value_[from - begin_ + i * every];
        if (tile.values16 != nullptr)
            job_.bf16->add_columns(tile.values16, from - tile.begin, every, count, by,
                                   bf16_padded(tile.n), x);
        else
            job_.kernels->gemm({by, kTileRows, 1}, 1,
                               tile.values + (from - tile.begin) * kTileSlots, every * kTileSlots,
                               count, padded(tile.n), x, kTileSlots, true);
        // In f32, the kept values after the first n were never written.
        if (tile.n != kTileSlots && tile.values != nullptr)
            memset(x + tile.n, 0, static_cast<size_t>(kTileSlots - tile.n) * 4);
    }

    // Sums the probabilities of one tile of slots over the rows of this object. Then adds the
    // result to the sums of the head.
    void add_tile(int64_t first) {
        const bool together = sums_of_heads(*job_.scores);
        const int64_t every = together ? 1 : job_.group;
        // updates the factors that turn the kept values into probabilities
        for (int64_t r = begin_; r < end_;) {
            const Tile tile = tile_at(r, first);
            const int64_t end = tile.begin + tile.rows < end_ ? tile.begin + tile.rows : end_;
            if (tile.n != 0) update(tile, r, end);
            r = end;
        }
        for (int64_t g = 0; g < (together ? 1 : job_.group); ++g) {
            alignas(64) float x[kTileSlots] = {};
            bool any = false;
            for (int64_t r = begin_; r < end_;) {
                const Tile tile = tile_at(r, first);
                const int64_t end = tile.begin + tile.rows < end_ ? tile.begin + tile.rows : end_,
                              from =
                                  together ? r : r + (g - query_head(r) + job_.group) % job_.group;
                if (tile.n != 0) add_columns(tile, from, every, end, x), any = true;
                r = end;
            }
            const int64_t left = job_.kv.length(task_.head) - first;
            if (any)
                job_.kernels->add(sums_of(job_, task_.head, g) + first, x,
                                  left < kTileSlots ? left : kTileSlots);
        }
    }

    // Adds the probabilities of a single row. Used if the scores are a maximum. Also used if a
    // factor is not finite, because this factor must not change slots that the row does not see.
    void add_row(int64_t r) {
        const int64_t length = job_.kv.length(task_.head), i = (task_.row + r) / job_.group;
        float *sums = sums_of(job_, task_.head, query_head(r));
        for (int64_t first = 0; first < length; first += kTileSlots) {
            const int64_t n = length - first < kTileSlots ? length - first : kTileSlots;
            alignas(64) float x[kTileSlots] = {}, hidden[kTileSlots] = {};
            const Tile tile = first < task_.end ? tile_at(r, first) : Tile{};
            bool inside[kTileSlots];
            if (job_.ranges != nullptr) slots_in_ranges(job_, first, n, inside);
            if (tile.n != 0) {
                update(tile, r, r + 1);
                add_columns(tile, r, 1, r + 1, x);
            }
            mask_row(job_, task_.head, i, first, n, job_.ranges != nullptr ? inside : nullptr,
                     hidden);
            const float *weights = takes_largest(job_) && job_.weights != nullptr
                                       ? job_.weights + task_.head * job_.weight_stride + first
                                       : nullptr;
            for (int64_t j = 0; j < n; ++j)
                x[j] = hidden[j] != 0 ? 0.0f : weights != nullptr ? x[j] * weights[j] : x[j];
            if (takes_largest(job_))
                job_.kernels->max(sums + first, x, n);
            else
                job_.kernels->add(sums + first, x, n);
        }
    }
};

void clear_sums(const AttentionJob &job, int64_t head) {
    const float none = takes_largest(job) ? kNoLogit : 0.0f;
    const int64_t rows = sums_of_heads(*job.scores) ? 1 : job.group;
    float *sums = sums_of(job, head, 0);
    for (int64_t j = 0; j < rows * job.layout.sum_stride; ++j) sums[j] = none;
}

// Returns true if a contributing query sees the slot. Called only if the weight of the slot is not
// finite.
bool is_seen(const AttentionJob &job, int64_t head, int64_t slot) {
    for (int64_t i = job.m - job.contributing; i < job.m; ++i) {
        bool inside = true;
        float hidden = 0;
        if (job.ranges != nullptr) slots_in_ranges(job, slot, 1, &inside);
        if (!mask_row(job, head, i, slot, 1, job.ranges != nullptr ? &inside : nullptr, &hidden))
            return true;
    }
    return false;
}

// Turns the sums over the queries into the requested reduction, for n slots.
void finish_queries(const AttentionJob &job, int64_t head, int64_t first, int64_t n, float *x) {
    if (job.scores->reduce_queries == KEEL_REDUCE_MEAN)
        for (int64_t j = 0; j < n; ++j) x[j] /= static_cast<float>(job.contributing);
    if (job.weights == nullptr || takes_largest(job)) return;
    const float *weights = job.weights + head * job.weight_stride + first;
    for (int64_t j = 0; j < n; ++j) {
        const bool number = weights[j] - weights[j] == 0;
        x[j] = number || is_seen(job, head, first + j) ? x[j] * weights[j] : 0.0f;
    }
}

} // namespace

int64_t score_sums(const keel_scores &scores, int64_t heads, int64_t group) {
    return sums_of_heads(scores) ? heads : heads * group;
}

bool keep_task(const AttentionJob &job, AttentionScratch &w, uint32_t worker,
               const AttentionTask &task) {
    w.kept = w.kept_max = nullptr;
    w.kept16 = nullptr;
    if (first_counting(job, task) >= task.rows) return false;
    float *at = job.base + job.layout.workers + (worker + 1) * job.layout.worker_stride -
                job.layout.keep_stride;
    if (job.products_in_bf16())
        w.kept16 = reinterpret_cast<uint16_t *>(at);
    else
        w.kept = at;
    w.kept_max = at + job.layout.keep_floats;
    return true;
}

void keep_step(const AttentionJob &job, const AttentionTask &task, int64_t row,
               AttentionScratch &w) {
    const int64_t step = row / job.layout.keep_step - first_step(job, task);
    if (step < 0) {
        w.kept16 = nullptr, w.kept_max = nullptr;
        return;
    }
    const int64_t at = step * job.layout.keep_tiles * job.layout.keep_step;
    w.kept16 += at * kTileSlots;
    w.kept_max += at;
}

void begin_sums(const AttentionJob &job) {
    for (int64_t h = 0; h < job.kv.heads; ++h) new (&turn_of(job, h)) Turn(0);
}

void add_scores(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task) {
    // The tasks with the last rows of a head are started first.
    const int64_t task_rows = job.layout.tile_rows,
                  mine = (job.rows() - 1) / task_rows - task.row / task_rows;
    Turn &turn = turn_of(job, task.head);
    wait_for(turn, static_cast<int32_t>(mine));
    if (mine == 0) clear_sums(job, task.head);
    const int64_t from = first_counting(job, task);
    for (int64_t row = (task.rows - 1) / kTileRows * kTileRows; row >= 0 && row + kTileRows > from;
         row -= kTileRows) {
        const int64_t end = row + kTileRows < task.rows ? row + kTileRows : task.rows;
        KeptRows(job, w, task, row > from ? row : from, end).add();
    }
    turn.store(static_cast<int32_t>(mine + 1), std::memory_order_release);
}

void finish_sums(const AttentionJob &job, int64_t head, int64_t first, int64_t end) {
    const keel_scores &scores = *job.scores;
    const bool together = sums_of_heads(scores);
    for (int64_t slot = first; slot < end; slot += kTileSlots) {
        const int64_t n = end - slot < kTileSlots ? end - slot : kTileSlots;
        bool inside_ranges[kTileSlots];
        const bool *inside = job.ranges != nullptr ? inside_ranges : nullptr;
        if (inside != nullptr) slots_in_ranges(job, slot, n, inside_ranges);
        float group[kTileSlots];
        for (int64_t g = 0; g < (together ? 1 : job.group); ++g) {
            float *x = sums_of(job, head, g) + slot;
            finish_queries(job, head, slot, n, x);
            if (scores.reduce_group == KEEL_REDUCE_NONE)
                write_scores(job, head * job.group + g, slot, n, x, inside);
            else
                take_head(job, group, x, g, n);
        }
        write_group(job, group, head, slot, n, inside);
    }
}

} // namespace keel_cpu

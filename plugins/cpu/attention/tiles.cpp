// Attention of one tile of query rows in f32: a loop over the slots of a head that computes logits,
// mask, online softmax, and the sum of values.
#include "cpu/attention/scores.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {
namespace {

constexpr float kNone = -__builtin_inff();

bool is_block_type(int type) { return type == kRowQ8_0 || type == kRowQ4_0; }

// Converts n slots to f32, [n, stride].
void load_slots(const AttentionJob &job, const KvSide &side, int64_t head, int64_t first, int64_t n,
                float *to, int64_t stride) {
    const auto load = job.kernels->load[side.type];
    for_stretches(job.kv, side, head, first, n,
                  [&](const uint8_t *row, int64_t rows, int64_t offset) {
                      for (int64_t j = 0; j < rows; ++j)
                          load(row + j * side.row_stride, side.dim, to + (offset + j) * stride);
                  });
}

void few_dots(const AttentionJob &job, const AttentionScratch &w, int64_t head, const float *q,
              int64_t rows, int64_t first, int64_t n) {
    const KvSide &k = job.kv.k;
    const int64_t stride = padded(k.dim);
    if (is_block_type(k.type) &&
        rows > job.kernels->few_rows_mix) { // for many rows it is faster to convert the rows once
        load_slots(job, k, head, first, n, w.rows, stride);
        job.kernels->dots[kRowF32](q, stride, rows, w.rows, stride * 4, n, k.dim, w.s, kTileSlots,
                                   {nullptr, 0});
        return;
    }
    // The values of these slots are read next, so this code prefetches them.
    const Ahead ahead =
        job.out != nullptr ? ahead_of(job, job.kv.v, head, first, n) : Ahead{nullptr, 0};
    for_stretches(job.kv, k, head, first, n,
                  [&](const uint8_t *row, int64_t count, int64_t offset) {
                      job.kernels->dots[k.type](q, stride, rows, row, k.row_stride, count, k.dim,
                                                w.s + offset, kTileSlots, ahead);
                  });
}

void many_dots(const AttentionJob &job, const AttentionScratch &w, int64_t head, const float *q,
               int64_t rows, int64_t first, int64_t n) {
    const int64_t dim = job.kv.k.dim, stride = padded(dim);
    load_slots(job, job.kv.k, head, first, n, w.rows, stride);
    job.kernels->transpose(w.rows, stride, padded(n), dim, w.k, kTileSlots);
    job.kernels->gemm({q, stride, 1}, rows, w.k, kTileSlots, dim, padded(n), w.s, kTileSlots,
                      false);
}

// Converts the values of n slots to f32 and stores them in w.rows.
void load_values(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first,
                 int64_t n) {
    const KvSide &v = job.kv.v;
    const int64_t stride = padded(v.dim);
    load_slots(job, v, head, first, n, w.rows, stride);
    for (int64_t j = 0; v.dim != stride && j < n; ++j)
        memset(w.rows + j * stride + v.dim, 0, static_cast<size_t>(stride - v.dim) * 4);
}

void mix_loaded(const AttentionJob &job, const AttentionScratch &w, int64_t rows, int64_t n) {
    const int64_t stride = padded(job.kv.v.dim);
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < n; ++j)
            if (const float p = w.s[r * kTileSlots + j]; p != 0)
                job.kernels->add_scaled(w.acc + r * stride, w.rows + j * stride, stride, p);
}

// Computes acc += s * V for n slots. `next` is the slot that will be read after these n slots, or
// -1.
void mix_values(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t rows,
                int64_t first, int64_t n, bool masked, int64_t next) {
    const KvSide &v = job.kv.v;
    const AttentionKernels &kernels = *job.kernels;
    const int64_t stride = padded(v.dim);
    const int64_t direct = is_block_type(v.type) ? kernels.few_rows_mix : kernels.few_rows;
    if (!masked && rows <= direct) {
        const Ahead ahead = ahead_of(job, job.kv.k, head, next, n);
        for_stretches(job.kv, v, head, first, n,
                      [&](const uint8_t *row, int64_t count, int64_t offset) {
                          kernels.mix[v.type](w.s + offset, kTileSlots, rows, row, v.row_stride,
                                              count, v.dim, w.acc, stride, ahead);
                      });
        return;
    }
    load_values(job, w, head, first, n);
    if (masked && !kernels.finite(w.rows, n * stride))
        mix_loaded(job, w, rows, n);
    else
        kernels.gemm({w.s, kTileSlots, 1}, rows, w.rows, stride, n, stride, w.acc, stride, true);
}

bool sees_any(const AttentionJob &job, int64_t head, int64_t i) {
    for (int64_t first = 0; first < job.limit(head, i); first += kTileSlots) {
        bool inside[kTileSlots];
        float hidden[kTileSlots] = {};
        if (job.ranges != nullptr) slots_in_ranges(job, first, kTileSlots, inside);
        const int64_t left = job.limit(head, i) - first, n = left < kTileSlots ? left : kTileSlots;
        mask_row(job, head, i, first, n, job.ranges != nullptr ? inside : nullptr, hidden);
        for (int64_t j = 0; j < n; ++j)
            if (hidden[j] == 0) return true;
    }
    return false;
}

// Writes the result of one row, after the sum over all slots is complete.
void write_row(const AttentionJob &job, int64_t head, int64_t row, float max, float sum,
               float *acc) {
    const int64_t i = row / job.group, g = row % job.group, h = job.own_head(head) * job.group + g,
                  token = job.token(head, i);
    float factor = 1.0f / sum;
    // The sum is 0 if the row sees no slot, or if the logits of all slots that it sees are -inf. In
    // the second case the softmax is not defined.
    if (sum == 0) factor = sees_any(job, head, i) ? __builtin_nanf("") : 0.0f;
    if (job.out != nullptr) {
        job.kernels->scale(acc, job.kv.v.dim, factor);
        job.kernels->store[job.out_type](acc, job.kv.v.dim,
                                         job.out + token * job.out_token + h * job.out_head);
    }
    if (job.lse != nullptr)
        job.lse[token * job.lse_stride + h] =
            factor == 0 ? kNone : (max == kNone ? 0 : max) - logf(factor);
    const int64_t from = job.m - job.contributing;
    if (job.scores != nullptr && i >= from) {
        float *factors = job.factors(head, g * job.contributing + i - from);
        factors[0] = max;
        factors[1] = factor;
    }
}

} // namespace

void load_queries(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
                  int64_t first, int64_t rows) {
    const int64_t dim = job.head_dim(), stride = padded(dim);
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = task.row + first + r, i = row / job.group, g = row % job.group;
        float *to = w.q + r * stride;
        const uint8_t *q = job.q + job.token(task.head, i) * job.q_token +
                           (job.own_head(task.head) * job.group + g) * job.q_head;
        job.kernels->load[job.q_type](q, dim, to);
        job.kernels->scale(to, dim, job.scale);
        if (dim != stride) memset(to + dim, 0, static_cast<size_t>(stride - dim) * 4);
    }
}

bool out_of_window(const AttentionJob &job, const AttentionTask &task, int64_t first, int64_t n) {
    if (!job.windowed) return false;
    const int64_t from = task.row / job.group, to = (task.row + task.rows - 1) / job.group;
    const int32_t *positions = job.kv.positions_of(task.head);
    int32_t newest = positions[first];
    for (int64_t j = 1; j < n; ++j)
        newest = positions[first + j] > newest ? positions[first + j] : newest;
    for (int64_t i = from; i <= to; ++i) {
        const int64_t position = job.q_position(task.head, i);
        if (position - newest < job.window) return false;
    }
    return true;
}

Ahead ahead_of(const AttentionJob &job, const KvSide &side, int64_t head, int64_t next, int64_t n) {
    if (next < 0 || (next & (job.kv.block_slots - 1)) + n > job.kv.block_slots) return {nullptr, 0};
    return {job.kv.row(side, job.kv.blocks_of(head), next), side.row_stride};
}

bool mask_tile(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task,
               int64_t first, int64_t n, const bool *inside) {
    const int64_t from = task.row / job.group;
    if (inside == nullptr && !job.windowed && job.limit(task.head, from) >= first + n) return false;
    bool masked = false;
    for (int64_t r = 0; r < task.rows; ++r)
        masked |= mask_row(job, task.head, (task.row + r) / job.group, first, n, inside,
                           w.s + r * kTileSlots);
    return masked;
}

void mix_seen(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t rows,
              int64_t first, int64_t n) {
    load_values(job, w, head, first, n);
    mix_loaded(job, w, rows, n);
}

bool slots_in_ranges(const AttentionJob &job, int64_t first, int64_t n, bool *inside) {
    memset(inside, 0, static_cast<size_t>(n));
    bool any = false;
    for (int64_t r = 0; r < job.n_ranges; ++r) {
        const int64_t begin = job.ranges[r * job.range_stride] - first,
                      end = job.ranges[r * job.range_stride + 1] - first;
        for (int64_t j = begin > 0 ? begin : 0; j < end && j < n; ++j) inside[j] = any = true;
    }
    return any;
}

bool mask_row(const AttentionJob &job, int64_t head, int64_t i, int64_t first, int64_t n,
              const bool *inside, float *s) {
    bool masked = false;
    const int64_t seen = job.limit(head, i) - first;
    for (int64_t j = seen > 0 ? seen : 0; j < n; ++j) s[j] = kNone, masked = true;
    if (inside != nullptr)
        for (int64_t j = 0; j < n; ++j)
            if (!inside[j]) s[j] = kNone, masked = true;
    if (job.windowed) {
        const int32_t *positions = job.kv.positions_of(head) + first;
        const int64_t position = job.q_position(head, i);
        for (int64_t j = 0; j < n; ++j)
            if (position - positions[j] >= job.window) s[j] = kNone, masked = true;
    }
    return masked;
}

void tile_logits(const AttentionJob &job, const AttentionScratch &w, int64_t head, const float *q,
                 int64_t rows, int64_t first, int64_t n) {
    if (rows <= job.kernels->few_rows)
        few_dots(job, w, head, q, rows, first, n);
    else
        many_dots(job, w, head, q, rows, first, n);
    for (int64_t r = 0; job.cap != 0 && r < rows; ++r)
        job.kernels->softcap(w.s + r * kTileSlots, n, job.cap);
}

namespace {

// Runs a task like walk_bf16(), with products in f32.
void walk_f32(const AttentionJob &job, AttentionScratch w, const AttentionTask &task) {
    const int64_t stride = padded(job.kv.v.dim);
    const SoftmaxState state = {w.max, w.sum, job.out != nullptr ? w.acc : nullptr, stride, stride};
    load_queries(job, w, task, 0, task.rows);
    for (int64_t first = task.begin; first < task.end; first += kTileSlots) {
        const int64_t n = task.end - first < kTileSlots ? task.end - first : kTileSlots;
        bool inside[kTileSlots];
        if ((job.ranges != nullptr && !slots_in_ranges(job, first, n, inside)) ||
            out_of_window(job, task, first, n)) {
            skip_kept(w, first / kTileSlots * task.rows);
            continue;
        }
        // A kept softmax has its own place for each tile.
        if (w.kept != nullptr) w.s = w.kept + first * task.rows;
        const int64_t next = first + 2 * kTileSlots <= task.end ? first + kTileSlots : -1;
        tile_logits(job, w, task.head, w.q, task.rows, first, n);
        const bool masked =
            mask_tile(job, w, task, first, n, job.ranges != nullptr ? inside : nullptr);
        job.kernels->softmax(w.s, kTileSlots, task.rows, n, state);
        if (job.out != nullptr) mix_values(job, w, task.head, task.rows, first, n, masked, next);
        if (w.kept_max != nullptr)
            memcpy(w.kept_max + first / kTileSlots * task.rows, w.max,
                   static_cast<size_t>(task.rows) * 4);
    }
}

} // namespace

void run_task(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task) {
    const int64_t stride = padded(job.kv.v.dim);
    for (int64_t r = 0; r < task.rows; ++r) w.max[r] = kNone, w.sum[r] = 0;
    memset(w.acc, 0, static_cast<size_t>(task.rows * stride) * 4);
    if (job.products_in_bf16())
        walk_bf16(job, w, task);
    else
        walk_f32(job, w, task);
    if (task.part < 0) {
        for (int64_t r = 0; r < task.rows; ++r)
            write_row(job, task.head, task.row + r, w.max[r], w.sum[r], w.acc + r * stride);
        return;
    }
    float *part = job.part(task.part);
    memcpy(part, w.max, static_cast<size_t>(task.rows) * 4);
    memcpy(part + kTileRows, w.sum, static_cast<size_t>(task.rows) * 4);
    memcpy(part + 2 * kTileRows, w.acc, static_cast<size_t>(task.rows * stride) * 4);
}

void run_merge(const AttentionJob &job, const AttentionScratch &w, const AttentionMerge &merge) {
    const int64_t stride = padded(job.kv.v.dim);
    for (int64_t r = 0; r < merge.rows; ++r) {
        float max = kNone, sum = 0;
        for (int64_t p = 0; p < merge.parts; ++p) {
            const float m = job.part(merge.first_part + p)[r];
            max = m > max ? m : max;
        }
        memset(w.acc, 0, static_cast<size_t>(stride) * 4);
        for (int64_t p = 0; p < merge.parts; ++p) {
            const float *part = job.part(merge.first_part + p);
            if (part[kTileRows + r] == 0) continue; // the row saw no slot of this part
            // If all logits of a part are NaN, its max is -inf and its sum is NaN.
            const float factor = part[r] == max     ? 1.0f
                                 : part[r] == kNone ? part[kTileRows + r]
                                                    : expf(part[r] - max);
            sum += part[kTileRows + r] * factor;
            job.kernels->add_scaled(w.acc, part + 2 * kTileRows + r * stride, stride, factor);
        }
        write_row(job, merge.head, merge.row + r, max, sum, w.acc);
    }
}

} // namespace keel_cpu

// Attention with products in bf16: a tile of slots is rounded once, then goes by all queries of a task, so many at a time that their
// logits stay in the first cache.
#include "attention_job.hpp"

namespace keel_cpu {
namespace {

int64_t rounded_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

bool is_few(const AttentionJob &job, const AttentionTask &task) {
    return task.rows <= job.bf16->few_rows;
}

// Keys to w.k16, rows of what is missing to whole panels cleared.
void load_keys(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first, int64_t n) {
    const KvSide &k = job.kv.k;
    const int64_t depth = bf16_padded(k.dim);
    for_stretches(job.kv, k, head, first, n, [&](const uint8_t *row, int64_t rows, int64_t offset) {
        job.bf16->load_keys[k.type](row, k.row_stride, rows, k.dim, w.k16 + offset * depth);
    });
    for (int64_t e = n * depth; e < rounded_up(n, 16) * depth; ++e)
        w.k16[e] = 0;
}

void load_values(const AttentionJob &job, const AttentionScratch &w, int64_t head, int64_t first, int64_t n) {
    const KvSide &v = job.kv.v;
    for_stretches(job.kv, v, head, first, n, [&](const uint8_t *row, int64_t rows, int64_t offset) {
        job.bf16->load_values[v.type](row, v.row_stride, offset, rows, v.dim, offset + rows == n, w.v16);
    });
}

bool values_finite(const AttentionJob &job, const AttentionScratch &w, int64_t n) {
    for (int64_t d = 0; d < job.kv.v.dim; d += 16)
        if (!job.bf16->finite(w.v16 + d * kTileSlots, bf16_padded(n) * 16)) return false;
    return true;
}

// Some rows of a task, whose logits are in w.s: mask, softmax, values.
void finish_rows(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task, int64_t first,
                 int64_t n, const Ahead &ahead) {
    const int64_t stride = padded(job.kv.v.dim);
    for (int64_t r = 0; job.cap != 0 && r < task.rows; ++r)
        job.kernels->softcap(w.s + r * kTileSlots, n, job.cap);
    const bool masked = mask_tile(job, w, task, first, n, nullptr);
    const bool apart = masked && job.out != nullptr && !values_finite(job, w, n);
    const SoftmaxState state = {w.max, w.sum, job.out != nullptr ? w.acc : nullptr, stride, stride};
    job.bf16->softmax(w.s, kTileSlots, task.rows, n, state, apart || w.kept != nullptr, w.p16);
    if (apart)
        mix_seen(job, w, task.head, task.rows, first, n);
    else if (job.out != nullptr)
        job.bf16->multiply({w.p16, task.rows, kTileSlots, bf16_padded(n), w.v16, 16 * kTileSlots, stride,
                            w.acc, stride, true, ahead, n});
}

} // namespace

const Bf16AttentionKernels *bf16_of(const keel_ctx *ctx, keel_dtype k, keel_dtype v, uint32_t block_slots) {
    const Bf16AttentionKernels *bf16 = ctx->bf16_attention;
    if (bf16 == nullptr || block_slots < 2) return nullptr; // pairs of slots lie in one block
    const int keys = row_type(k), values = row_type(v);
    return bf16->load_keys[keys] != nullptr && bf16->load_values[values] != nullptr ? bf16 : nullptr;
}

bool takes_bf16(const AttentionJob &job, const AttentionTask &task) {
    return job.ranges == nullptr && job.bf16 != nullptr && task.rows >= job.bf16->least_rows;
}

void pack_task(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task) {
    const auto pack = is_few(job, task) ? job.bf16->pack_few : job.bf16->pack_rows;
    pack(w.q, padded(job.head_dim()), task.rows, job.head_dim(), w.q16);
}

void tile_bf16(const AttentionJob &job, const AttentionScratch &w, const AttentionTask &task, int64_t first,
               int64_t n, int64_t next) {
    const Bf16AttentionKernels &kernels = *job.bf16;
    const int64_t depth = bf16_padded(job.head_dim()), columns = rounded_up(n, 16);
    const bool few = is_few(job, task);
    const Ahead values =
        job.out != nullptr ? ahead_of(job, job.kv.v, task.head, first, n) : Ahead{nullptr, 0};
    Ahead keys = ahead_of(job, job.kv.k, task.head, next, n);
    load_keys(job, w, task.head, first, n);
    if (few) {
        kernels.dots_few(w.q16, task.rows, w.k16, columns, job.head_dim(), w.s, kTileSlots, values);
        if (job.out != nullptr) load_values(job, w, task.head, first, n);
        return finish_rows(job, w, task, first, n, keys);
    }
    kernels.turn_keys(w.k16, columns, job.head_dim(), w.panels16);
    if (job.out != nullptr) load_values(job, w, task.head, first, n);
    const int64_t step = w.kept != nullptr ? task.rows : kernels.rows_at_once;
    for (int64_t r = 0; r < task.rows; r += step) {
        AttentionTask some = task;
        some.row += r;
        some.rows = task.rows - r < step ? task.rows - r : step;
        AttentionScratch at = w;
        at.max += r, at.sum += r, at.acc += r * padded(job.kv.v.dim);
        kernels.multiply({w.q16 + r * depth,
                          some.rows,
                          depth,
                          depth,
                          w.panels16,
                          16 * depth,
                          columns,
                          at.s,
                          kTileSlots,
                          false,
                          {nullptr, 0},
                          0});
        finish_rows(job, at, some, first, n, keys);
        keys = {nullptr, 0};
    }
}

} // namespace keel_cpu

// The forward pass of dense attention: out and log-sum-exp.
#include "cpu/attention/dense.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {
namespace {

// Queries of a task. They share the conversion of keys and values.
constexpr int64_t kTaskRows = 192;
// Queries of a step. Their logits and sums stay in the L1 cache. A multiple of the six rows of a
// product.
constexpr int64_t kStepRows = 24;
// Keys and values that are converted at a time. They stay in the L2 cache.
constexpr int64_t kChunkKeys = 4 * kDenseKeys;

// Scratch memory of one worker; d and e are the padded sizes of keys and values.
struct ForwardScratch {
    ForwardScratch(float *base, int64_t d, int64_t e) : room(base) {
        q = room.take(kTaskRows * d), sums = room.take(kTaskRows * e);
        k = room.take(kDenseKeys * d), turned = room.take(kChunkKeys * d);
        v = room.take(kChunkKeys * e);
        s = room.take(kStepRows * kDenseKeys), bias = room.take(kStepRows * kDenseKeys),
        keep = room.take(kStepRows * kDenseKeys);
        max = room.take(kTaskRows), sum = room.take(kTaskRows);
    }

    DenseRoom room;
    float *q, *sums;        // [kTaskRows][d], [kTaskRows][e]
    float *k;               // [kDenseKeys][d]
    float *turned, *v;      // tiles of [d][kDenseKeys]; [kChunkKeys][e]
    float *s, *bias, *keep; // tiles of pairs, [kStepRows][kDenseKeys]
    float *max, *sum;       // [kTaskRows]
};

// The forward pass of one call.
struct DenseForward {
    const DenseAttention &a;
    DenseTensor out;
    float *lse = nullptr; // NULL: not wanted
    int64_t lse_batch = 0, lse_head = 0;
};

// Queries row..row+rows-1 of a head.
struct ForwardTask {
    int64_t b, h, row, rows;
};

// The keys and values of a chunk: keys first..first+n-1.
struct ForwardChunk {
    int64_t first, n;
    DenseRowsOf v;
};

ForwardChunk load_chunk(const DenseAttention &a, const ForwardScratch &w, const ForwardTask &t,
                        int64_t first, int64_t n) {
    const int64_t d = padded(a.n.head_dim), kv_head = a.kv_head(t.h);
    for (int64_t at = 0; at < n; at += kDenseKeys) {
        const int64_t keys = n - at < kDenseKeys ? n - at : kDenseKeys;
        const DenseRowsOf k = dense_rows(a, a.k, t.b, kv_head, first + at, keys, true, w.k);
        a.kernels->transpose(k.data, k.stride, padded(keys), a.n.head_dim, w.turned + at * d,
                             kDenseKeys);
    }
    return {first, n, dense_rows(a, a.v, t.b, kv_head, first, n, false, w.v)};
}

// Adds a tile of keys to the running softmax and to the sums of a step. `from` is the step's first
// query in the task; t is the tile of the step's queries and the tile's keys.
void add_tile(const DenseAttention &a, const ForwardScratch &w, const ForwardChunk &chunk,
              int64_t from, const DenseTile &t) {
    const AttentionKernels &kernels = *a.kernels;
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim), at = t.key - chunk.first;
    kernels.gemm({w.q + from * d, d, 1}, t.rows, w.turned + at * d, kDenseKeys, a.n.head_dim,
                 padded(t.keys), w.s, kDenseKeys, false);
    for (int64_t r = 0; a.cap != 0 && r < t.rows; ++r)
        kernels.softcap(w.s + r * kDenseKeys, t.keys, a.cap);
    const bool biased = fill_bias(a, t, w.bias);
    for (int64_t r = 0; biased && r < t.rows; ++r)
        kernels.add_bias(w.s + r * kDenseKeys, w.bias + r * kDenseKeys, t.keys);
    float *sums = w.sums + from * e;
    kernels.softmax(w.s, kDenseKeys, t.rows, t.keys, {w.max + from, w.sum + from, sums, e, e});
    if (a.drops) fill_keep(a, t, w.keep);
    for (int64_t r = 0; a.drops && r < t.rows; ++r)
        kernels.drop(w.s + r * kDenseKeys, w.keep + r * kDenseKeys, t.keys);
    add_product(a, {w.s, kDenseKeys, 1}, {biased ? w.bias : nullptr, a.drops ? w.keep : nullptr},
                t.rows, t.keys, chunk.v.from(at), e, sums);
}

void walk_chunk(const DenseAttention &a, const ForwardScratch &w, const ForwardTask &t,
                const ForwardChunk &chunk) {
    for (int64_t from = 0; from < t.rows; from += kStepRows) {
        const int64_t rows = t.rows - from < kStepRows ? t.rows - from : kStepRows;
        const Range seen = a.keys_of(t.row + from, t.row + from + rows);
        const int64_t end = seen.end < chunk.first + chunk.n ? seen.end : chunk.first + chunk.n;
        for (int64_t key = chunk.first; key < end; key += kDenseKeys) {
            if (key + kDenseKeys <= seen.begin) continue;
            const int64_t keys = end - key < kDenseKeys ? end - key : kDenseKeys;
            add_tile(a, w, chunk, from, {t.b, t.h, t.row + from, rows, key, keys});
        }
    }
}

void write_rows(const DenseForward &job, const ForwardScratch &w, const ForwardTask &t) {
    const DenseAttention &a = job.a;
    const int64_t e = padded(a.n.v_head_dim);
    for (int64_t r = 0; r < t.rows; ++r) {
        float *row = w.sums + r * e;
        // The sum is 0 if the query sees no key, or if all its logits are -inf.
        const bool masked = w.sum[r] == 0;
        const float lse = masked ? -__builtin_inff() : w.max[r] + logf(w.sum[r]);
        if (masked)
            memset(row, 0, static_cast<size_t>(e) * 4);
        else
            a.kernels->scale(row, a.n.v_head_dim, lse != lse ? lse : 1.0f / w.sum[r]);
        a.kernels->store[job.out.type](row, a.n.v_head_dim, job.out.row(t.b, t.row + r, t.h));
        if (job.lse != nullptr) job.lse[t.b * job.lse_batch + t.h * job.lse_head + t.row + r] = lse;
    }
}

void run_forward_task(const DenseForward &job, const ForwardScratch &w, const ForwardTask &t) {
    const DenseAttention &a = job.a;
    load_scaled(a, a.q, t.b, t.h, t.row, t.rows, a.args.scale, w.q);
    const bool sinks = a.sink != nullptr && a.sink[t.h] != -__builtin_inff();
    for (int64_t r = 0; r < t.rows; ++r) {
        w.max[r] = sinks ? a.sink[t.h] : -__builtin_inff();
        w.sum[r] = sinks ? 1.0f : 0.0f; // exp(sink - max)
    }
    memset(w.sums, 0, static_cast<size_t>(t.rows * padded(a.n.v_head_dim)) * 4);
    const Range seen = a.keys_of(t.row, t.row + t.rows);
    for (int64_t key = seen.begin / kDenseKeys * kDenseKeys; key < seen.end; key += kChunkKeys) {
        const int64_t keys = seen.end - key < kChunkKeys ? seen.end - key : kChunkKeys;
        walk_chunk(a, w, t, load_chunk(a, w, t, key, keys));
    }
    write_rows(job, w, t);
}

} // namespace

keel_status run_dense_forward(keel_ctx *ctx, const DenseAttention &a,
                              const keel_dense_outputs &o) noexcept {
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim),
                  each = ForwardScratch(nullptr, d, e).room.used(),
                  blocks = (a.n.rows + kTaskRows - 1) / kTaskRows, heads = a.n.batch * a.n.heads;
    if (blocks * heads == 0) return KEEL_OK;
    uint8_t *base = scratch(ctx, static_cast<uint64_t>(each) * 4 * ctx->threads);
    if (base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    DenseForward job = {a, DenseTensor(o.out)};
    if (o.lse != nullptr) {
        job.lse = data_as<float>(o.lse);
        job.lse_batch = o.lse->stride[0] / 4, job.lse_head = o.lse->stride[1] / 4;
    }
    std::atomic<int64_t> next{0};
    return parallel(ctx, dense_workers(ctx, a, 2), [&](const Team &team) {
        const ForwardScratch w(reinterpret_cast<float *>(base) + team.worker * each, d, e);
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks * heads;) {
            // with causal, the last blocks take longest, so they come first
            const int64_t row = (blocks - 1 - i / heads) * kTaskRows, head = i % heads,
                          rows = a.n.rows - row < kTaskRows ? a.n.rows - row : kTaskRows;
            run_forward_task(job, w, {head / a.n.heads, head % a.n.heads, row, rows});
        }
    });
}

} // namespace keel_cpu

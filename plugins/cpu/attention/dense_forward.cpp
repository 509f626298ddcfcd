// The forward pass of dense attention: out and log-sum-exp. The products are f32. If all tensors
// are bf16 and the machine multiplies bf16, the products are bf16 with f32 sums. The log-sum-exp is
// exact to f32 in both cases.
#include "cpu/attention/dense.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {
namespace {

// The most queries of a task. They share the conversion of keys and values.
constexpr int64_t kTaskRows = 384;
// Queries of a step. Their logits and sums stay in the L1 cache. A multiple of the six rows of an
// f32 product. Bf16AttentionKernels::rows_at_once is the number for bf16 products. kTaskRows / 2 is
// a multiple of both.
constexpr int64_t kStepRows = 24;
constexpr int64_t kMostStepRows = bf16_rows;
// Keys and values that are converted at a time. They stay in the L2 cache.
constexpr int64_t kChunkKeys = 4 * kDenseKeys;

// Scratch memory of one worker; d and e are the padded sizes of keys and values.
struct ForwardScratch {
    ForwardScratch(float *base, int64_t d, int64_t e) : room(base) {
        q = room.take(kTaskRows * d), sums = room.take(kTaskRows * e);
        k = room.take(kDenseKeys * d), turned = room.take(kChunkKeys * d);
        v = room.take(kChunkKeys * e);
        s = room.take(kMostStepRows * kDenseKeys), bias = room.take(kMostStepRows * kDenseKeys);
        keep = room.take(kMostStepRows * kDenseKeys);
        max = room.take(kTaskRows), sum = room.take(kTaskRows);
        const int64_t depth = bf16_padded(d);
        q16 = room.take16(kTaskRows * depth), k16 = room.take16(kDenseKeys * depth);
        turned16 = room.take16(kChunkKeys * depth), v16 = room.take16(kChunkKeys * e);
        p16 = room.take16(kMostStepRows * kDenseKeys), lanes = room.take(kMostStepRows * 16);
    }

    DenseRoom room;
    float *q, *sums;        // [kTaskRows][d], [kTaskRows][e]
    float *k;               // [kDenseKeys][d]
    float *turned, *v;      // tiles of [d][kDenseKeys]; [kChunkKeys][e]
    float *s, *bias, *keep; // tiles of pairs, [kMostStepRows][kDenseKeys]
    float *max, *sum;       // [kTaskRows]
    // Operands of bf16 products (attention_types.hpp): queries and probabilities as x, keys and
    // values in panels, one tile after the other. k16: keys as rows.
    uint16_t *q16, *p16, *turned16, *v16, *k16;
    float *lanes; // [kMostStepRows][16], sums of softmax_fine
};

// The forward pass of one call.
struct DenseForward {
    const DenseAttention &a;
    const Bf16AttentionKernels *bf16; // NULL: the products are f32
    DenseTensor out;
    float *lse = nullptr; // NULL: the caller does not request the log-sum-exp
    int64_t lse_batch = 0, lse_head = 0;
};

// Queries row..row+rows-1 of a head.
struct ForwardTask {
    int64_t b, h, row, rows;
};

// The keys and values of a chunk: keys first..first+n-1. They are in scratch memory.
struct ForwardChunk {
    int64_t first, n;
    DenseRowsOf v; // not for bf16 products
};

void load_tile16(const DenseForward &job, const ForwardScratch &w, const ForwardTask &t,
                 int64_t first, int64_t at, int64_t keys) {
    const DenseAttention &a = job.a;
    const int64_t depth = bf16_padded(a.n.head_dim), kv_head = a.kv_head(t.h),
                  e = padded(a.n.v_head_dim), whole = round_up(keys, 16);
    job.bf16->load_keys[kRowBf16](a.k.row(t.b, first + at, kv_head), a.k.token, keys, a.n.head_dim,
                                  w.k16, {nullptr, 0});
    memset(w.k16 + keys * depth, 0, static_cast<size_t>((whole - keys) * depth) * 2);
    job.bf16->turn_keys(w.k16, whole, a.n.head_dim, w.turned16 + at * depth);
    job.bf16->load_values[kRowBf16](a.v.row(t.b, first + at, kv_head), a.v.token, 0, keys,
                                    a.n.v_head_dim, true, w.v16 + at * e, {nullptr, 0});
}

ForwardChunk load_chunk(const DenseForward &job, const ForwardScratch &w, const ForwardTask &t,
                        int64_t first, int64_t n) {
    const DenseAttention &a = job.a;
    const int64_t d = padded(a.n.head_dim), kv_head = a.kv_head(t.h);
    for (int64_t at = 0; at < n; at += kDenseKeys) {
        const int64_t keys = n - at < kDenseKeys ? n - at : kDenseKeys;
        if (job.bf16 != nullptr) {
            load_tile16(job, w, t, first, at, keys);
            continue;
        }
        const DenseRowsOf k = dense_rows(a, a.k, t.b, kv_head, first + at, keys, true, w.k);
        a.kernels->transpose(k.data, k.stride, padded(keys), a.n.head_dim, w.turned + at * d,
                             kDenseKeys);
    }
    if (job.bf16 != nullptr) return {first, n, {}};
    return {first, n, dense_rows(a, a.v, t.b, kv_head, first, n, false, w.v)};
}

// Writes the logits of a tile to w.s. `from` is the step's first query in the task; `at` is the
// tile's first key in the chunk.
void multiply_keys(const DenseForward &job, const ForwardScratch &w, int64_t from, int64_t at,
                   const DenseTile &t) {
    const DenseAttention &a = job.a;
    const int64_t d = padded(a.n.head_dim), depth = bf16_padded(a.n.head_dim);
    if (job.bf16 == nullptr) {
        a.kernels->gemm({w.q + from * d, d, 1}, t.rows, w.turned + at * d, kDenseKeys, a.n.head_dim,
                        padded(t.keys), w.s, kDenseKeys, false);
        return;
    }
    job.bf16->multiply({w.q16 + from * depth, t.rows, depth, depth, w.turned16 + at * depth,
                        16 * depth, padded(t.keys), w.s, kDenseKeys, false});
    // q16 is not scaled, because rounding the scaled queries would change the logits.
    for (int64_t r = 0; r < t.rows; ++r)
        a.kernels->scale(w.s + r * kDenseKeys, t.keys, a.args.scale);
}

// Turns the logits in w.s into probabilities, and adds the values of a tile, weighted with these
// probabilities, to the sums of a step.
void add_values(const DenseForward &job, const ForwardScratch &w, const ForwardChunk &chunk,
                int64_t from, const DenseTile &t, DenseSkips skips) {
    const DenseAttention &a = job.a;
    const int64_t e = padded(a.n.v_head_dim), at = t.key - chunk.first;
    float *sums = w.sums + from * e;
    a.kernels->softmax(w.s, kDenseKeys, t.rows, t.keys, {w.max + from, w.sum + from, sums, e, e});
    for (int64_t r = 0; a.drops && r < t.rows; ++r)
        a.kernels->drop(w.s + r * kDenseKeys, w.keep + r * kDenseKeys, t.keys);
    add_product(a, {w.s, kDenseKeys, 1}, skips, t.rows, t.keys, chunk.v.from(at), e, sums);
}

// The same with a bf16 product.
void add_values16(const DenseForward &job, const ForwardScratch &w, const ForwardChunk &chunk,
                  int64_t from, const DenseTile &t, DenseSkips skips) {
    const DenseAttention &a = job.a;
    const int64_t e = padded(a.n.v_head_dim), depth = bf16_padded(t.keys);
    float *sums = w.sums + from * e;
    const uint16_t *v = w.v16 + (t.key - chunk.first) * e;
    bool finite = true;
    if (skips.bias != nullptr || skips.keep != nullptr)
        for (int64_t c = 0; c < e; c += 16)
            finite = finite && job.bf16->finite(v + c * kDenseKeys, depth * 16);
    const SoftmaxState state = {w.max + from, w.sum + from, sums, e, e};
    job.bf16->softmax_fine(w.s, kDenseKeys, t.rows, t.keys, state, w.lanes, !finite || a.drops,
                           w.p16);
    for (int64_t r = 0; a.drops && r < t.rows; ++r)
        a.kernels->drop(w.s + r * kDenseKeys, w.keep + r * kDenseKeys, t.keys);
    if (!finite) {
        const DenseRowsOf rows = dense_rows(a, a.v, t.b, a.kv_head(t.h), t.key, t.keys, false, w.v);
        return add_product(a, {w.s, kDenseKeys, 1}, skips, t.rows, t.keys, rows, e, sums);
    }
    int64_t x_depth = kTileSlots;
    if (a.drops) {
        job.bf16->pack_rows(w.s, kDenseKeys, t.rows, t.keys, w.p16);
        x_depth = depth;
    }
    job.bf16->multiply({w.p16, t.rows, x_depth, depth, v, 16 * kDenseKeys, e, sums, e, true});
}

// Adds a tile of keys to the running softmax and to the sums of a step. `from` is the step's first
// query in the task; t is the tile of the step's queries and the tile's keys.
void add_tile(const DenseForward &job, const ForwardScratch &w, const ForwardChunk &chunk,
              int64_t from, const DenseTile &t) {
    const DenseAttention &a = job.a;
    multiply_keys(job, w, from, t.key - chunk.first, t);
    for (int64_t r = 0; a.cap != 0 && r < t.rows; ++r)
        a.kernels->softcap(w.s + r * kDenseKeys, t.keys, a.cap);
    const bool biased = fill_bias(a, t, w.bias);
    for (int64_t r = 0; biased && r < t.rows; ++r)
        a.kernels->add_bias(w.s + r * kDenseKeys, w.bias + r * kDenseKeys, t.keys);
    if (a.drops) fill_keep(a, t, w.keep);
    const DenseSkips skips = {biased ? w.bias : nullptr, a.drops ? w.keep : nullptr};
    job.bf16 == nullptr ? add_values(job, w, chunk, from, t, skips)
                        : add_values16(job, w, chunk, from, t, skips);
}

void walk_chunk(const DenseForward &job, const ForwardScratch &w, const ForwardTask &t,
                const ForwardChunk &chunk) {
    const int64_t step = job.bf16 == nullptr ? kStepRows : job.bf16->rows_at_once;
    for (int64_t from = 0; from < t.rows; from += step) {
        const int64_t rows = t.rows - from < step ? t.rows - from : step;
        const Range seen = job.a.keys_of(t.row + from, t.row + from + rows);
        const int64_t end = seen.end < chunk.first + chunk.n ? seen.end : chunk.first + chunk.n;
        if (job.bf16 != nullptr) {
            memset(w.lanes, 0, static_cast<size_t>(rows * 16) * 4);
            job.bf16->begin(rows);
        }
        for (int64_t key = chunk.first; key < end; key += kDenseKeys) {
            if (key + kDenseKeys <= seen.begin) continue;
            const int64_t keys = end - key < kDenseKeys ? end - key : kDenseKeys;
            add_tile(job, w, chunk, from, {t.b, t.h, t.row + from, rows, key, keys});
        }
        if (job.bf16 == nullptr) continue;
        job.bf16->end();
        job.bf16->add_lanes(w.lanes, rows, w.sum + from);
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
    load_scaled(a, a.q, t.b, t.h, t.row, t.rows, job.bf16 == nullptr ? a.args.scale : 1, w.q);
    if (job.bf16 != nullptr)
        job.bf16->pack_rows(w.q, padded(a.n.head_dim), t.rows, a.n.head_dim, w.q16);
    const bool sinks = a.sink != nullptr && a.sink[t.h] != -__builtin_inff();
    for (int64_t r = 0; r < t.rows; ++r) {
        w.max[r] = sinks ? a.sink[t.h] : -__builtin_inff();
        w.sum[r] = sinks ? 1.0f : 0.0f; // exp(sink - max)
    }
    memset(w.sums, 0, static_cast<size_t>(t.rows * padded(a.n.v_head_dim)) * 4);
    const Range seen = a.keys_of(t.row, t.row + t.rows);
    for (int64_t key = seen.begin / kDenseKeys * kDenseKeys; key < seen.end; key += kChunkKeys) {
        const int64_t keys = seen.end - key < kChunkKeys ? seen.end - key : kChunkKeys;
        walk_chunk(job, w, t, load_chunk(job, w, t, key, keys));
    }
    write_rows(job, w, t);
}

// Returns the number of queries of a task. Fewer queries give more tasks, so that all workers have
// work. A row's result does not depend on this number.
int64_t rows_of_task(const keel_ctx *ctx, const DenseAttention &a) {
    const int64_t heads = a.n.batch * a.n.heads, tasks = heads * (a.n.rows / kTaskRows);
    return tasks >= 4 * ctx->threads ? kTaskRows : kTaskRows / 2;
}

} // namespace

keel_status run_dense_forward(keel_ctx *ctx, const DenseAttention &a,
                              const keel_dense_outputs &o) noexcept {
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim),
                  each = ForwardScratch(nullptr, d, e).room.used(), most = rows_of_task(ctx, a),
                  blocks = (a.n.rows + most - 1) / most, heads = a.n.batch * a.n.heads;
    if (blocks * heads == 0) return KEEL_OK;
    uint8_t *base = scratch(ctx, static_cast<uint64_t>(each) * 4 * ctx->threads);
    if (base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    const DenseTensor out(o.out);
    DenseForward job = {a, bf16_products(ctx, a, {o.out}), out};
    if (o.lse != nullptr) {
        job.lse = data_as<float>(o.lse);
        job.lse_batch = o.lse->stride[0] / 4, job.lse_head = o.lse->stride[1] / 4;
    }
    std::atomic<int64_t> next{0};
    return parallel(ctx, dense_workers(ctx, a, 2), [&](const Team &team) {
        const ForwardScratch w(reinterpret_cast<float *>(base) + team.worker * each, d, e);
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks * heads;) {
            // with causal, the last blocks take longest, so they come first
            const int64_t row = (blocks - 1 - i / heads) * most, head = i % heads,
                          rows = a.n.rows - row < most ? a.n.rows - row : most;
            run_forward_task(job, w, {head / a.n.heads, head % a.n.heads, row, rows});
        }
    });
}

} // namespace keel_cpu

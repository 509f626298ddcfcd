// The forward pass of dense attention: `out` and log-sum-exp.
#include "cpu/attention/dense.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {
namespace {

struct DenseForward {
    const DenseAttention &a;
    DenseTensor out;
    float *lse = nullptr; // NULL: the caller does not request the log-sum-exp
    int64_t lse_batch = 0, lse_head = 0;
};

// Adds one tile of keys to the running softmax and to the sums of the values.
void add_keys(const DenseForward &job, const DenseScratch &w, const DenseTile &t) {
    const DenseAttention &a = job.a;
    const AttentionKernels &kernels = *a.kernels;
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim), kv_head = a.kv_head(t.h);
    const DenseRowsOf k = dense_rows(a, a.k, t.b, kv_head, t.key, t.keys, true, w.k);
    kernels.transpose(k.data, k.stride, padded(t.keys), a.n.head_dim, w.turned, kDenseKeys);
    kernels.gemm(w.q, d, t.rows, w.turned, kDenseKeys, a.n.head_dim, padded(t.keys), w.s,
                 kDenseKeys, false);
    for (int64_t r = 0; a.cap != 0 && r < t.rows; ++r)
        kernels.softcap(w.s + r * kDenseKeys, t.keys, a.cap);
    const bool biased = fill_bias(a, t, w.bias);
    for (int64_t r = 0; biased && r < t.rows; ++r)
        kernels.add_bias(w.s + r * kDenseKeys, w.bias + r * kDenseKeys, t.keys);
    kernels.softmax(w.s, kDenseKeys, t.rows, t.keys, {w.max, w.sum, w.first, e, e});
    if (a.drops) fill_keep(a, t, w.keep);
    for (int64_t r = 0; a.drops && r < t.rows; ++r)
        kernels.drop(w.s + r * kDenseKeys, w.keep + r * kDenseKeys, t.keys);
    const DenseRowsOf v = dense_rows(a, a.v, t.b, kv_head, t.key, t.keys, false, w.v);
    add_product(a, w.s, kDenseKeys, {biased ? w.bias : nullptr, a.drops ? w.keep : nullptr}, t.rows,
                t.keys, v, e, w.first);
}

void write_rows(const DenseForward &job, const DenseScratch &w, const DenseTile &t) {
    const DenseAttention &a = job.a;
    const int64_t e = padded(a.n.v_head_dim);
    for (int64_t r = 0; r < t.rows; ++r) {
        float *row = w.first + r * e;
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

void run_tile(const DenseForward &job, const DenseScratch &w, int64_t b, int64_t h, int64_t row) {
    const DenseAttention &a = job.a;
    const int64_t left = a.n.rows - row, rows = left < kDenseRows ? left : kDenseRows;
    load_scaled(a, a.q, b, h, row, rows, a.args.scale, w.q);
    const bool sinks = a.sink != nullptr && a.sink[h] != -__builtin_inff();
    for (int64_t r = 0; r < rows; ++r) {
        w.max[r] = sinks ? a.sink[h] : -__builtin_inff();
        w.sum[r] = sinks ? 1.0f : 0.0f; // exp(sink - max)
    }
    memset(w.first, 0, static_cast<size_t>(rows * padded(a.n.v_head_dim)) * 4);
    const Range seen = a.keys_of(row, row + rows);
    for (int64_t key = seen.begin / kDenseKeys * kDenseKeys; key < seen.end; key += kDenseKeys) {
        const int64_t keys = seen.end - key < kDenseKeys ? seen.end - key : kDenseKeys;
        add_keys(job, w, {b, h, row, rows, key, keys});
    }
    write_rows(job, w, {b, h, row, rows, 0, 0});
}

} // namespace

keel_status run_dense_forward(keel_ctx *ctx, const DenseAttention &a,
                              const keel_dense_outputs &o) noexcept {
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim),
                  each = DenseScratch::floats(d, e), tiles = a.tiles_of_rows(),
                  heads = a.n.batch * a.n.heads;
    if (tiles * heads == 0) return KEEL_OK;
    uint8_t *base = scratch(ctx, static_cast<uint64_t>(each) * 4 * ctx->threads);
    if (base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    DenseForward job = {a, DenseTensor(o.out)};
    if (o.lse != nullptr) {
        job.lse = data_as<float>(o.lse);
        job.lse_batch = o.lse->stride[0] / 4, job.lse_head = o.lse->stride[1] / 4;
    }
    std::atomic<int64_t> next{0};
    return parallel(ctx, dense_workers(ctx, a, 2), [&](const Team &team) {
        const DenseScratch w(reinterpret_cast<float *>(base) + team.worker * each, d, e);
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tiles * heads;) {
            // with KEEL_DENSE_CAUSAL, the last tiles take longest, so they come first
            const int64_t tile = tiles - 1 - task / heads, head = task % heads;
            run_tile(job, w, head / a.n.heads, head % a.n.heads, tile * kDenseRows);
        }
    });
}

} // namespace keel_cpu

// The backward pass of dense attention: gradients of q, k, v and of the sinks.
#include "cpu/attention/dense.hpp"

#include <math.h>
#include <string.h>

namespace keel_cpu {
namespace {

struct DenseBackward {
    const DenseAttention &a;
    DenseTensor out, d_out, d_q, d_k, d_v;
    const float *lse;
    int64_t lse_batch, lse_head;
    float *delta; // [batch, heads, rows]

    float lse_of(int64_t b, int64_t h, int64_t i) const {
        return lse[b * lse_batch + h * lse_head + i];
    }
    float &delta_of(int64_t b, int64_t h, int64_t i) const {
        return delta[(b * a.n.heads + h) * a.n.rows + i];
    }
    // Returns the number to subtract from the logits of a query. If it is infinity, all weights of
    // the query are 0.
    float subtrahend(int64_t b, int64_t h, int64_t i) const {
        const float x = lse_of(b, h, i);
        return x == -__builtin_inff() ? __builtin_inff() : x;
    }
};

// Computes delta of one row: the sum of d_out * out, without the elements in which out is 0.
void compute_delta(const DenseBackward &job, const DenseScratch &w, int64_t b, int64_t h,
                   int64_t i) {
    const DenseAttention &a = job.a;
    a.kernels->load[job.out.type](job.out.row(b, i, h), a.n.v_head_dim, w.first);
    a.kernels->load[job.d_out.type](job.d_out.row(b, i, h), a.n.v_head_dim, w.second);
    double sum = 0;
    for (int64_t e = 0; e < a.n.v_head_dim; ++e)
        if (w.first[e] != 0)
            sum += static_cast<double>(w.first[e]) * static_cast<double>(w.second[e]);
    job.delta_of(b, h, i) = static_cast<float>(sum);
}

float sink_gradient(const DenseBackward &job, int64_t h) {
    const float sink = job.a.sink[h];
    double sum = 0;
    if (sink == -__builtin_inff()) return 0;
    for (int64_t b = 0; b < job.a.n.batch; ++b)
        for (int64_t i = 0; i < job.a.n.rows; ++i)
            sum -= exp(static_cast<double>(sink) - static_cast<double>(job.lse_of(b, h, i))) *
                   static_cast<double>(job.delta_of(b, h, i));
    return static_cast<float>(sum);
}

// Tiles of pairs. The rows are queries or keys, depending on the pass.
struct PairTiles {
    const float *bias, *keep; // NULL: the call has no bias or no dropout
    int64_t stride;           // stride of these tiles, and of s, dp and capped
    int64_t rows, n;          // numbers of rows and columns that are used
    // Distance from row to row in DenseScratch::lse and delta. 0: all rows use the first row.
    int64_t line;
};

// Replaces the logits in w.s by weights.
void make_weights(const DenseAttention &a, const DenseScratch &w, const PairTiles &t) {
    const AttentionKernels &kernels = *a.kernels;
    for (int64_t r = 0; r < t.rows; ++r) {
        const int64_t at = r * t.stride;
        if (a.cap != 0) {
            kernels.softcap(w.s + at, t.n, a.cap);
            memcpy(w.capped + at, w.s + at, static_cast<size_t>(t.n) * 4);
        }
        if (t.bias != nullptr) kernels.add_bias(w.s + at, t.bias + at, t.n);
        kernels.exp_minus(w.s + at, w.lse + r * t.line, t.n);
        if (t.bias != nullptr) kernels.hide(w.s + at, t.bias + at, t.n);
    }
}

// Replaces the products d_out . v in w.dp by gradients of the logits. The weights are in w.s.
void make_gradients(const DenseAttention &a, const DenseScratch &w, const PairTiles &t) {
    const AttentionKernels &kernels = *a.kernels;
    for (int64_t r = 0; r < t.rows; ++r) {
        const int64_t at = r * t.stride;
        if (t.keep != nullptr) kernels.drop(w.dp + at, t.keep + at, t.n);
        kernels.logit_gradient(w.dp + at, w.s + at, w.delta + r * t.line, t.n);
        if (a.cap != 0) kernels.softcap_gradient(w.dp + at, w.capped + at, a.cap, t.n);
        if (t.bias != nullptr) kernels.hide(w.dp + at, t.bias + at, t.n);
    }
}

// Does the same as fill_bias(), and also hides the rows whose logits are all -infinity, because
// such a row adds nothing to a gradient. The weights of such a row are 0, but 0 times an infinity
// of q or k would be NaN.
bool fill_seen(const DenseBackward &job, const DenseTile &t, float *bias) {
    bool biased = fill_bias(job.a, t, bias);
    for (int64_t r = 0; r < t.rows; ++r) {
        if (job.lse_of(t.b, t.h, t.row + r) != -__builtin_inff()) continue;
        if (!biased) memset(bias, 0, static_cast<size_t>(t.rows * kDenseKeys) * 4);
        biased = true;
        for (int64_t j = 0; j < t.keys; ++j) bias[r * kDenseKeys + j] = kHidden;
    }
    return biased;
}

// ---- d_q: a tile of queries walks over keys ----

void add_keys_to_d_q(const DenseBackward &job, const DenseScratch &w, const DenseTile &t,
                     DenseRowsOf d_out) {
    const DenseAttention &a = job.a;
    const AttentionKernels &kernels = *a.kernels;
    const int64_t d = padded(a.n.head_dim), kv_head = a.kv_head(t.h), cols = padded(t.keys);
    const DenseRowsOf k = dense_rows(a, a.k, t.b, kv_head, t.key, t.keys, true, w.k);
    kernels.transpose(k.data, k.stride, cols, a.n.head_dim, w.turned, kDenseKeys);
    kernels.gemm(w.q, d, t.rows, w.turned, kDenseKeys, a.n.head_dim, cols, w.s, kDenseKeys, false);
    const DenseRowsOf v = dense_rows(a, a.v, t.b, kv_head, t.key, t.keys, true, w.v);
    kernels.transpose(v.data, v.stride, cols, a.n.v_head_dim, w.turned, kDenseKeys);
    kernels.gemm(d_out.data, d_out.stride, t.rows, w.turned, kDenseKeys, a.n.v_head_dim, cols, w.dp,
                 kDenseKeys, false);
    const bool biased = fill_seen(job, t, w.bias);
    if (a.drops) fill_keep(a, t, w.keep);
    const PairTiles tiles = {biased ? w.bias : nullptr,
                             a.drops ? w.keep : nullptr,
                             kDenseKeys,
                             t.rows,
                             t.keys,
                             kDenseKeys};
    make_weights(a, w, tiles);
    make_gradients(a, w, tiles);
    add_product(a, w.dp, kDenseKeys, {tiles.bias, nullptr}, t.rows, t.keys, k, d, w.first);
}

void run_queries(const DenseBackward &job, const DenseScratch &w, int64_t b, int64_t h,
                 int64_t row) {
    const DenseAttention &a = job.a;
    const int64_t d = padded(a.n.head_dim), left = a.n.rows - row,
                  rows = left < kDenseRows ? left : kDenseRows;
    load_scaled(a, a.q, b, h, row, rows, a.args.scale, w.q);
    const DenseRowsOf d_out = dense_rows(a, job.d_out, b, h, row, rows, false, w.d_out);
    for (int64_t r = 0; r < rows; ++r) {
        const float lse = job.subtrahend(b, h, row + r), delta = job.delta_of(b, h, row + r);
        for (int64_t j = 0; j < kDenseKeys; ++j) {
            w.lse[r * kDenseKeys + j] = lse;
            w.delta[r * kDenseKeys + j] = delta;
        }
    }
    memset(w.first, 0, static_cast<size_t>(rows * d) * 4);
    const Range seen = a.keys_of(row, row + rows);
    for (int64_t key = seen.begin / kDenseKeys * kDenseKeys; key < seen.end; key += kDenseKeys) {
        const int64_t keys = seen.end - key < kDenseKeys ? seen.end - key : kDenseKeys;
        add_keys_to_d_q(job, w, {b, h, row, rows, key, keys}, d_out);
    }
    for (int64_t r = 0; r < rows; ++r) {
        a.kernels->scale(w.first + r * d, a.n.head_dim, a.args.scale);
        a.kernels->store[job.d_q.type](w.first + r * d, a.n.head_dim, job.d_q.row(b, row + r, h));
    }
}

// ---- d_k and d_v: a tile of keys walks over the queries of all heads of its group ----

// Transposes bias[rows][keys] to bias[keys][rows].
void turn_pairs(const DenseAttention &a, const DenseTile &t, const float *pairs, float *turned) {
    a.kernels->transpose(pairs, kDenseKeys, padded(t.rows), t.keys, turned, kDenseRows);
}

void add_queries_to_d_kv(const DenseBackward &job, const DenseScratch &w, const DenseTile &t,
                         DenseRowsOf k, DenseRowsOf v) {
    const DenseAttention &a = job.a;
    const AttentionKernels &kernels = *a.kernels;
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim), cols = padded(t.rows);
    load_scaled(a, a.q, t.b, t.h, t.row, t.rows, a.args.scale, w.q);
    kernels.transpose(w.q, d, cols, a.n.head_dim, w.q_turned, kDenseRows);
    kernels.gemm(k.data, k.stride, t.keys, w.q_turned, kDenseRows, a.n.head_dim, cols, w.s,
                 kDenseRows, false);
    const DenseRowsOf d_out = dense_rows(a, job.d_out, t.b, t.h, t.row, t.rows, true, w.d_out);
    kernels.transpose(d_out.data, d_out.stride, cols, a.n.v_head_dim, w.d_out_turned, kDenseRows);
    kernels.gemm(v.data, v.stride, t.keys, w.d_out_turned, kDenseRows, a.n.v_head_dim, cols, w.dp,
                 kDenseRows, false);
    for (int64_t r = 0; r < t.rows; ++r) {
        w.lse[r] = job.subtrahend(t.b, t.h, t.row + r);
        w.delta[r] = job.delta_of(t.b, t.h, t.row + r);
    }
    const bool biased = fill_seen(job, t, w.bias);
    if (biased) turn_pairs(a, t, w.bias, w.bias_turned);
    if (a.drops) fill_keep(a, t, w.keep), turn_pairs(a, t, w.keep, w.keep_turned);
    const PairTiles tiles = {biased ? w.bias_turned : nullptr,
                             a.drops ? w.keep_turned : nullptr,
                             kDenseRows,
                             t.keys,
                             t.rows,
                             0};
    make_weights(a, w, tiles);
    make_gradients(a, w, tiles);
    add_product(a, w.dp, kDenseRows, {tiles.bias, nullptr}, t.keys, t.rows, {w.q, d}, d, w.first);
    for (int64_t r = 0; a.drops && r < t.keys; ++r)
        kernels.drop(w.s + r * kDenseRows, w.keep_turned + r * kDenseRows, t.rows);
    add_product(a, w.s, kDenseRows, {tiles.bias, tiles.keep}, t.keys, t.rows, d_out, e, w.second);
}

void run_keys(const DenseBackward &job, const DenseScratch &w, int64_t b, int64_t kv_head,
              int64_t key) {
    const DenseAttention &a = job.a;
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim), left = a.n.keys - key,
                  keys = left < kDenseKeys ? left : kDenseKeys, group = a.n.heads / a.n.kv_heads;
    const DenseRowsOf k = dense_rows(a, a.k, b, kv_head, key, keys, false, w.k),
                      v = dense_rows(a, a.v, b, kv_head, key, keys, false, w.v);
    memset(w.first, 0, static_cast<size_t>(keys * d) * 4);
    memset(w.second, 0, static_cast<size_t>(keys * e) * 4);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
        for (int64_t row = 0; row < a.n.rows; row += kDenseRows) {
            const int64_t below = a.n.rows - row, rows = below < kDenseRows ? below : kDenseRows;
            const Range seen = a.keys_of(row, row + rows);
            if (seen.end <= key || seen.begin >= key + keys) continue;
            add_queries_to_d_kv(job, w, {b, h, row, rows, key, keys}, k, v);
        }
    }
    for (int64_t j = 0; j < keys; ++j) {
        a.kernels->store[job.d_k.type](w.first + j * d, a.n.head_dim,
                                       job.d_k.row(b, key + j, kv_head));
        a.kernels->store[job.d_v.type](w.second + j * e, a.n.v_head_dim,
                                       job.d_v.row(b, key + j, kv_head));
    }
}

// Runs one task of the pass. Tasks of d_k and d_v take longest, so they come first.
void run_backward_task(const DenseBackward &job, const DenseScratch &w, int64_t task) {
    const DenseAttention &a = job.a;
    const int64_t kv_heads = a.n.batch * a.n.kv_heads, heads = a.n.batch * a.n.heads,
                  of_keys = kv_heads * a.tiles_of_keys();
    if (task < of_keys) {
        // with KEEL_DENSE_CAUSAL, the first keys are seen by the most queries
        const int64_t head = task % kv_heads, tile = task / kv_heads;
        return run_keys(job, w, head / a.n.kv_heads, head % a.n.kv_heads, tile * kDenseKeys);
    }
    const int64_t place = task - of_keys, head = place % heads,
                  tile = a.tiles_of_rows() - 1 - place / heads;
    run_queries(job, w, head / a.n.heads, head % a.n.heads, tile * kDenseRows);
}

} // namespace

keel_status run_dense_backward(keel_ctx *ctx, const DenseAttention &a,
                               const keel_dense_gradients &g) noexcept {
    const int64_t d = padded(a.n.head_dim), e = padded(a.n.v_head_dim),
                  each = DenseScratch::floats(d, e), lines = a.n.batch * a.n.heads * a.n.rows,
                  tasks = a.n.batch *
                          (a.n.kv_heads * a.tiles_of_keys() + a.n.heads * a.tiles_of_rows());
    const int64_t floats = round_up(lines, kPad) + each * ctx->threads;
    uint8_t *base = scratch(ctx, static_cast<uint64_t>(floats) * 4);
    if (base == nullptr) return KEEL_E_OUT_OF_MEMORY;
    auto *delta = reinterpret_cast<float *>(base), *rooms = delta + round_up(lines, kPad);
    const DenseBackward job = {a,
                               DenseTensor(g.out),
                               DenseTensor(g.d_out),
                               DenseTensor(g.d_q),
                               DenseTensor(g.d_k),
                               DenseTensor(g.d_v),
                               data_as<const float>(g.lse),
                               g.lse->stride[0] / 4,
                               g.lse->stride[1] / 4,
                               delta};
    auto *d_sink = g.d_sink != nullptr ? data_as<float>(g.d_sink) : nullptr;
    std::atomic<int64_t> next{0};
    return parallel(ctx, dense_workers(ctx, a, 7), [&](const Team &team) {
        const DenseScratch w(rooms + team.worker * each, d, e);
        const Range mine = share(lines, 1, team);
        for (int64_t line = mine.begin; line < mine.end; ++line) {
            const int64_t head = line / a.n.rows;
            compute_delta(job, w, head / a.n.heads, head % a.n.heads, line % a.n.rows);
        }
        team.barrier();
        for (int64_t h = team.worker; d_sink != nullptr && h < a.n.heads; h += team.n)
            d_sink[h] = sink_gradient(job, h);
        for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
            run_backward_task(job, w, task);
    });
}

} // namespace keel_cpu

// Parts that the forward and the backward pass of dense attention share.
#include "cpu/attention/dense.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

int64_t longer(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

bool all_finite(const AttentionKernels &kernels, DenseRowsOf y, int64_t rows, int64_t cols) {
    for (int64_t j = 0; j < rows; ++j)
        if (!kernels.finite(y.data + j * y.stride, cols)) return false;
    return true;
}

} // namespace

DenseAttention::DenseAttention(const AttentionKernels *table, const keel_dense_attention &a,
                               const keel::sdk::DenseSizes &sizes)
    : kernels(table), args(a), n(sizes), q(a.q), k(a.k), v(a.v) {
    if (a.bias != nullptr) bias = DensePairs(a.bias);
    if (a.mask != nullptr) mask = DensePairs(a.mask);
    if (a.sink != nullptr) sink = data_as<const float>(a.sink);
    if (has(KEEL_DENSE_SOFTCAP)) cap = a.softcap;
    drops = has(KEEL_DENSE_DROPOUT) && keel_dense_drop_below(a.dropout) > 0;
}

Range DenseAttention::keys_of(int64_t i) const {
    const int64_t position = i + n.keys - n.rows;
    Range r = {0, n.keys};
    if (has(KEEL_DENSE_CAUSAL)) r.end = shorter(r.end, position + 1);
    if (has(KEEL_DENSE_WINDOW)) {
        // limits a window to the largest length, so that sums do not overflow
        constexpr int64_t most = int64_t{1} << 31;
        if (args.window_before >= 0) r.begin = position - shorter(args.window_before, most);
        if (args.window_after >= 0)
            r.end = shorter(r.end, position + shorter(args.window_after, most) + 1);
    }
    // empty ranges are inside 0..keys too, and both ends rise with i
    r.begin = shorter(longer(r.begin, 0), n.keys);
    r.end = longer(r.end, 0);
    return r;
}

DenseRowsOf dense_rows(const DenseAttention &a, const DenseTensor &t, int64_t b, int64_t h,
                       int64_t from, int64_t count, bool whole, float *room) {
    const bool in_place =
        t.type == kRowF32 && t.dim % kPad == 0 && t.token % 4 == 0 && (!whole || count % kPad == 0);
    if (in_place) return {reinterpret_cast<const float *>(t.row(b, from, h)), t.token / 4};
    load_scaled(a, t, b, h, from, count, 1, room);
    return {room, padded(t.dim)};
}

void load_scaled(const DenseAttention &a, const DenseTensor &t, int64_t b, int64_t h, int64_t from,
                 int64_t count, float factor, float *room) {
    const int64_t stride = padded(t.dim);
    for (int64_t j = 0; j < count; ++j) {
        float *to = room + j * stride;
        a.kernels->load[t.type](t.row(b, from + j, h), t.dim, to);
        if (factor != 1) a.kernels->scale(to, t.dim, factor);
        for (int64_t e = t.dim; e < stride; ++e) to[e] = 0;
    }
}

bool fill_bias(const DenseAttention &a, const DenseTile &t, float *bias) {
    const int64_t end = t.key + t.keys;
    const bool all_seen =
        a.keys_of(t.row + t.rows - 1).begin <= t.key && a.keys_of(t.row).end >= end;
    if (all_seen && a.bias.data == nullptr && a.mask.data == nullptr) return false;
    for (int64_t r = 0; r < t.rows; ++r) {
        float *to = bias + r * kDenseKeys;
        if (a.bias.data != nullptr)
            a.kernels->load[a.bias.type](a.bias.at(t.b, t.h, t.row + r, t.key), t.keys, to);
        else
            memset(to, 0, static_cast<size_t>(t.keys) * 4);
        if (a.mask.data != nullptr) {
            const uint8_t *mask = a.mask.at(t.b, t.h, t.row + r, t.key);
            for (int64_t j = 0; j < t.keys; ++j)
                if (mask[j] == 0) to[j] = kHidden;
        }
        if (all_seen) continue;
        const Range seen = a.keys_of(t.row + r);
        const int64_t before = shorter(seen.begin - t.key, t.keys);
        for (int64_t j = 0; j < before; ++j) to[j] = kHidden;
        for (int64_t j = longer(seen.end - t.key, 0); j < t.keys; ++j) to[j] = kHidden;
    }
    return true;
}

void fill_keep(const DenseAttention &a, const DenseTile &t, float *keep) {
    const uint32_t below = keel_dense_drop_below(a.args.dropout);
    const float factor = 1.0f / (1.0f - a.args.dropout);
    for (int64_t r = 0; r < t.rows; ++r) {
        float *to = keep + r * kDenseKeys;
        for (int64_t j = 0; j < t.keys; j += 4) { // tiles begin at multiples of 4
            uint32_t numbers[4];
            keel_dense_random(&a.args, t.b, a.n.heads, t.h, t.row + r, (t.key + j) / 4, numbers);
            for (int64_t i = 0; i < 4; ++i) to[j + i] = numbers[i] >= below ? factor : 0.0f;
        }
    }
}

void add_product(const DenseAttention &a, const LeftMatrix &x, DenseSkips skips, int64_t rows,
                 int64_t depth, DenseRowsOf y, int64_t cols, float *sums) {
    const AttentionKernels &kernels = *a.kernels;
    if ((skips.bias == nullptr && skips.keep == nullptr) || all_finite(kernels, y, depth, cols)) {
        kernels.gemm(x, rows, y.data, y.stride, depth, cols, sums, cols, true);
        return;
    }
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < depth; ++j) {
            const int64_t at = r * x.stride + j * x.step;
            if (skips.bias != nullptr && skips.bias[at] == kHidden) continue;
            if (skips.keep != nullptr && skips.keep[at] == 0) continue;
            kernels.add_scaled(sums + r * cols, y.data + j * y.stride, cols, x.data[at]);
        }
    }
}

const Bf16AttentionKernels *bf16_products(const keel_ctx *ctx, const DenseAttention &a,
                                          std::initializer_list<const keel_tensor *> others) {
    const Bf16AttentionKernels *bf16 = ctx->attention_bf16;
    if (bf16 == nullptr || a.n.rows < bf16->least_rows) return nullptr;
    for (const DenseTensor *t : {&a.q, &a.k, &a.v})
        if (t->type != kRowBf16) return nullptr;
    for (const keel_tensor *t : others)
        if (t->dtype != KEEL_DTYPE_BF16) return nullptr;
    return bf16;
}

uint32_t dense_workers(const keel_ctx *ctx, const DenseAttention &a, int64_t products) {
    const double flops = 2.0 * static_cast<double>(products) * static_cast<double>(a.n.batch) *
                         static_cast<double>(a.n.heads) * static_cast<double>(a.n.rows) *
                         static_cast<double>(a.n.keys) * static_cast<double>(a.n.head_dim);
    return workers_for(ctx, 0, static_cast<uint64_t>(flops < 1e15 ? flops : 1e15));
}

} // namespace keel_cpu

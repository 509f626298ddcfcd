// The ops argmax_rows and top_k_rows.
#include "cpu/kernels/tables.hpp"
#include "cpu/ops/ops.hpp"

#include <math.h>

namespace keel_cpu {
namespace {

keel_status plan_rows(keel_ctx *ctx, const keel_rows_args *a, const char *name,
                      PlanChoice &choice) {
    const keel_status status = check_features(ctx, a->features, 0, name);
    if (status != KEEL_OK) return status;
    if (!is_f32(a->x) || a->index->dtype != KEEL_DTYPE_I32)
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: expected x in f32 and index in i32", name);
    name_kernel(choice, "%s %s", name, ctx->rows->isa);
    return KEEL_OK;
}

// Returns true if element `a` of x ranks lower than element `b`: a smaller value, or an equal value
// at a later place.
bool behind(const float *x, int32_t a, int32_t b) { return x[a] < x[b] || (x[a] == x[b] && a > b); }

void swap(int32_t &a, int32_t &b) {
    const int32_t t = a;
    a = b;
    b = t;
}

// Restores the heap order below `at`. The element that ranks lowest is at the top.
void sift(const float *x, int32_t *heap, int64_t n, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && behind(x, heap[child + 1], heap[child])) ++child;
        if (!behind(x, heap[child], heap[at])) return;
        swap(heap[at], heap[child]);
        at = child;
    }
}

bool has_nan(const float *x, int64_t n) {
    int found = 0;
    for (int64_t i = 0; i < n; ++i) found |= x[i] != x[i];
    return found != 0;
}

// Writes the indices of the k highest of n elements to `index`, the highest first. `index` holds a
// heap of k elements during the search.
void top_k(const float *x, int64_t n, int64_t k, int32_t *index) {
    if (k == 0) return;
    for (int64_t i = 0; i < k; ++i) index[i] = static_cast<int32_t>(i);
    for (int64_t i = k / 2; i-- > 0;) sift(x, index, k, i);
    for (int64_t i = k; i < n; ++i) {
        if (!behind(x, index[0], static_cast<int32_t>(i))) continue;
        index[0] = static_cast<int32_t>(i);
        sift(x, index, k, 0);
    }
    for (int64_t left = k; left > 1; --left) {
        swap(index[0], index[left - 1]);
        sift(x, index, left - 1, 0);
    }
}

} // namespace

keel_status plan_argmax_rows(keel_ctx *ctx, const keel_rows_args *a, PlanChoice &c) noexcept {
    return plan_rows(ctx, a, "argmax_rows", c);
}

keel_status KEEL_CALL op_argmax_rows(keel_ctx *ctx, const keel_rows_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_argmax_rows(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->x);
    int32_t *index = data_as<int32_t>(a->index);
    return parallel(
        ctx, workers_for(ctx, x.count > 1 ? static_cast<uint64_t>(x.count * x.n) * 4 : 0),
        [&](const Team &team) {
            const Range r = share(x.count, 1, team);
            for (int64_t i = r.begin; i < r.end; ++i)
                index[i] = ctx->rows->argmax(reinterpret_cast<const float *>(x[i]), x.n);
        });
}

keel_status plan_top_k_rows(keel_ctx *ctx, const keel_rows_args *a, PlanChoice &c) noexcept {
    if (!is_f32(a->values))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "top_k_rows: expected values in f32");
    return plan_rows(ctx, a, "top_k_rows", c);
}

keel_status KEEL_CALL op_top_k_rows(keel_ctx *ctx, const keel_rows_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_top_k_rows(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->x), values(a->values), index(a->index);
    const int64_t k = index.n;
    if (k > x.n)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "top_k_rows: k %lld is larger than the row's %lld elements", (long long)k,
                    (long long)x.n);
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(x.count * x.n) * 4),
                    [&](const Team &team) {
                        const Range r = share(x.count, 1, team);
                        for (int64_t i = r.begin; i < r.end; ++i) {
                            const float *row = reinterpret_cast<const float *>(x[i]);
                            float *value = reinterpret_cast<float *>(values[i]);
                            int32_t *place = reinterpret_cast<int32_t *>(index[i]);
                            const bool sound = !has_nan(row, x.n);
                            if (sound) top_k(row, x.n, k, place);
                            for (int64_t j = 0; j < k; ++j) {
                                if (!sound) place[j] = -1;
                                value[j] = sound ? row[place[j]] : NAN;
                            }
                        }
                    });
}

} // namespace keel_cpu

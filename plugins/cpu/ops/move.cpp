// The ops cast, copy, transpose and zero.
#include "cpu/kernels/tables.hpp"
#include "cpu/ops/ops.hpp"
#include "cpu/weights/ggml_blocks.hpp"
#include "cpu/weights/weights.hpp"

#include <string.h>

namespace keel_cpu {
namespace {

uint64_t row_bytes(const keel_tensor *t) {
    return keel_dtype_row_bytes(t->dtype, static_cast<uint64_t>(t->shape[t->rank - 1]));
}

// Returns true for the type pairs that the public header lists. These are f32, f16 and bf16 to each
// other, and f32 to or from q8_0 or q4_0. The K types are not in the list, because only weights
// have them and no op writes them.
bool cast_types(const keel_move_args *a, WeightType &from, WeightType &to) {
    if (!weight_type_of(a->x->dtype, from) || !weight_type_of(a->out->dtype, to)) return false;
    if (is_k(from) || is_k(to)) return false;
    if (is_quantized(from)) return to == WeightType::f32;
    return !is_quantized(to) || from == WeightType::f32;
}

template <class F> keel_status each_row(keel_ctx *ctx, int64_t rows, uint64_t bytes, F &&f) {
    return parallel(ctx, workers_for(ctx, bytes), [&](const Team &team) {
        const Range r = share(rows, 1, team);
        for (int64_t i = r.begin; i < r.end; ++i) f(i);
    });
}

keel_status plan_bytes(keel_ctx *ctx, const keel_move_args *a, const char *name,
                       PlanChoice &choice) {
    const keel_status status = check_features(ctx, a->features, 0, name);
    if (status != KEEL_OK) return status;
    if (keel_dtype_bytes(a->out->dtype) == 0 || (a->x != nullptr && a->x->dtype != a->out->dtype))
        return fail(ctx->host, KEEL_E_UNSUPPORTED,
                    "%s: the dtypes %s and %s are not supported together", name,
                    a->x != nullptr ? keel_dtype_name(a->x->dtype) : "-",
                    keel_dtype_name(a->out->dtype));
    name_kernel(choice, "%s", name);
    return KEEL_OK;
}

} // namespace

keel_status plan_cast(keel_ctx *ctx, const keel_move_args *a, PlanChoice &choice) noexcept {
    const keel_status status = check_features(ctx, a->features, 0, "cast");
    if (status != KEEL_OK) return status;
    WeightType from, to;
    if (!cast_types(a, from, to))
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "cast: from %s to %s is not supported",
                    keel_dtype_name(a->x->dtype), keel_dtype_name(a->out->dtype));
    name_kernel(choice, "cast %s", ctx->matmul->isa);
    return KEEL_OK;
}

keel_status KEEL_CALL op_cast(keel_ctx *ctx, const keel_move_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_cast(ctx, a, choice);
    if (status != KEEL_OK) return status;
    WeightType from = WeightType::f32, to = WeightType::f32;
    cast_types(a, from, to);
    const Rows x(a->x), out(a->out);
    return each_row(ctx, x.count, static_cast<uint64_t>(x.count * x.n) * 4, [&](int64_t i) {
        if (from == to)
            memmove(out[i], x[i], row_bytes(a->out));
        else if (to == WeightType::q8_0)
            quantize_q8_0(reinterpret_cast<const float *>(x[i]), x.n, out[i]);
        else if (to == WeightType::q4_0)
            quantize_q4_0(reinterpret_cast<const float *>(x[i]), x.n, out[i]);
        else
            ctx->matmul->convert(from, x[i], to, out[i], x.n);
    });
}

keel_status plan_copy(keel_ctx *ctx, const keel_move_args *a, PlanChoice &c) noexcept {
    return plan_bytes(ctx, a, "copy", c);
}

keel_status KEEL_CALL op_copy(keel_ctx *ctx, const keel_move_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_copy(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows x(a->x), out(a->out);
    const uint64_t bytes = row_bytes(a->out);
    if (bytes == 0) return KEEL_OK;
    return each_row(ctx, x.count, static_cast<uint64_t>(x.count) * bytes,
                    [&](int64_t i) { memmove(out[i], x[i], bytes); });
}

keel_status plan_transpose(keel_ctx *ctx, const keel_move_args *a, PlanChoice &c) noexcept {
    return plan_bytes(ctx, a, "transpose", c);
}

keel_status KEEL_CALL op_transpose(keel_ctx *ctx, const keel_move_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_transpose(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const keel_tensor *x = a->x, *out = a->out;
    const uint64_t bytes = row_bytes(out);
    const int64_t rows = x->shape[0] * x->shape[1];
    if (bytes == 0 || rows == 0) return KEEL_OK;
    const uint8_t *from = data_of(x);
    uint8_t *to = data_of(out);
    return each_row(ctx, rows, static_cast<uint64_t>(rows) * bytes, [&](int64_t i) {
        const int64_t outer = i / x->shape[1], inner = i % x->shape[1];
        memcpy(to + inner * out->stride[0] + outer * out->stride[1],
               from + outer * x->stride[0] + inner * x->stride[1], bytes);
    });
}

keel_status plan_zero(keel_ctx *ctx, const keel_move_args *a, PlanChoice &c) noexcept {
    return plan_bytes(ctx, a, "zero", c);
}

keel_status KEEL_CALL op_zero(keel_ctx *ctx, const keel_move_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_zero(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const Rows out(a->out);
    const uint64_t bytes = row_bytes(a->out);
    if (bytes == 0) return KEEL_OK;
    return each_row(ctx, out.count, static_cast<uint64_t>(out.count) * bytes,
                    [&](int64_t i) { memset(out[i], 0, bytes); });
}

} // namespace keel_cpu

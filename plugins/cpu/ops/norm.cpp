// The ops rms_norm, add_rms_norm and layer_norm. They process one row at a time.
#include "cpu/kernels/tables.hpp"
#include "cpu/ops/ops.hpp"

namespace keel_cpu {
namespace {

// `more` is a tensor that not all norms have, for example the bias of layer_norm, or NULL.
keel_status plan_norm(keel_ctx *ctx, const keel_norm_args *a, const char *name,
                      const keel_tensor *more, PlanChoice &choice) {
    const keel_status status = check_features(ctx, a->features, 0, name);
    if (status != KEEL_OK) return status;
    if (!is_f32(a->x) || !is_f32(a->out) || !is_f32(a->weight) ||
        (more != nullptr && !is_f32(more)))
        return fail(ctx->host, KEEL_E_UNSUPPORTED,
                    "%s: expected x, weight, out, and residual or bias in f32", name);
    name_kernel(choice, "%s %s", name, ctx->rows->isa);
    return KEEL_OK;
}

// Calls f(row of x, row of the residual or NULL, row of out) for each row.
template <class F> keel_status each_row(keel_ctx *ctx, const keel_norm_args *a, F &&f) {
    const Rows x(a->x), out(a->out), residual(a->residual != nullptr ? a->residual : a->x);
    const bool with_residual = a->residual != nullptr;
    if (x.n == 0) return KEEL_OK;
    return parallel(ctx, workers_for(ctx, static_cast<uint64_t>(x.count * x.n) * 4),
                    [&](const Team &team) {
                        const Range r = share(x.count, 1, team);
                        for (int64_t i = r.begin; i < r.end; ++i)
                            f(reinterpret_cast<const float *>(x[i]),
                              with_residual ? reinterpret_cast<float *>(residual[i]) : nullptr,
                              reinterpret_cast<float *>(out[i]));
                    });
}

keel_status run_rms(keel_ctx *ctx, const keel_norm_args *a) {
    const float *weight = data_as<const float>(a->weight);
    const int64_t n = a->x->shape[a->x->rank - 1];
    return each_row(ctx, a, [&](const float *x, float *residual, float *out) {
        ctx->rows->rms_norm(x, residual, weight, a->eps, n, out);
    });
}

} // namespace

keel_status plan_rms_norm(keel_ctx *ctx, const keel_norm_args *a, PlanChoice &c) noexcept {
    return plan_norm(ctx, a, "rms_norm", nullptr, c);
}

keel_status KEEL_CALL op_rms_norm(keel_ctx *ctx, const keel_norm_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_rms_norm(ctx, a, choice);
    if (status != KEEL_OK) return status;
    keel_norm_args plain = *a;
    plain.residual = nullptr;
    return run_rms(ctx, &plain);
}

keel_status plan_add_rms_norm(keel_ctx *ctx, const keel_norm_args *a, PlanChoice &c) noexcept {
    if (a->residual == nullptr)
        return fail(ctx->host, KEEL_E_INVALID_ARG, "add_rms_norm: residual is missing");
    return plan_norm(ctx, a, "add_rms_norm", a->residual, c);
}

keel_status KEEL_CALL op_add_rms_norm(keel_ctx *ctx, const keel_norm_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_add_rms_norm(ctx, a, choice);
    return status != KEEL_OK ? status : run_rms(ctx, a);
}

keel_status plan_layer_norm(keel_ctx *ctx, const keel_norm_args *a, PlanChoice &c) noexcept {
    return plan_norm(ctx, a, "layer_norm", a->bias, c);
}

keel_status KEEL_CALL op_layer_norm(keel_ctx *ctx, const keel_norm_args *a) noexcept {
    PlanChoice choice;
    const keel_status status = plan_layer_norm(ctx, a, choice);
    if (status != KEEL_OK) return status;
    const float *weight = data_as<const float>(a->weight);
    const float *bias = a->bias != nullptr ? data_as<const float>(a->bias) : nullptr;
    const int64_t n = a->x->shape[a->x->rank - 1];
    keel_norm_args plain = *a;
    plain.residual = nullptr;
    return each_row(ctx, &plain, [&](const float *x, float *, float *out) {
        ctx->rows->layer_norm(x, weight, bias, a->eps, n, out);
    });
}

} // namespace keel_cpu

// rms_norm, add_rms_norm, layer_norm.
#include "vulkan/ops/ops.hpp"

namespace keel_vulkan {
namespace {

enum Kind : uint32_t { kind_rms = 0, kind_add_rms = 1, kind_layer = 2 };

VkPipeline pipeline(keel_ctx &ctx, Kind kind) {
    return ctx.kernels.get(Kernel::norm, {64, kind});
}

void plan(keel_ctx &ctx, const keel_norm_args &a, Kind kind, const char *op, PlanChoice &choice) {
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.out, "out");
    if (kind == kind_add_rms) tensor_of(ctx, a.residual, "residual");
    pipeline(ctx, kind);
    name_kernel(choice, "%s", op);
}

void run(keel_ctx &ctx, const keel_norm_args &a, Kind kind) {
    const Tensor x = tensor_of(ctx, a.x, "x"), out = tensor_of(ctx, a.out, "out");
    NormParams p = {};
    p.x = base_of(a.x), p.to = base_of(a.out);
    p.x_at = rows_of(x), p.out_at = rows_of(out);
    if (kind == kind_add_rms)
        p.residual = base_of(a.residual), p.residual_at = rows_of(tensor_of(ctx, a.residual, "residual"));
    p.weight = address_of(a.weight);
    p.bias = kind == kind_layer ? address_of(a.bias) : 0;
    p.rows = x.shape[1] * x.shape[2], p.inner = x.shape[2], p.n = x.n;
    p.eps = a.eps;
    if (p.n != 0) ctx.stream.dispatch(pipeline(ctx, kind), p, groups(p.rows, 1));
}

} // namespace

void plan_rms_norm(keel_ctx &ctx, const keel_norm_args &a, PlanChoice &choice) {
    check_rms_norm(ctx.host, a);
    plan(ctx, a, kind_rms, "rms_norm", choice);
}

void run_rms_norm(keel_ctx &ctx, const keel_norm_args &a) {
    run(ctx, a, kind_rms);
}

void plan_add_rms_norm(keel_ctx &ctx, const keel_norm_args &a, PlanChoice &choice) {
    check_add_rms_norm(ctx.host, a);
    plan(ctx, a, kind_add_rms, "add_rms_norm", choice);
}

void run_add_rms_norm(keel_ctx &ctx, const keel_norm_args &a) {
    run(ctx, a, kind_add_rms);
}

void plan_layer_norm(keel_ctx &ctx, const keel_norm_args &a, PlanChoice &choice) {
    check_layer_norm(ctx.host, a);
    plan(ctx, a, kind_layer, "layer_norm", choice);
}

void run_layer_norm(keel_ctx &ctx, const keel_norm_args &a) {
    run(ctx, a, kind_layer);
}

} // namespace keel_vulkan

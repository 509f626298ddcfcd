// The ops rms_norm, add_rms_norm and layer_norm.
#include "vulkan/ops/ops.hpp"

namespace keel_vulkan {
namespace {

// A decode step has one row, so a GPU reads the whole row at once.
VkPipeline pipeline(keel_ctx &ctx, Norm norm) {
    return ctx.kernels.get(Kernel::norm, {wide_group(ctx), norm});
}

} // namespace

void plan_norm(keel_ctx &ctx, const keel_norm_args &a, Norm norm, const char *op,
               PlanChoice &choice) {
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.out, "out");
    if (norm == norm_add_rms) tensor_of(ctx, a.residual, "residual");
    pipeline(ctx, norm);
    name_kernel(choice, "%s", op);
}

void run_norm(keel_ctx &ctx, const keel_norm_args &a, Norm norm) {
    const Tensor x = tensor_of(ctx, a.x, "x"), out = tensor_of(ctx, a.out, "out");
    NormParams p = {};
    p.x = base_of(a.x), p.to = base_of(a.out);
    p.x_at = rows_of(x), p.out_at = rows_of(out);
    if (norm == norm_add_rms)
        p.residual = base_of(a.residual),
        p.residual_at = rows_of(tensor_of(ctx, a.residual, "residual"));
    p.weight = address_of(a.weight);
    p.bias = norm == norm_layer ? address_of(a.bias) : 0;
    p.rows = x.shape[1] * x.shape[2], p.inner = x.shape[2], p.n = x.n;
    p.eps = a.eps;
    if (p.n != 0) ctx.stream.dispatch(pipeline(ctx, norm), p, groups(p.rows, 1));
}

} // namespace keel_vulkan

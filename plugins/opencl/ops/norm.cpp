// The ops rms_norm, add_rms_norm and layer_norm. They process one row at a time.
#include "opencl/ops/ops.hpp"

namespace keel_opencl {
namespace {

cl_kernel kernel(keel_ctx &ctx, Norm norm) {
    return ctx.kernels->get(Source::norm, norm == norm_layer ? "layer_norm" : "rms_norm",
                            {{"LANES", lanes_of(ctx.form)}, {"ADD", norm == norm_add_rms ? 1 : 0}});
}

} // namespace

void plan_norm(keel_ctx &ctx, const keel_norm_args &a, Norm norm, const char *op,
               PlanChoice &choice) {
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.out, "out");
    if (a.residual != nullptr) view_of(ctx.host, a.residual, "residual");
    if (!choice.named) return;
    kernel(ctx, norm);
    name_kernel(choice, "%s %s", op, form_name(ctx.form));
}

void run_norm(keel_ctx &ctx, const keel_norm_args &a, Norm norm) {
    const View x = view_of(ctx.host, a.x, "x"), out = view_of(ctx.host, a.out, "out");
    if (x.rows() == 0 || x.n == 0) return;
    const uint32_t weight = offset_of(ctx, a.weight, "weight");
    const Grid grid = row_grid(ctx.form, x.rows());
    if (norm == norm_layer) {
        launch(ctx, kernel(ctx, norm), grid, a.x, x, a.weight, weight, a.bias,
               offset_of(ctx, a.bias, "bias"), a.bias != nullptr ? 1U : 0U, a.eps, a.out, out);
        return;
    }
    const keel_tensor *residual = norm == norm_add_rms ? a.residual : nullptr;
    launch(ctx, kernel(ctx, norm), grid, a.x, x, residual, view_or_none(ctx, residual, "residual"),
           a.weight, weight, a.eps, a.out, out);
}

} // namespace keel_opencl

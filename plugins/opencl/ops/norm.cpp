// rms_norm, add_rms_norm, layer_norm: a row at a time.
#include "opencl/ops/ops.hpp"

namespace keel_opencl {
namespace {

cl_kernel kernel(keel_ctx &ctx, const char *name, Form form, bool add) {
    return ctx.kernels->get(Source::norm, name, {{"LANES", lanes_of(form)}, {"ADD", add ? 1 : 0}});
}

void plan_norm(keel_ctx &ctx, const keel_norm_args &a, const char *name, const char *kernel_name, bool add,
               PlanChoice &choice) {
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.out, "out");
    if (a.residual != nullptr) view_of(ctx.host, a.residual, "residual");
    if (!choice.named) return;
    const Form form = ctx.form;
    kernel(ctx, kernel_name, form, add);
    name_kernel(choice, "%s %s", name, form_name(form));
}

uint32_t offset_of(keel_ctx &ctx, const keel_tensor *t, const char *name) {
    return t != nullptr ? view_of(ctx.host, t, name).offset : 0;
}

void run_rms(keel_ctx &ctx, const keel_norm_args &a, bool add) {
    const View x = view_of(ctx.host, a.x, "x"), out = view_of(ctx.host, a.out, "out");
    const View residual = add ? view_of(ctx.host, a.residual, "residual") : View{};
    if (x.rows() == 0 || x.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "rms_norm", form, add), row_grid(form, x.rows()), a.x, x,
           add ? a.residual : nullptr, residual, a.weight, offset_of(ctx, a.weight, "weight"), a.eps, a.out,
           out);
}

} // namespace

void plan_rms_norm(keel_ctx &ctx, const keel_norm_args &a, PlanChoice &choice) {
    check_rms_norm(ctx.host, a);
    plan_norm(ctx, a, "rms_norm", "rms_norm", false, choice);
}

void run_rms_norm(keel_ctx &ctx, const keel_norm_args &a) {
    run_rms(ctx, a, false);
}

void plan_add_rms_norm(keel_ctx &ctx, const keel_norm_args &a, PlanChoice &choice) {
    check_add_rms_norm(ctx.host, a);
    plan_norm(ctx, a, "add_rms_norm", "rms_norm", true, choice);
}

void run_add_rms_norm(keel_ctx &ctx, const keel_norm_args &a) {
    run_rms(ctx, a, true);
}

void plan_layer_norm(keel_ctx &ctx, const keel_norm_args &a, PlanChoice &choice) {
    check_layer_norm(ctx.host, a);
    plan_norm(ctx, a, "layer_norm", "layer_norm", false, choice);
}

void run_layer_norm(keel_ctx &ctx, const keel_norm_args &a) {
    const View x = view_of(ctx.host, a.x, "x"), out = view_of(ctx.host, a.out, "out");
    if (x.rows() == 0 || x.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "layer_norm", form, false), row_grid(form, x.rows()), a.x, x, a.weight,
           offset_of(ctx, a.weight, "weight"), a.bias, offset_of(ctx, a.bias, "bias"),
           a.bias != nullptr ? 1U : 0U, a.eps, a.out, out);
}

} // namespace keel_opencl

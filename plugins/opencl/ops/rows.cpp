// The ops argmax_rows and top_k_rows.
#include "opencl/ops/ops.hpp"

namespace keel_opencl {
namespace {

cl_kernel row_kernel(keel_ctx &ctx, const char *name, Form form) {
    return ctx.kernels->get(Source::rows, name, {{"LANES", lanes_of(form)}});
}

void plan_rows(keel_ctx &ctx, const keel_rows_args &a, const char *name, PlanChoice &choice) {
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.index, "index");
    if (a.values != nullptr) view_of(ctx.host, a.values, "values");
    if (!choice.named) return;
    const Form form = ctx.form;
    row_kernel(ctx, name, form); // the kernel has the same name as the op
    name_kernel(choice, "%s %s", name, form_name(form));
}

} // namespace

void plan_argmax_rows(keel_ctx &ctx, const keel_rows_args &a, PlanChoice &choice) {
    plan_rows(ctx, a, "argmax_rows", choice);
}

void run_argmax_rows(keel_ctx &ctx, const keel_rows_args &a) {
    const View x = view_of(ctx.host, a.x, "x");
    if (x.rows() == 0) return;
    const Form form = ctx.form;
    launch(ctx, row_kernel(ctx, "argmax_rows", form), row_grid(form, x.rows()), a.x, x, a.index,
           view_of(ctx.host, a.index, "index"));
}

void plan_top_k_rows(keel_ctx &ctx, const keel_rows_args &a, PlanChoice &choice) {
    plan_rows(ctx, a, "top_k_rows", choice);
}

void run_top_k_rows(keel_ctx &ctx, const keel_rows_args &a) {
    const View x = view_of(ctx.host, a.x, "x"), index = view_of(ctx.host, a.index, "index");
    if (x.rows() == 0 || index.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, row_kernel(ctx, "top_k_rows", form), row_grid(form, x.rows()), a.x, x, a.values,
           view_of(ctx.host, a.values, "values"), a.index, index);
}

} // namespace keel_opencl

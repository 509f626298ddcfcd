// cast, copy, transpose, zero.
#include "opencl/ops/attention_job.hpp"

namespace keel_opencl {
namespace {

cl_kernel kernel(keel_ctx &ctx, const char *name, uint32_t unit) {
    return ctx.kernels->get(Source::move, name, {{"LANES", 1}, {"UNIT", static_cast<int>(unit)}});
}

// Builds the kernel, so that no call does.
void build(keel_ctx &ctx, PlanChoice &choice, const char *op, const char *name, uint32_t unit) {
    if (!choice.named) return;
    kernel(ctx, name, unit);
    name_kernel(choice, "%s", op);
}

void plan_bytes(keel_ctx &ctx, const keel_move_args &a, const char *name, PlanChoice &choice) {
    const uint32_t unit = common_unit(a.out, a.x);
    bytes_view(ctx.host, a.out, unit, "out");
    if (a.x != nullptr) bytes_view(ctx.host, a.x, unit, "x");
    build(ctx, choice, name, "move", unit);
}

void run_bytes(keel_ctx &ctx, const keel_move_args &a, bool swapped) {
    const uint32_t unit = common_unit(a.out, a.x);
    const View out = bytes_view(ctx.host, a.out, unit, "out");
    const View x = a.x != nullptr ? bytes_view(ctx.host, a.x, unit, "x") : View{};
    if (out.rows() == 0 || out.n == 0) return;
    launch(ctx, kernel(ctx, "move", unit), piece_grid(ctx.form, out.n, 16, out.rows()), a.x, x, a.out, out,
           swapped ? 1U : 0U, a.x == nullptr ? 1U : 0U);
}

} // namespace

void plan_cast(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    check_cast(ctx.host, a);
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.out, "out");
    build(ctx, choice, "cast", "cast", 4);
}

void run_cast(keel_ctx &ctx, const keel_move_args &a) {
    Type from = type_f32, to = type_f32;
    type_of(a.x->dtype, from);
    type_of(a.out->dtype, to);
    const View x = view_of(ctx.host, a.x, "x"), out = view_of(ctx.host, a.out, "out");
    if (x.rows() == 0 || x.n == 0) return;
    launch(ctx, kernel(ctx, "cast", 4), piece_grid(ctx.form, x.n, 32, x.rows()), a.x, x,
           static_cast<uint32_t>(from), a.out, out, static_cast<uint32_t>(to));
}

void plan_copy(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    check_copy(ctx.host, a);
    plan_bytes(ctx, a, "copy", choice);
}

void run_copy(keel_ctx &ctx, const keel_move_args &a) {
    run_bytes(ctx, a, false);
}

void plan_transpose(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    check_transpose(ctx.host, a);
    plan_bytes(ctx, a, "transpose", choice);
}

void run_transpose(keel_ctx &ctx, const keel_move_args &a) {
    run_bytes(ctx, a, true);
}

void plan_zero(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    keel_move_args only_out = a;
    only_out.x = nullptr;
    check_zero(ctx.host, only_out);
    plan_bytes(ctx, only_out, "zero", choice);
}

void run_zero(keel_ctx &ctx, const keel_move_args &a) {
    keel_move_args only_out = a;
    only_out.x = nullptr;
    run_bytes(ctx, only_out, false);
}

void build_copy_queries(keel_ctx &ctx) {
    kernel(ctx, "move", 4);
}

void copy_queries(keel_ctx &ctx, const keel_tensor &from, const keel_tensor &to, cl_mem memory) {
    const View x = view_of(ctx.host, &from, "q"), out = view_of(ctx.host, &to, "q");
    launch(ctx, kernel(ctx, "move", 4), piece_grid(ctx.form, out.n, 16, out.rows()), &from, x, memory, out,
           0U, 0U);
}

} // namespace keel_opencl

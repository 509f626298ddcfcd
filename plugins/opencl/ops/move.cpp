// The ops cast, copy, transpose and zero.
#include "opencl/ops/attention_job.hpp"

namespace keel_opencl {
namespace {

cl_kernel kernel(keel_ctx &ctx, const char *name, uint32_t unit) {
    return ctx.kernels->get(Source::move, name, {{"LANES", 1}, {"UNIT", static_cast<int>(unit)}});
}

// Builds the kernel, so that a planned call does not build it.
void build(keel_ctx &ctx, PlanChoice &choice, const char *op, const char *name, uint32_t unit) {
    if (!choice.named) return;
    kernel(ctx, name, unit);
    name_kernel(choice, "%s", op);
}

} // namespace

void plan_cast(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
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

void plan_move(keel_ctx &ctx, const keel_move_args &a, Move move, const char *op,
               PlanChoice &choice) {
    const keel_tensor *x = move == move_zero ? nullptr : a.x;
    const uint32_t unit = common_unit(a.out, x);
    bytes_view(ctx.host, a.out, unit, "out");
    if (x != nullptr) bytes_view(ctx.host, x, unit, "x");
    build(ctx, choice, op, "move", unit);
}

void run_move(keel_ctx &ctx, const keel_move_args &a, Move move) {
    const keel_tensor *x = move == move_zero ? nullptr : a.x;
    const uint32_t unit = common_unit(a.out, x);
    const View out = bytes_view(ctx.host, a.out, unit, "out");
    const View from = x != nullptr ? bytes_view(ctx.host, x, unit, "x") : View{};
    if (out.rows() == 0 || out.n == 0) return;
    launch(ctx, kernel(ctx, "move", unit), piece_grid(ctx.form, out.n, 16, out.rows()), x, from,
           a.out, out, move == move_transpose ? 1U : 0U, x == nullptr ? 1U : 0U);
}

void build_copy_queries(keel_ctx &ctx) { kernel(ctx, "move", 4); }

void copy_queries(keel_ctx &ctx, const keel_tensor &from, const keel_tensor &to, cl_mem memory) {
    const View x = view_of(ctx.host, &from, "q"), out = view_of(ctx.host, &to, "q");
    launch(ctx, kernel(ctx, "move", 4), piece_grid(ctx.form, out.n, 16, out.rows()), &from, x,
           memory, out, 0U, 0U);
}

} // namespace keel_opencl

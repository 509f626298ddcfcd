// The ops silu_mul, gelu_mul, add, add_bias, scale, scaled_add and softmax.
#include "opencl/ops/ops.hpp"

namespace keel_opencl {
namespace {

cl_kernel elementwise_kernel(keel_ctx &ctx, const char *kernel_name, Form form) {
    return ctx.kernels->get(Source::elementwise, kernel_name, {{"LANES", lanes_of(form)}});
}

void build(keel_ctx &ctx, PlanChoice &choice, const char *op, const char *kernel_name) {
    if (!choice.named) return;
    const Form form = ctx.form;
    elementwise_kernel(ctx, kernel_name, form);
    name_kernel(choice, "%s %s", op, form_name(form));
}

uint64_t width(Form form) { // must equal W of kernels/types.cl
    return form == Form::local ? 4 : 16;
}

} // namespace

void plan_gate(keel_ctx &ctx, const keel_gate_args &a, Gate, const char *op, PlanChoice &choice) {
    view_of(ctx.host, a.gate, "gate");
    view_of(ctx.host, a.out, "out");
    if (a.up != nullptr) view_of(ctx.host, a.up, "up");
    build(ctx, choice, op, "gate_mul");
}

void run_gate(keel_ctx &ctx, const keel_gate_args &a, Gate gate) {
    const View in = view_of(ctx.host, a.gate, "gate"), out = view_of(ctx.host, a.out, "out");
    const bool pairs = (a.features & KEEL_GATE_INTERLEAVED) != 0,
               has_up = !pairs && a.up != nullptr;
    const View up = has_up ? view_of(ctx.host, a.up, "up") : View{};
    if (out.rows() == 0 || out.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, elementwise_kernel(ctx, "gate_mul", form),
           piece_grid(form, out.n, width(form), out.rows()), a.gate, in, has_up ? a.up : nullptr,
           up, has_up ? 1U : 0U, pairs ? 1U : 0U, uint32_t{gate}, a.out, out);
}

void plan_combine(keel_ctx &ctx, const keel_elementwise_args &a, Combine combine, const char *op,
                  PlanChoice &choice) {
    view_of(ctx.host, a.a, "a");
    view_of(ctx.host, a.out, "out");
    if (combine <= combine_add_bias) view_of(ctx.host, a.b, "b");
    build(ctx, choice, op, "combine");
}

void run_combine(keel_ctx &ctx, const keel_elementwise_args &a, Combine combine) {
    const bool two = combine <= combine_add_bias;
    const View x = view_of(ctx.host, a.a, "a"), out = view_of(ctx.host, a.out, "out");
    const View y = two ? view_of(ctx.host, a.b, "b") : View{};
    if (out.rows() == 0 || out.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, elementwise_kernel(ctx, "combine", form),
           piece_grid(form, out.n, width(form), out.rows()), a.a, x, two ? a.b : nullptr, y,
           a.factor, uint32_t{combine}, a.out, out);
}

namespace {

cl_kernel softmax_kernel(keel_ctx &ctx) {
    return ctx.kernels->get(Source::rows, "softmax", {{"LANES", lanes_of(ctx.form)}});
}

} // namespace

void plan_softmax(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.out, "out");
    if (!choice.named) return;
    softmax_kernel(ctx);
    name_kernel(choice, "softmax %s", form_name(ctx.form));
}

void run_softmax(keel_ctx &ctx, const keel_move_args &a) {
    const View x = view_of(ctx.host, a.x, "x"), out = view_of(ctx.host, a.out, "out");
    if (x.rows() == 0 || x.n == 0) return;
    launch(ctx, softmax_kernel(ctx), row_grid(ctx.form, x.rows()), a.x, x, a.out, out);
}

} // namespace keel_opencl

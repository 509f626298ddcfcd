// silu_mul, gelu_mul, add, add_bias, scale, scaled_add, softmax.
#include "opencl/ops/ops.hpp"

namespace keel_opencl {
namespace {

enum Act : uint32_t { act_silu, act_gelu, act_gelu_tanh };
enum What : uint32_t { do_add, do_add_bias, do_scale, do_scaled_add };

cl_kernel kernel(keel_ctx &ctx, const char *kernel_name, Form form) {
    return ctx.kernels->get(Source::elementwise, kernel_name, {{"LANES", lanes_of(form)}});
}

void build(keel_ctx &ctx, PlanChoice &choice, const char *op, const char *kernel_name) {
    if (!choice.named) return;
    const Form form = ctx.form;
    kernel(ctx, kernel_name, form);
    name_kernel(choice, "%s %s", op, form_name(form));
}

uint64_t width(Form form) { // W of kernels/types.cl
    return form == Form::local ? 4 : 16;
}

void plan_gate(keel_ctx &ctx, const keel_gate_args &a, const char *op, PlanChoice &choice) {
    view_of(ctx.host, a.gate, "gate");
    view_of(ctx.host, a.out, "out");
    if (a.up != nullptr) view_of(ctx.host, a.up, "up");
    build(ctx, choice, op, "gate_mul");
}

void run_gate(keel_ctx &ctx, const keel_gate_args &a, Act act) {
    const View gate = view_of(ctx.host, a.gate, "gate"), out = view_of(ctx.host, a.out, "out");
    const bool pairs = (a.features & KEEL_GATE_INTERLEAVED) != 0, has_up = !pairs && a.up != nullptr;
    const View up = has_up ? view_of(ctx.host, a.up, "up") : View{};
    if (out.rows() == 0 || out.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "gate_mul", form), piece_grid(form, out.n, width(form), out.rows()), a.gate, gate,
           has_up ? a.up : nullptr, up, has_up ? 1U : 0U, pairs ? 1U : 0U, static_cast<uint32_t>(act), a.out,
           out);
}

void plan_combine(keel_ctx &ctx, const keel_elementwise_args &a, bool two, const char *op,
                  PlanChoice &choice) {
    view_of(ctx.host, a.a, "a");
    view_of(ctx.host, a.out, "out");
    if (two) view_of(ctx.host, a.b, "b");
    build(ctx, choice, op, "combine");
}

void run_combine(keel_ctx &ctx, const keel_elementwise_args &a, What what) {
    const bool two = what == do_add || what == do_add_bias;
    const View x = view_of(ctx.host, a.a, "a"), out = view_of(ctx.host, a.out, "out");
    const View y = two ? view_of(ctx.host, a.b, "b") : View{};
    if (out.rows() == 0 || out.n == 0) return;
    const Form form = ctx.form;
    launch(ctx, kernel(ctx, "combine", form), piece_grid(form, out.n, width(form), out.rows()), a.a, x,
           two ? a.b : nullptr, y, a.factor, static_cast<uint32_t>(what), a.out, out);
}

} // namespace

void plan_silu_mul(keel_ctx &ctx, const keel_gate_args &a, PlanChoice &choice) {
    check_silu_mul(ctx.host, a);
    plan_gate(ctx, a, "silu_mul", choice);
}

void run_silu_mul(keel_ctx &ctx, const keel_gate_args &a) {
    run_gate(ctx, a, act_silu);
}

void plan_gelu_mul(keel_ctx &ctx, const keel_gate_args &a, PlanChoice &choice) {
    check_gelu_mul(ctx.host, a);
    plan_gate(ctx, a, "gelu_mul", choice);
}

void run_gelu_mul(keel_ctx &ctx, const keel_gate_args &a) {
    run_gate(ctx, a, (a.features & KEEL_GELU_TANH) != 0 ? act_gelu_tanh : act_gelu);
}

void plan_add(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_add(ctx.host, a);
    plan_combine(ctx, a, true, "add", choice);
}

void run_add(keel_ctx &ctx, const keel_elementwise_args &a) {
    run_combine(ctx, a, do_add);
}

void plan_add_bias(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_add_bias(ctx.host, a);
    plan_combine(ctx, a, true, "add_bias", choice);
}

void run_add_bias(keel_ctx &ctx, const keel_elementwise_args &a) {
    run_combine(ctx, a, do_add_bias);
}

void plan_scale(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_scale(ctx.host, a);
    plan_combine(ctx, a, false, "scale", choice);
}

void run_scale(keel_ctx &ctx, const keel_elementwise_args &a) {
    run_combine(ctx, a, do_scale);
}

void plan_scaled_add(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_scaled_add(ctx.host, a);
    plan_combine(ctx, a, false, "scaled_add", choice);
}

void run_scaled_add(keel_ctx &ctx, const keel_elementwise_args &a) {
    run_combine(ctx, a, do_scaled_add);
}

namespace {

cl_kernel softmax_kernel(keel_ctx &ctx) {
    return ctx.kernels->get(Source::rows, "softmax", {{"LANES", lanes_of(ctx.form)}});
}

} // namespace

void plan_softmax(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    check_softmax(ctx.host, a);
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

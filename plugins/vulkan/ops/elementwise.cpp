// silu_mul, gelu_mul, add, add_bias, scale, scaled_add, softmax.
#include "vulkan/ops/ops.hpp"

namespace keel_vulkan {
namespace {

constexpr uint32_t kGroup = 64;

enum Activation : uint32_t { act_silu = 0, act_gelu = 1, act_gelu_tanh = 2 };
enum Kind : uint32_t { kind_add = 0, kind_add_bias = 1, kind_scale = 2, kind_scaled_add = 3 };

bool interleaved(const keel_gate_args &a) {
    return (a.features & KEEL_GATE_INTERLEAVED) != 0;
}

VkPipeline gate_pipeline(keel_ctx &ctx, Activation act, bool is_interleaved) {
    return ctx.kernels.get(Kernel::gate, {kGroup, act, is_interleaved});
}

void plan_gate(keel_ctx &ctx, const keel_gate_args &a, Activation act, const char *op, PlanChoice &choice) {
    tensor_of(ctx, a.gate, "gate"), tensor_of(ctx, a.out, "out");
    if (!interleaved(a) && a.up != nullptr) tensor_of(ctx, a.up, "up");
    gate_pipeline(ctx, act, interleaved(a));
    name_kernel(choice, "%s", op);
}

void run_gate(keel_ctx &ctx, const keel_gate_args &a, Activation act) {
    const Tensor out = tensor_of(ctx, a.out, "out");
    GateParams p = {};
    p.gate = base_of(a.gate), p.to = base_of(a.out);
    p.gate_at = rows_of(tensor_of(ctx, a.gate, "gate")), p.out_at = rows_of(out);
    if (!interleaved(a) && a.up != nullptr)
        p.up = base_of(a.up), p.up_at = rows_of(tensor_of(ctx, a.up, "up"));
    p.m = out.shape[2], p.n = out.n;
    ctx.stream.dispatch(gate_pipeline(ctx, act, interleaved(a)), p, groups(p.n, kGroup), groups(p.m, 1));
}

VkPipeline pipeline(keel_ctx &ctx, Kind kind) {
    return ctx.kernels.get(Kernel::elementwise, {kGroup, kind});
}

// add_bias: one row for all
Tensor second(const keel_ctx &ctx, const keel_elementwise_args &a, Kind kind) {
    return kind <= kind_add_bias ? tensor_of(ctx, a.b, "b") : Tensor{};
}

void plan(keel_ctx &ctx, const keel_elementwise_args &a, Kind kind, const char *op, PlanChoice &choice) {
    tensor_of(ctx, a.a, "a"), tensor_of(ctx, a.out, "out"), second(ctx, a, kind);
    pipeline(ctx, kind);
    name_kernel(choice, "%s", op);
}

void run(keel_ctx &ctx, const keel_elementwise_args &a, Kind kind) {
    ElementwiseParams p = {};
    p.a = base_of(a.a), p.b = kind <= kind_add_bias ? base_of(a.b) : 0, p.to = base_of(a.out);
    p.a_at = tensor_of(ctx, a.a, "a"), p.b_at = second(ctx, a, kind), p.out_at = tensor_of(ctx, a.out, "out");
    flatten(p.out_at, {&p.a_at, kind == kind_add ? &p.b_at : nullptr}, kind != kind_add_bias);
    p.factor = a.factor;
    ctx.stream.dispatch(pipeline(ctx, kind), p, groups(p.out_at.n, kGroup), groups(row_count(p.out_at), 1));
}

} // namespace

void plan_silu_mul(keel_ctx &ctx, const keel_gate_args &a, PlanChoice &choice) {
    check_silu_mul(ctx.host, a);
    plan_gate(ctx, a, act_silu, "silu_mul", choice);
}

void run_silu_mul(keel_ctx &ctx, const keel_gate_args &a) {
    run_gate(ctx, a, act_silu);
}

void plan_gelu_mul(keel_ctx &ctx, const keel_gate_args &a, PlanChoice &choice) {
    check_gelu_mul(ctx.host, a);
    plan_gate(ctx, a, (a.features & KEEL_GELU_TANH) != 0 ? act_gelu_tanh : act_gelu, "gelu_mul", choice);
}

void run_gelu_mul(keel_ctx &ctx, const keel_gate_args &a) {
    run_gate(ctx, a, (a.features & KEEL_GELU_TANH) != 0 ? act_gelu_tanh : act_gelu);
}

void plan_add(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_add(ctx.host, a);
    plan(ctx, a, kind_add, "add", choice);
}

void run_add(keel_ctx &ctx, const keel_elementwise_args &a) {
    run(ctx, a, kind_add);
}

void plan_add_bias(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_add_bias(ctx.host, a);
    plan(ctx, a, kind_add_bias, "add_bias", choice);
}

void run_add_bias(keel_ctx &ctx, const keel_elementwise_args &a) {
    run(ctx, a, kind_add_bias);
}

void plan_scale(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_scale(ctx.host, a);
    plan(ctx, a, kind_scale, "scale", choice);
}

void run_scale(keel_ctx &ctx, const keel_elementwise_args &a) {
    run(ctx, a, kind_scale);
}

void plan_scaled_add(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {
    check_scaled_add(ctx.host, a);
    plan(ctx, a, kind_scaled_add, "scaled_add", choice);
}

void run_scaled_add(keel_ctx &ctx, const keel_elementwise_args &a) {
    run(ctx, a, kind_scaled_add);
}

void plan_softmax(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    check_softmax(ctx.host, a);
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.out, "out");
    ctx.kernels.get(Kernel::softmax, {kGroup});
    name_kernel(choice, "softmax");
}

void run_softmax(keel_ctx &ctx, const keel_move_args &a) {
    const Tensor x = tensor_of(ctx, a.x, "x");
    RowsParams p = {};
    p.x = base_of(a.x), p.values = base_of(a.out);
    p.x_at = rows_of(x), p.values_at = rows_of(tensor_of(ctx, a.out, "out"));
    p.rows = x.shape[2], p.n = x.n;
    if (p.n != 0) ctx.stream.dispatch(ctx.kernels.get(Kernel::softmax, {kGroup}), p, groups(p.rows, 1));
}

} // namespace keel_vulkan

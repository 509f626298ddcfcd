// silu_mul, gelu_mul, add, add_bias, scale, scaled_add.
#include "ops.hpp"

namespace keel_vulkan {
namespace {

constexpr uint32_t kGroup = 64;

enum Activation : uint32_t { act_silu = 0, act_gelu = 1, act_gelu_tanh = 2 };
enum Kind : uint32_t { kind_add = 0, kind_add_bias = 1, kind_scale = 2, kind_scaled_add = 3 };

bool interleaved(const keel_gate_args &a) {
    return (a.features & KEEL_GATE_INTERLEAVED) != 0;
}

VkPipeline gate_pipeline(keel_ctx &ctx, Activation act, bool is_interleaved) {
    return ctx.pipelines.get(Kernel::gate, {kGroup, act, is_interleaved});
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
    return ctx.pipelines.get(Kernel::elementwise, {kGroup, kind});
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

#define KEEL_VULKAN_ELEMENTWISE(slot)                                                                        \
    void plan_##slot(keel_ctx &ctx, const keel_elementwise_args &a, PlanChoice &choice) {                    \
        check_##slot(ctx.host, a);                                                                           \
        plan(ctx, a, kind_##slot, #slot, choice);                                                            \
    }                                                                                                        \
    void run_##slot(keel_ctx &ctx, const keel_elementwise_args &a) {                                         \
        run(ctx, a, kind_##slot);                                                                            \
    }
KEEL_VULKAN_ELEMENTWISE(add)
KEEL_VULKAN_ELEMENTWISE(add_bias)
KEEL_VULKAN_ELEMENTWISE(scale)
KEEL_VULKAN_ELEMENTWISE(scaled_add)
#undef KEEL_VULKAN_ELEMENTWISE

} // namespace keel_vulkan

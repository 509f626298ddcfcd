// The ops silu_mul, gelu_mul, add, add_bias, scale, scaled_add and softmax.
#include "vulkan/ops/ops.hpp"

namespace keel_vulkan {
namespace {

constexpr uint32_t kElementGroup = 64;

bool interleaved(const keel_gate_args &a) { return (a.features & KEEL_GATE_INTERLEAVED) != 0; }

VkPipeline gate_pipeline(keel_ctx &ctx, Gate gate, bool is_interleaved) {
    return ctx.kernels.get(Kernel::gate, {kElementGroup, gate, is_interleaved});
}

VkPipeline combine_pipeline(keel_ctx &ctx, Combine combine) {
    return ctx.kernels.get(Kernel::elementwise, {kElementGroup, combine});
}

// Returns the second operand. For add_bias, all rows of the result use the same row of it.
Tensor second(const keel_ctx &ctx, const keel_elementwise_args &a, Combine combine) {
    return combine <= combine_add_bias ? tensor_of(ctx, a.b, "b") : Tensor{};
}

} // namespace

void plan_gate(keel_ctx &ctx, const keel_gate_args &a, Gate gate, const char *op,
               PlanChoice &choice) {
    tensor_of(ctx, a.gate, "gate"), tensor_of(ctx, a.out, "out");
    if (!interleaved(a) && a.up != nullptr) tensor_of(ctx, a.up, "up");
    gate_pipeline(ctx, gate, interleaved(a));
    name_kernel(choice, "%s", op);
}

void run_gate(keel_ctx &ctx, const keel_gate_args &a, Gate gate) {
    const Tensor out = tensor_of(ctx, a.out, "out");
    GateParams p = {};
    p.gate = base_of(a.gate), p.to = base_of(a.out);
    p.gate_at = rows_of(tensor_of(ctx, a.gate, "gate")), p.out_at = rows_of(out);
    if (!interleaved(a) && a.up != nullptr)
        p.up = base_of(a.up), p.up_at = rows_of(tensor_of(ctx, a.up, "up"));
    p.m = out.shape[2], p.n = out.n;
    ctx.stream.dispatch(gate_pipeline(ctx, gate, interleaved(a)), p, groups(p.n, kElementGroup),
                        groups(p.m, 1));
}

void plan_combine(keel_ctx &ctx, const keel_elementwise_args &a, Combine combine, const char *op,
                  PlanChoice &choice) {
    tensor_of(ctx, a.a, "a"), tensor_of(ctx, a.out, "out"), second(ctx, a, combine);
    combine_pipeline(ctx, combine);
    name_kernel(choice, "%s", op);
}

void run_combine(keel_ctx &ctx, const keel_elementwise_args &a, Combine combine) {
    ElementwiseParams p = {};
    p.a = base_of(a.a), p.b = combine <= combine_add_bias ? base_of(a.b) : 0, p.to = base_of(a.out);
    p.a_at = tensor_of(ctx, a.a, "a"), p.b_at = second(ctx, a, combine);
    p.out_at = tensor_of(ctx, a.out, "out");
    flatten(p.out_at, {&p.a_at, combine == combine_add ? &p.b_at : nullptr},
            combine != combine_add_bias);
    p.factor = a.factor;
    ctx.stream.dispatch(combine_pipeline(ctx, combine), p, groups(p.out_at.n, kElementGroup),
                        groups(row_count(p.out_at), 1));
}

void plan_softmax(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.out, "out");
    ctx.kernels.get(Kernel::softmax, {kElementGroup});
    name_kernel(choice, "softmax");
}

void run_softmax(keel_ctx &ctx, const keel_move_args &a) {
    const Tensor x = tensor_of(ctx, a.x, "x");
    RowsParams p = {};
    p.x = base_of(a.x), p.values = base_of(a.out);
    p.x_at = rows_of(x), p.values_at = rows_of(tensor_of(ctx, a.out, "out"));
    p.rows = x.shape[2], p.n = x.n;
    if (p.n != 0)
        ctx.stream.dispatch(ctx.kernels.get(Kernel::softmax, {kElementGroup}), p,
                            groups(p.rows, 1));
}

} // namespace keel_vulkan

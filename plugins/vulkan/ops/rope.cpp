// The ops rope and qkv_prepare.
#include "vulkan/ops/kv_access.hpp"

namespace keel_vulkan {
namespace {

VkPipeline rope_pipeline(keel_ctx &ctx, int64_t dim) {
    return ctx.kernels.get(Kernel::rope, {kRowGroup, room_for(dim, 128)});
}

} // namespace

void plan_rope(keel_ctx &ctx, const keel_rope_args &a, PlanChoice &choice) {
    at(ctx, a.x, "x"), at(ctx, a.out, "out");
    if (a.positions->rank == 2 &&
        (a.positions->shape[1] < 1 || a.x->shape[1] % a.positions->shape[1] != 0))
        refuse(ctx.host, KEEL_E_INVALID_ARG,
               "rope: the number of heads is not a multiple of the number of heads in positions");
    rope_pipeline(ctx, a.x->shape[2]);
    name_kernel(choice, "rope");
}

void run_rope(keel_ctx &ctx, const keel_rope_args &a) {
    RopeParams p = {};
    p.rope = rope_of(ctx, a.tables, a.x->shape[2], "rope");
    p.x = base_of(a.x), p.to = base_of(a.out), p.positions = base_of(a.positions);
    p.x_at = at(ctx, a.x, "x"), p.out_at = at(ctx, a.out, "out");
    p.positions_at = positions_of(ctx, a.positions, "rope");
    p.m = static_cast<uint>(a.x->shape[0]), p.heads = static_cast<uint>(a.x->shape[1]);
    p.dim = static_cast<uint>(a.x->shape[2]);
    p.group = a.positions->rank == 2 ? static_cast<uint>(a.x->shape[1] / a.positions->shape[1]) : 1;
    p.sign = (a.features & KEEL_ROPE_INVERSE) != 0 ? -1.0F : 1.0F;
    if (p.dim != 0)
        ctx.stream.dispatch(rope_pipeline(ctx, a.x->shape[2]), p, groups(p.heads, 1),
                            groups(p.m, 1));
}

void plan_qkv_prepare(keel_ctx &ctx, const keel_qkv_args &a, PlanChoice &choice) {
    at(ctx, a.q, "q"), at(ctx, a.k, "k"), at(ctx, a.v, "v"), at(ctx, a.q_out, "q_out");
    append_pipeline(ctx, a.kv);
    name_kernel(choice, "qkv_prepare %s/%s", keel_dtype_name(a.kv->k->dtype),
                keel_dtype_name(a.kv->v->dtype));
}

namespace {

void prepare(keel_ctx &ctx, const keel_qkv_args &a, const Seats *seats) {
    constexpr const char *op = "qkv_prepare";
    AppendParams p = {};
    p.kv = kv_of(ctx, a.kv, op, seats);
    p.rope = rope_of(ctx, a.tables, a.kv->k->shape[2], op);
    p.q = base_of(a.q), p.k = base_of(a.k), p.v = base_of(a.v), p.q_out = base_of(a.q_out);
    p.q_at = at(ctx, a.q, "q"), p.k_at = at(ctx, a.k, "k"), p.v_at = at(ctx, a.v, "v");
    p.q_out_at = at(ctx, a.q_out, "q_out");
    p.positions = base_of(a.positions), p.positions_at = positions_of(ctx, a.positions, op);
    if ((a.features & KEEL_QKV_NORM) != 0)
        p.q_norm = address_of(a.q_norm), p.k_norm = address_of(a.k_norm);
    const bool copies = (a.features & KEEL_QKV_UNROTATED) != 0;
    if (copies && a.q_unrotated != nullptr)
        p.q_unrotated = base_of(a.q_unrotated),
        p.q_unrotated_at = at(ctx, a.q_unrotated, "q_unrotated");
    if (copies && a.k_unrotated != nullptr)
        p.k_unrotated = base_of(a.k_unrotated),
        p.k_unrotated_at = at(ctx, a.k_unrotated, "k_unrotated");
    p.m = static_cast<uint>(a.q->shape[0]), p.heads = static_cast<uint>(a.q->shape[1]);
    p.group = a.kv->kv_heads != 0 ? p.heads / a.kv->kv_heads : 1;
    p.rotate = 1;
    p.eps = a.eps;
    ctx.stream.dispatch(append_pipeline(ctx, a.kv), p,
                        groups(p.heads + 2 * uint64_t{a.kv->kv_heads}, 1), groups(p.m, 1));
}

} // namespace

void run_qkv_prepare(keel_ctx &ctx, const keel_qkv_args &a) { prepare(ctx, a, nullptr); }

void run_batch_prepare(keel_ctx &ctx, const keel_qkv_args &a, const Seats &seats) {
    prepare(ctx, a, &seats);
}

} // namespace keel_vulkan

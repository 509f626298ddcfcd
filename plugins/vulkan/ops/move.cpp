// The ops cast, copy, transpose and zero.
#include "vulkan/ops/ops.hpp"

#include <utility>

namespace keel_vulkan {
namespace {

constexpr uint32_t kMoveGroup = 64;

Tensor bytes_of(const keel_ctx &ctx, const keel_tensor *t, uint32_t unit, const char *name) {
    const View v = bytes_view(ctx.host, t, unit, name);
    return {{v.shape[0], v.shape[1], v.shape[2]},
            {v.stride[0], v.stride[1], v.stride[2]},
            v.n,
            v.offset};
}

// Returns the pipeline for a cast. An invocation casts one block at a time to block types, and one
// element at a time to other types.
VkPipeline cast_pipeline(keel_ctx &ctx, Type from, Type to) {
    return ctx.kernels.get(is_block(to) ? Kernel::cast_blocks : Kernel::cast,
                           {kMoveGroup, from, to});
}

void cast_types(const keel_move_args &a, Type &from, Type &to) {
    from = to = type_f32;
    type_of(a.x->dtype, from);
    type_of(a.out->dtype, to);
}

} // namespace

void plan_cast(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.out, "out");
    Type from, to;
    cast_types(a, from, to);
    cast_pipeline(ctx, from, to);
    name_kernel(choice, "cast %s to %s", type_name(from), type_name(to));
}

void run_cast(keel_ctx &ctx, const keel_move_args &a) {
    Type from, to;
    cast_types(a, from, to);
    MoveParams p = {};
    p.x = base_of(a.x), p.to = base_of(a.out);
    p.x_at = tensor_of(ctx, a.x, "x"), p.out_at = tensor_of(ctx, a.out, "out");
    if (!is_block(from) && !is_block(to)) flatten(p.out_at, {&p.x_at, nullptr}, true);
    const uint32_t n = is_block(to) ? p.out_at.n / 32 : p.out_at.n;
    ctx.stream.dispatch(cast_pipeline(ctx, from, to), p, groups(n, kMoveGroup),
                        groups(row_count(p.out_at), 1));
}

void plan_move(keel_ctx &ctx, const keel_move_args &a, Move move, const char *op,
               PlanChoice &choice) {
    const keel_tensor *x = move == move_zero ? nullptr : a.x;
    const uint32_t unit = common_unit(a.out, x);
    bytes_of(ctx, a.out, unit, "out");
    if (x != nullptr) bytes_of(ctx, x, unit, "x");
    ctx.kernels.get(Kernel::copy, {kMoveGroup, unit});
    name_kernel(choice, "%s by %u bytes", op, unit);
}

void run_move(keel_ctx &ctx, const keel_move_args &a, Move move) {
    const keel_tensor *x = move == move_zero ? nullptr : a.x;
    const uint32_t unit = common_unit(a.out, x);
    MoveParams p = {};
    p.to = base_of(a.out);
    p.out_at = bytes_of(ctx, a.out, unit, "out");
    if (move == move_transpose) { // exchanges the two outer dimensions of out
        std::swap(p.out_at.shape[1], p.out_at.shape[2]);
        std::swap(p.out_at.stride[1], p.out_at.stride[2]);
    }
    if (x != nullptr) p.x = base_of(x), p.x_at = bytes_of(ctx, x, unit, "x");
    flatten(p.out_at, {x != nullptr ? &p.x_at : nullptr, nullptr}, true);
    ctx.stream.dispatch(ctx.kernels.get(Kernel::copy, {kMoveGroup, unit}), p,
                        groups(p.out_at.n, kMoveGroup), groups(row_count(p.out_at), 1));
}

} // namespace keel_vulkan

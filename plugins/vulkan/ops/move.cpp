// cast, copy, transpose, zero.
#include "vulkan/ops/ops.hpp"

#include <utility>

namespace keel_vulkan {
namespace {

constexpr uint32_t kGroup = 64;

Tensor bytes_of(const keel_ctx &ctx, const keel_tensor *t, uint32_t unit, const char *name) {
    const View v = bytes_view(ctx.host, t, unit, name);
    return {{v.shape[0], v.shape[1], v.shape[2]}, {v.stride[0], v.stride[1], v.stride[2]}, v.n, v.offset};
}

void plan_bytes(keel_ctx &ctx, const keel_move_args &a, const char *op, PlanChoice &choice) {
    const uint32_t unit = common_unit(a.out, a.x);
    bytes_of(ctx, a.out, unit, "out");
    if (a.x != nullptr) bytes_of(ctx, a.x, unit, "x");
    ctx.kernels.get(Kernel::copy, {kGroup, unit});
    name_kernel(choice, "%s by %u bytes", op, unit);
}

// turned: out's two dimensions outside a row change places
void run_bytes(keel_ctx &ctx, const keel_move_args &a, bool turned) {
    const uint32_t unit = common_unit(a.out, a.x);
    MoveParams p = {};
    p.to = base_of(a.out);
    p.out_at = bytes_of(ctx, a.out, unit, "out");
    if (turned) {
        std::swap(p.out_at.shape[1], p.out_at.shape[2]);
        std::swap(p.out_at.stride[1], p.out_at.stride[2]);
    }
    if (a.x != nullptr) p.x = base_of(a.x), p.x_at = bytes_of(ctx, a.x, unit, "x");
    flatten(p.out_at, {a.x != nullptr ? &p.x_at : nullptr, nullptr}, true);
    ctx.stream.dispatch(ctx.kernels.get(Kernel::copy, {kGroup, unit}), p, groups(p.out_at.n, kGroup),
                        groups(row_count(p.out_at), 1));
}

// What casts: to blocks whole blocks at a time, else element by element.
VkPipeline cast_pipeline(keel_ctx &ctx, Type from, Type to) {
    return ctx.kernels.get(is_block(to) ? Kernel::cast_blocks : Kernel::cast, {kGroup, from, to});
}

void cast_types(const keel_move_args &a, Type &from, Type &to) {
    from = to = type_f32;
    type_of(a.x->dtype, from);
    type_of(a.out->dtype, to);
}

} // namespace

void plan_cast(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    check_cast(ctx.host, a);
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
    ctx.stream.dispatch(cast_pipeline(ctx, from, to), p, groups(n, kGroup), groups(row_count(p.out_at), 1));
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
    check_zero(ctx.host, a);
    keel_move_args only_out = a;
    only_out.x = nullptr;
    plan_bytes(ctx, only_out, "zero", choice);
}

void run_zero(keel_ctx &ctx, const keel_move_args &a) {
    keel_move_args only_out = a;
    only_out.x = nullptr;
    run_bytes(ctx, only_out, false);
}

} // namespace keel_vulkan

// The ops argmax_rows and top_k_rows.
#include "vulkan/ops/ops.hpp"

#include <algorithm>

namespace keel_vulkan {
namespace {

VkPipeline pipeline(keel_ctx &ctx, Kernel kernel) {
    return ctx.kernels.get(kernel, {wide_group(ctx)});
}

RowsParams rows_params(const keel_ctx &ctx, const keel_tensor *x) {
    const Tensor at = tensor_of(ctx, x, "x");
    RowsParams p = {};
    p.x = base_of(x);
    p.x_at = rows_of(at);
    p.rows = at.shape[2], p.n = at.n;
    return p;
}

} // namespace

void plan_argmax_rows(keel_ctx &ctx, const keel_rows_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.index, "index");
    pipeline(ctx, Kernel::argmax);
    name_kernel(choice, "argmax_rows");
}

void run_argmax_rows(keel_ctx &ctx, const keel_rows_args &a) {
    RowsParams p = rows_params(ctx, a.x);
    p.index = base_of(a.index);
    p.index_at = {0, 1, tensor_of(ctx, a.index, "index").offset}; // there is one element per row
    ctx.stream.dispatch(pipeline(ctx, Kernel::argmax), p, groups(p.rows, 1));
}

void plan_top_k_rows(keel_ctx &ctx, const keel_rows_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.index, "index"), tensor_of(ctx, a.values, "values");
    pipeline(ctx, Kernel::top_k);
    name_kernel(choice, "top_k_rows");
}

void run_top_k_rows(keel_ctx &ctx, const keel_rows_args &a) {
    RowsParams p = rows_params(ctx, a.x);
    const Tensor index = tensor_of(ctx, a.index, "index");
    p.values = base_of(a.values), p.values_at = rows_of(tensor_of(ctx, a.values, "values"));
    p.index = base_of(a.index), p.index_at = rows_of(index);
    // In the worst case, taking an element needs one pass over the row by one invocation, and two
    // reductions.
    const uint32_t group = wide_group(ctx);
    const uint64_t rounds = p.n / group + 2 + 2 * (group / 4 + 1);
    const uint64_t step = ctx.device.limits_loops()
                              ? std::max<uint64_t>(Device::kMostLoops / rounds, 2) - 1
                              : index.n;
    for (p.first = 0; p.first < index.n; p.first = p.k) {
        p.k = static_cast<uint>(std::min<uint64_t>(p.first + step, index.n));
        ctx.stream.dispatch(pipeline(ctx, Kernel::top_k), p, groups(p.rows, 1));
    }
}

} // namespace keel_vulkan

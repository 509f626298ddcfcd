// softmax, argmax_rows, top_k_rows.
#include "ops.hpp"

namespace keel_vulkan {
namespace {

VkPipeline pipeline(keel_ctx &ctx, Kernel kernel) {
    return ctx.pipelines.get(kernel, {64});
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

void plan_softmax(keel_ctx &ctx, const keel_move_args &a, PlanChoice &choice) {
    check_softmax(ctx.host, a);
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.out, "out");
    pipeline(ctx, Kernel::softmax);
    name_kernel(choice, "softmax");
}

void run_softmax(keel_ctx &ctx, const keel_move_args &a) {
    RowsParams p = rows_params(ctx, a.x);
    p.values = base_of(a.out), p.values_at = rows_of(tensor_of(ctx, a.out, "out"));
    if (p.n != 0) ctx.stream.dispatch(pipeline(ctx, Kernel::softmax), p, groups(p.rows, 1));
}

void plan_argmax_rows(keel_ctx &ctx, const keel_rows_args &a, PlanChoice &choice) {
    check_argmax_rows(ctx.host, a);
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.index, "index");
    pipeline(ctx, Kernel::argmax);
    name_kernel(choice, "argmax_rows");
}

void run_argmax_rows(keel_ctx &ctx, const keel_rows_args &a) {
    RowsParams p = rows_params(ctx, a.x);
    p.index = base_of(a.index);
    p.index_at = {0, 1, tensor_of(ctx, a.index, "index").offset}; // one element for a row
    ctx.stream.dispatch(pipeline(ctx, Kernel::argmax), p, groups(p.rows, 1));
}

void plan_top_k_rows(keel_ctx &ctx, const keel_rows_args &a, PlanChoice &choice) {
    check_top_k_rows(ctx.host, a);
    tensor_of(ctx, a.x, "x"), tensor_of(ctx, a.index, "index"), tensor_of(ctx, a.values, "values");
    pipeline(ctx, Kernel::top_k);
    name_kernel(choice, "top_k_rows");
}

void run_top_k_rows(keel_ctx &ctx, const keel_rows_args &a) {
    RowsParams p = rows_params(ctx, a.x);
    const Tensor index = tensor_of(ctx, a.index, "index");
    p.values = base_of(a.values), p.values_at = rows_of(tensor_of(ctx, a.values, "values"));
    p.index = base_of(a.index), p.index_at = rows_of(index);
    p.k = index.n;
    if (p.k != 0) ctx.stream.dispatch(pipeline(ctx, Kernel::top_k), p, groups(p.rows, 1));
}

} // namespace keel_vulkan

// The ops matmul and embed.
#include "vulkan/ops/ops.hpp"
#include "vulkan/weights.hpp"

namespace keel_vulkan {
namespace {

// for at most this many rows of x, linear_vec reads W once for each row of x
constexpr uint32_t kVecMost = 3;
constexpr uint32_t kTileGroup = 128, kTileN = 64;
// Columns of W in a dispatch if the device limits loops. A loop has 33 rounds for 16 columns.
constexpr int64_t kLoopCols = 28672;

const WeightShape *shape_of(const keel_weight *weight) {
    return weight != nullptr ? &weight->shape : nullptr;
}

// The device addresses and strides of W, which is a prepared weight or a plain tensor. Only calls
// that run an op use this struct. op_plan cannot use it, because buffers do not exist when ops are
// planned.
struct Placed {
    uint64_t w = 0, scales = 0, w_stride = 0, scales_stride = 0;
};

Placed placed(const keel_weight *weight, const keel_tensor *w) {
    Placed p;
    if (weight != nullptr) {
        p.w = weight->range.address();
        p.scales = p.w + weight->shape.scales_offset();
        p.w_stride = weight->row_stride;
        p.scales_stride = weight->scales_stride();
    } else {
        p.w = address_of(w);
        p.w_stride = static_cast<uint64_t>(w->stride[0]);
    }
    return p;
}

// Returns the size of a team. On a processor, more invocations gain little, and a barrier takes
// long.
uint32_t vec_group(const keel_ctx &ctx) { return ctx.device.is_processor() ? 32 : 128; }
constexpr uint32_t kVecRows = 4;

bool x_by_fours(const keel_matmul_args &a) {
    return a.x->offset % 16 == 0 && a.x->stride[0] % 16 == 0;
}

VkPipeline vec_pipeline(keel_ctx &ctx, Type type, bool prepared, bool by_fours) {
    return ctx.kernels.get(Kernel::linear_vec,
                           {vec_group(ctx), type, prepared, kVecRows, by_fours});
}

uint32_t tile_rows(int64_t m) { return m <= 16 ? 16 : 64; }

VkPipeline tile_pipeline(keel_ctx &ctx, Type type, bool prepared, int64_t m) {
    return ctx.kernels.get(Kernel::linear_tile, {kTileGroup, type, prepared, tile_rows(m)});
}

// Returns true if cooperative matrices are used: x must have enough rows to fill their tiles.
bool by_matrices(const keel_ctx &ctx, int64_t m) { return ctx.device.has_matrices() && m > 16; }

VkPipeline many_pipeline(keel_ctx &ctx, Type type, bool prepared, int64_t m) {
    return by_matrices(ctx, m)
               ? ctx.kernels.get(Kernel::linear_matrix, {kTileGroup, type, prepared})
               : tile_pipeline(ctx, type, prepared, m);
}

} // namespace

void plan_matmul(keel_ctx &ctx, const keel_matmul_args &a, PlanChoice &choice) {
    const WeightShape w = weight_in_use(ctx.host, shape_of(a.weight), a.w, "matmul");
    const int64_t m = a.x->shape[0];
    if (a.x->stride[0] % 4 != 0 || a.out->stride[0] % 4 != 0 || m > INT32_MAX || w.rows > INT32_MAX)
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "matmul: a stride is not a multiple of 4, or a size does not fit into 32 bits");
    if (ctx.device.limits_loops() && m > kVecMost && w.cols > kLoopCols)
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "matmul: %lld columns are too many, because lavapipe ends loops after 65535 rounds, "
               "which are enough for %lld columns",
               static_cast<long long>(w.cols), static_cast<long long>(kLoopCols));
    const bool prepared = a.weight != nullptr;
    if (!choice.named) return; // a call makes only the pipeline that it needs
    // The plan is also used for calls with smaller m, so this function also makes their pipelines.
    vec_pipeline(ctx, w.type, prepared, x_by_fours(a));
    if (m > kVecMost) tile_pipeline(ctx, w.type, prepared, 16);
    if (m > 16) many_pipeline(ctx, w.type, prepared, m);
    const char *form = m <= kVecMost ? "vec" : by_matrices(ctx, m) ? "matrix fast" : "tile";
    name_kernel(choice, "matmul %s %s%s", type_name(w.type), form, prepared ? "" : " in place");
}

void run_matmul(keel_ctx &ctx, const keel_matmul_args &a) {
    const WeightShape w = weight_in_use(ctx.host, shape_of(a.weight), a.w, "matmul");
    const int64_t m = a.x->shape[0];
    if (m == 0 || w.rows == 0) return;
    const Placed from = placed(a.weight, a.w);
    LinearParams p = {};
    p.x = address_of(a.x), p.to = address_of(a.out);
    p.w = from.w, p.scales = from.scales, p.w_stride = from.w_stride,
    p.scales_stride = from.scales_stride;
    if ((a.features & KEEL_MATMUL_BIAS) != 0) p.bias = address_of(a.bias);
    p.x_stride = static_cast<uint64_t>(a.x->stride[0]),
    p.out_stride = static_cast<uint64_t>(a.out->stride[0]);
    p.m = static_cast<uint>(m), p.n = static_cast<uint>(w.rows), p.k = static_cast<uint>(w.cols);
    p.accumulate = (a.features & KEEL_MATMUL_ACCUMULATE) != 0;
    const bool prepared = a.weight != nullptr;
    if (m <= kVecMost) {
        const uint32_t group = vec_group(ctx);
        const uint32_t teams = ctx.subgroups ? (group + ctx.device.facts().subgroup_size - 1) /
                                                   ctx.device.facts().subgroup_size
                                             : 1;
        ctx.stream.dispatch(vec_pipeline(ctx, w.type, prepared, x_by_fours(a)), p,
                            groups(p.n, kVecRows * teams), p.m);
        return;
    }
    // Every device supports grids of 65535 rows of tiles. If x has more rows, it is processed in
    // pieces.
    const uint32_t rows = tile_rows(m);
    const VkPipeline pipeline = many_pipeline(ctx, w.type, prepared, m);
    const uint64_t most = uint64_t{65535} * rows;
    for (uint64_t done = 0; done < static_cast<uint64_t>(m); done += most) {
        const uint64_t left = static_cast<uint64_t>(m) - done;
        p.m = static_cast<uint>(left < most ? left : most);
        ctx.stream.dispatch(pipeline, p, groups(p.n, kTileN), groups(p.m, rows));
        p.x += most * p.x_stride, p.to += most * p.out_stride;
    }
}

void plan_embed(keel_ctx &ctx, const keel_embed_args &a, PlanChoice &choice) {
    const WeightShape w = weight_in_use(ctx.host, shape_of(a.weight), a.w, "embed");
    if (a.out->stride[0] % 4 != 0)
        refuse(ctx.host, KEEL_E_UNSUPPORTED, "embed: a stride is not a multiple of 4");
    ctx.kernels.get(Kernel::embed, {64, w.type, a.weight != nullptr});
    name_kernel(choice, "embed %s", type_name(w.type));
}

void run_embed(keel_ctx &ctx, const keel_embed_args &a) {
    const WeightShape w = weight_in_use(ctx.host, shape_of(a.weight), a.w, "embed");
    const Placed from = placed(a.weight, a.w);
    EmbedParams p = {};
    p.ids = address_of(a.ids), p.to = address_of(a.out);
    p.w = from.w, p.scales = from.scales, p.w_stride = from.w_stride,
    p.scales_stride = from.scales_stride;
    p.out_stride = static_cast<uint64_t>(a.out->stride[0]);
    p.m = static_cast<uint>(a.ids->shape[0]), p.rows = static_cast<uint>(w.rows),
    p.cols = static_cast<uint>(w.cols);
    p.factor = a.scale;
    ctx.stream.dispatch(ctx.kernels.get(Kernel::embed, {64, w.type, a.weight != nullptr}), p,
                        groups(p.m, 1));
}

} // namespace keel_vulkan

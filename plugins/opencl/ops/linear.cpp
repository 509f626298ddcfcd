// The ops matmul and embed.
#include "opencl/ops/ops.hpp"

namespace keel_opencl {
namespace {

// A weight in the form that kernels/linear.cl takes.
struct WeightConstants {
    uint64_t offset, scales;
    uint32_t row_bytes, rows, cols, unused = 0;
};

// A weight that an op gets either as a prepared weight or as a tensor.
struct WeightSource {
    WeightShape shape;
    WeightConstants constants;
    cl_mem memory;
    bool split;
};

WeightSource source_of(keel_ctx &ctx, const keel_weight *weight, const keel_tensor *w,
                       const char *op) {
    WeightSource s{};
    s.shape = weight_in_use(ctx.host, weight != nullptr ? &weight->shape : nullptr, w, op);
    s.constants.rows = static_cast<uint32_t>(s.shape.rows);
    s.constants.cols = static_cast<uint32_t>(s.shape.cols);
    if (weight != nullptr) {
        s.split = weight->split;
        s.memory = weight->memory.get();
        s.constants.offset = weight->offset;
        s.constants.scales = weight->offset + s.shape.scales_offset();
        s.constants.row_bytes = static_cast<uint32_t>(s.shape.row_bytes());
        if (s.shape.row_bytes() > UINT32_MAX)
            refuse(ctx.host, KEEL_E_UNSUPPORTED, "%s: rows of %lld elements are too long", op,
                   static_cast<long long>(s.shape.cols));
        return s;
    }
    view_of(ctx.host, w, "w"); // throws Refusal if the strides are not whole units
    if (w->stride[0] < 0 || w->stride[0] > UINT32_MAX)
        refuse(ctx.host, KEEL_E_UNSUPPORTED, "%s: a row stride of %lld bytes is not supported", op,
               static_cast<long long>(w->stride[0]));
    s.memory = memory_of(ctx, w);
    s.constants.offset = w->offset;
    s.constants.row_bytes = static_cast<uint32_t>(w->stride[0]);
    return s;
}

// The number of rows of W and of x that a work-item (plain form) or a group (local form) handles.
// `vector` is the number of floats in a register. Eight rows of x and two rows of W need sixteen
// sums. Devices with wide vectors have enough registers for sixteen sums.
struct Tile {
    int rows, tokens;
};

Tile tile_of(const keel_ctx &ctx, bool decode) {
    if (decode) return {4, 1};
    return ctx.device.vector >= 16 ? Tile{2, 8} : Tile{2, 4};
}

cl_kernel linear_kernel(keel_ctx &ctx, const char *name, const WeightSource &s, Form form,
                        const Tile &tile) {
    return ctx.kernels->get(Source::linear, name,
                            {{"W_TYPE", static_cast<int>(s.shape.type)},
                             {"SPLIT", s.split ? 1 : 0},
                             {"LANES", lanes_of(form)},
                             {"ROWS", tile.rows},
                             {"TOKENS", tile.tokens}});
}

} // namespace

void plan_matmul(keel_ctx &ctx, const keel_matmul_args &a, PlanChoice &choice) {
    const WeightSource s = source_of(ctx, a.weight, a.w, "matmul");
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.out, "out");
    if (!choice.named) return;
    // decode steps can also use a plan for several rows
    const bool prefills = a.x->shape[0] != 1;
    linear_kernel(ctx, "matvec", s, ctx.form, tile_of(ctx, true));
    if (prefills) linear_kernel(ctx, "matmul", s, ctx.form, tile_of(ctx, false));
    name_kernel(choice, "matmul %s %s %s", type_name(s.shape.type), s.split ? "split" : "rows",
                form_name(ctx.form));
}

void run_matmul(keel_ctx &ctx, const keel_matmul_args &a) {
    const int64_t m = a.x->shape[0];
    const WeightSource s = source_of(ctx, a.weight, a.w, "matmul");
    if (m == 0 || s.shape.rows == 0) return;
    const bool decode = m == 1;
    const Form form = ctx.form;
    const Tile tile = tile_of(ctx, decode);
    const bool biased = (a.features & KEEL_MATMUL_BIAS) != 0;
    const auto flags =
        static_cast<uint32_t>(a.features & (KEEL_MATMUL_BIAS | KEEL_MATMUL_ACCUMULATE));
    const auto n = static_cast<uint64_t>(s.shape.rows), tokens = static_cast<uint64_t>(m);
    Grid grid;
    if (decode)
        grid = form == Form::local
                   ? row_grid(form, (n + static_cast<uint64_t>(tile.rows) - 1) /
                                        static_cast<uint64_t>(tile.rows))
                   : Grid{{groups_for(n, static_cast<size_t>(tile.rows) * 8), 1, 1}, {8, 1, 1}};
    else if (form == Form::local)
        grid = {{groups_for(tokens, 64), groups_for(n, 64), 1}, {16, 16, 1}};
    else
        grid = {{groups_for(tokens, static_cast<size_t>(tile.tokens) * 8),
                 groups_for(n, static_cast<size_t>(tile.rows) * 8), 1},
                {8, 8, 1}};
    launch(ctx, linear_kernel(ctx, decode ? "matvec" : "matmul", s, form, tile), grid, a.x,
           view_of(ctx.host, a.x, "x"), s.memory, s.constants, biased ? a.bias : nullptr,
           offset_of(ctx, biased ? a.bias : nullptr, "bias"), flags, a.out,
           view_of(ctx.host, a.out, "out"));
}

void plan_embed(keel_ctx &ctx, const keel_embed_args &a, PlanChoice &choice) {
    const WeightSource s = source_of(ctx, a.weight, a.w, "embed");
    view_of(ctx.host, a.out, "out");
    view_of(ctx.host, a.ids, "ids");
    if (choice.named) linear_kernel(ctx, "embed", s, ctx.form, tile_of(ctx, true));
    name_kernel(choice, "embed %s %s", type_name(s.shape.type), s.split ? "split" : "rows");
}

void run_embed(keel_ctx &ctx, const keel_embed_args &a) {
    const WeightSource s = source_of(ctx, a.weight, a.w, "embed");
    const auto tokens = static_cast<uint64_t>(a.out->shape[0]),
               cols = static_cast<uint64_t>(s.shape.cols);
    if (tokens == 0 || cols == 0) return;
    const Form form = ctx.form;
    launch(ctx, linear_kernel(ctx, "embed", s, form, tile_of(ctx, true)),
           piece_grid(form, cols, 16, tokens), a.ids, view_of(ctx.host, a.ids, "ids"), s.memory,
           s.constants, a.scale, a.out, view_of(ctx.host, a.out, "out"));
}

} // namespace keel_opencl

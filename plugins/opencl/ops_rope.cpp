// rope.
#include "ops.hpp"

namespace keel_opencl {

void plan_rope(keel_ctx &ctx, const keel_rope_args &a, PlanChoice &choice) {
    check_rope(ctx.host, a);
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.out, "out");
    if (choice.named) name_kernel(choice, "rope %s", form_name(form_of(ctx, Family::rows)));
}

void run_rope(keel_ctx &ctx, const keel_rope_args &a) {
    const View x = view_of(ctx.host, a.x, "x"), out = view_of(ctx.host, a.out, "out");
    if (x.rows() == 0 || x.n == 0) return;
    const Form form = form_of(ctx, Family::rows);
    const uint32_t group = a.positions->rank == 2 && a.positions->shape[1] != 0
                               ? x.shape[2] / static_cast<uint32_t>(a.positions->shape[1])
                               : 1;
    launch(
        ctx,
        ctx.programs->kernel(Source::rope, "rope", {{"LANES", lanes_of(form)}, {"MAX_DIM", dim_class(x.n)}}),
        row_grid(form, x.rows()), a.x, x, a.positions, position_constants(ctx.host, a.positions, "rope"),
        group, rope_constants(ctx.host, a.tables, x.n, "rope"), a.tables->cos, a.tables->sin,
        (a.features & KEEL_ROPE_INVERSE) != 0 ? -1.0F : 1.0F, a.out, out);
}

} // namespace keel_opencl

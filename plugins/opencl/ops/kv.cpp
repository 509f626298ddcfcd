// The ops kv_append, kv_gather and kv_rerotate.
#include "opencl/ops/kv_access.hpp"

#include <algorithm>

namespace keel_opencl {
void plan_kv_append(keel_ctx &ctx, const keel_kv_append_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.k, "k");
    view_of(ctx.host, a.v, "v");
    build_kv(ctx, choice, "kv_append", a.kv, {"prepare"}, dim_of(a.kv));
}

namespace {

void append(keel_ctx &ctx, const keel_kv_append_args &a, const Seats *seats) {
    keel_qkv_args part{};
    part.k = a.k;
    part.v = a.v;
    part.positions = a.positions;
    part.kv = a.kv;
    run_prepare(ctx, part, "kv_append", seats);
}

} // namespace

void run_kv_append(keel_ctx &ctx, const keel_kv_append_args &a) { append(ctx, a, nullptr); }

void run_batch_append(keel_ctx &ctx, const keel_kv_append_args &a, const Seats &seats) {
    append(ctx, a, &seats);
}

void plan_kv_gather(keel_ctx &ctx, const keel_kv_gather_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.index, "index");
    for (uint32_t i = 0; i < a.n_sides; ++i) view_of(ctx.host, a.sides[i], "a side array");
    build_kv(ctx, choice, "kv_gather", a.from, {"gather_rows", "gather_values"}, 128);
}

void run_kv_gather(keel_ctx &ctx, const keel_kv_gather_args &a) {
    const KvConstants from = kv_constants(ctx.host, a.from, "kv_gather"),
                      to = kv_constants(ctx.host, a.to, "kv_gather");
    const View index = view_of(ctx.host, a.index, "index");
    const uint32_t count_offset = view_of(ctx.host, a.count, "count").offset;
    if (to.kv_heads == 0 || index.n == 0) return;
    const Form form = ctx.form;
    const uint64_t chunk = form == Form::local ? 4 : 32; // must equal CHUNK of kernels/kv.cl
    const keel_tensor *arenas[2][2] = {{a.from->k, a.to->k}, {a.from->v, a.to->v}};
    for (uint32_t values = 0; values < 2; ++values) {
        const auto units = static_cast<uint32_t>(row_bytes(arenas[values][0]) / 2);
        if (units == 0) continue;
        launch(ctx, kv_kernel(ctx, "gather_rows", form, 128),
               row_grid(form, (units + chunk - 1) / chunk * to.kv_heads), arenas[values][0], from,
               a.from->block_table, arenas[values][1], to, a.to->block_table, a.index, index,
               a.count, count_offset, values, units);
    }
    const auto move_values = [&](const keel_tensor *source, const keel_tensor *target) {
        launch(ctx, kv_kernel(ctx, "gather_values", form, 128), row_grid(form, to.kv_heads), source,
               view_of(ctx.host, source, "side"), target, view_of(ctx.host, target, "side"),
               a.index, index, a.count, count_offset);
    };
    move_values(a.from->positions, a.to->positions);
    for (uint32_t i = 0; i < a.n_sides; ++i) move_values(a.sides[i], a.sides[i]);
}

void plan_kv_rerotate(keel_ctx &ctx, const keel_kv_rerotate_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.row, "row");
    view_of(ctx.host, a.new_positions, "new_positions");
    if (a.source != nullptr) view_of(ctx.host, a.source, "source");
    build_kv(ctx, choice, "kv_rerotate", a.kv, {"rerotate"},
             static_cast<uint32_t>(a.kv->k->shape[2]));
}

void run_kv_rerotate(keel_ctx &ctx, const keel_kv_rerotate_args &a) {
    const KvConstants c = kv_constants(ctx.host, a.kv, "kv_rerotate");
    const int64_t end = std::min<int64_t>(a.end, c.max_length);
    if (end <= a.begin || c.kv_heads == 0 || c.k_dim == 0) return;
    const auto count = static_cast<uint32_t>(end - a.begin);
    const bool from_source = (a.features & KEEL_REROTATE_SOURCE) != 0;
    const keel_tensor *source = from_source ? a.source : nullptr;
    const Form form = ctx.form;
    launch(ctx, kv_kernel(ctx, "rerotate", form, c.k_dim),
           row_grid(form, uint64_t{count} * c.kv_heads), a.kv->k, c, a.kv->block_table,
           a.kv->lengths, a.kv->positions,
           rope_constants(ctx.host, a.tables, c.k_dim, "kv_rerotate"), a.tables->cos, a.tables->sin,
           a.row, view_of(ctx.host, a.row, "row"), a.new_positions,
           view_of(ctx.host, a.new_positions, "new_positions"), source,
           view_or_none(ctx, source, "source"), from_source ? 1U : 0U,
           static_cast<uint32_t>(a.begin), count);
}

} // namespace keel_opencl

// qkv_prepare, kv_append, kv_gather, kv_rerotate.
#include "ops.hpp"

#include <algorithm>

namespace keel_opencl {
namespace {

enum PrepareFlags : uint32_t { flag_norm = 1, flag_q_copy = 2, flag_k_copy = 4 };

uint32_t offset_of(keel_ctx &ctx, const keel_tensor *t) {
    return t != nullptr ? view_of(ctx.host, t, "norm").offset : 0;
}

View view_or_none(keel_ctx &ctx, const keel_tensor *t, const char *name) {
    return t != nullptr ? view_of(ctx.host, t, name) : View{};
}

cl_kernel kernel(keel_ctx &ctx, const char *name, Form form, uint32_t dim) {
    return ctx.programs->kernel(Source::kv, name, {{"LANES", lanes_of(form)}, {"MAX_DIM", dim_class(dim)}});
}

void name(keel_ctx &ctx, PlanChoice &choice, const char *op, const keel_kv_view *kv) {
    if (!choice.named) return;
    const Form form = form_of(ctx, Family::rows);
    kernel(ctx, "prepare", form, static_cast<uint32_t>(std::max(kv->k->shape[2], kv->v->shape[2])));
    name_kernel(choice, "%s %s/%s %s", op, keel_dtype_name(kv->k->dtype), keel_dtype_name(kv->v->dtype),
                form_name(form));
}

// kv_append is qkv_prepare without queries and rotation.
void run_prepare(keel_ctx &ctx, const keel_qkv_args &a, const char *op) {
    const KvConstants c = kv_constants(ctx.host, a.kv, op);
    const View k = view_of(ctx.host, a.k, "k"), v = view_of(ctx.host, a.v, "v"),
               q = view_or_none(ctx, a.q, "q");
    const uint32_t tokens = k.shape[1], heads = a.q != nullptr ? q.shape[2] : 0;
    if (tokens == 0 || heads + c.kv_heads == 0) return;
    const RopeConstants rope = a.tables != nullptr ? rope_constants(ctx.host, a.tables, c.k_dim, op)
                                                   : RopeConstants{1, 0, 0, 0, 0, 0, 0};
    const bool copies = (a.features & KEEL_QKV_UNROTATED) != 0;
    const keel_tensor *q_copy = copies ? a.q_unrotated : nullptr, *k_copy = copies ? a.k_unrotated : nullptr;
    const bool norm = (a.features & KEEL_QKV_NORM) != 0;
    const uint32_t flags = (norm ? flag_norm : 0U) | (q_copy != nullptr ? flag_q_copy : 0U) |
                           (k_copy != nullptr ? flag_k_copy : 0U);
    const keel_tensor *none = nullptr;
    const Form form = form_of(ctx, Family::rows);
    launch(ctx, kernel(ctx, "prepare", form, std::max(c.k_dim, c.v_dim)),
           row_grid(form, uint64_t{tokens} * (heads + 2 * c.kv_heads)), a.q, q, a.k, k, a.v, v, heads, tokens,
           a.positions, position_constants(ctx.host, a.positions, op), rope,
           a.tables != nullptr ? a.tables->cos : none, a.tables != nullptr ? a.tables->sin : none,
           norm ? a.q_norm : none, offset_of(ctx, norm ? a.q_norm : none), norm ? a.k_norm : none,
           offset_of(ctx, norm ? a.k_norm : none), flags, a.eps, a.kv->k, a.kv->v, c, a.kv->block_table,
           a.kv->lengths, a.kv->positions, a.q_out, view_or_none(ctx, a.q_out, "q_out"), q_copy,
           view_or_none(ctx, q_copy, "q_unrotated"), k_copy, view_or_none(ctx, k_copy, "k_unrotated"));
}

} // namespace

void plan_qkv_prepare(keel_ctx &ctx, const keel_qkv_args &a, PlanChoice &choice) {
    check_qkv_prepare(ctx.host, a);
    for (const keel_tensor *t : {a.q, a.k, a.v, a.q_out})
        view_of(ctx.host, t, "q, k, v or q_out");
    name(ctx, choice, "qkv_prepare", a.kv);
}

void run_qkv_prepare(keel_ctx &ctx, const keel_qkv_args &a) {
    run_prepare(ctx, a, "qkv_prepare");
}

void plan_kv_append(keel_ctx &ctx, const keel_kv_append_args &a, PlanChoice &choice) {
    check_kv_append(ctx.host, a);
    view_of(ctx.host, a.k, "k");
    view_of(ctx.host, a.v, "v");
    name(ctx, choice, "kv_append", a.kv);
}

void run_kv_append(keel_ctx &ctx, const keel_kv_append_args &a) {
    keel_qkv_args part{};
    part.k = a.k;
    part.v = a.v;
    part.positions = a.positions;
    part.kv = a.kv;
    run_prepare(ctx, part, "kv_append");
}

void plan_kv_gather(keel_ctx &ctx, const keel_kv_gather_args &a, PlanChoice &choice) {
    check_kv_gather(ctx.host, a);
    view_of(ctx.host, a.index, "index");
    for (uint32_t i = 0; i < a.n_sides; ++i)
        view_of(ctx.host, a.sides[i], "a side array");
    name(ctx, choice, "kv_gather", a.from);
}

void run_kv_gather(keel_ctx &ctx, const keel_kv_gather_args &a) {
    const KvConstants from = kv_constants(ctx.host, a.from, "kv_gather"),
                      to = kv_constants(ctx.host, a.to, "kv_gather");
    const View index = view_of(ctx.host, a.index, "index");
    const uint32_t count_offset = view_of(ctx.host, a.count, "count").offset;
    if (to.kv_heads == 0 || index.n == 0) return;
    const Form form = form_of(ctx, Family::rows);
    const uint64_t chunk = form == Form::local ? 4 : 32; // of kernels/kv.cl
    const keel_tensor *arenas[2][2] = {{a.from->k, a.to->k}, {a.from->v, a.to->v}};
    for (uint32_t values = 0; values < 2; ++values) {
        const auto units = static_cast<uint32_t>(row_bytes(arenas[values][0]) / 2);
        if (units == 0) continue;
        launch(ctx, kernel(ctx, "gather_rows", form, 128),
               row_grid(form, (units + chunk - 1) / chunk * to.kv_heads), arenas[values][0], from,
               a.from->block_table, arenas[values][1], to, a.to->block_table, a.index, index, a.count,
               count_offset, values, units);
    }
    const auto move_values = [&](const keel_tensor *source, const keel_tensor *target) {
        launch(ctx, kernel(ctx, "gather_values", form, 128), row_grid(form, to.kv_heads), source,
               view_of(ctx.host, source, "side"), target, view_of(ctx.host, target, "side"), a.index, index,
               a.count, count_offset);
    };
    move_values(a.from->positions, a.to->positions);
    for (uint32_t i = 0; i < a.n_sides; ++i)
        move_values(a.sides[i], a.sides[i]);
}

void plan_kv_rerotate(keel_ctx &ctx, const keel_kv_rerotate_args &a, PlanChoice &choice) {
    check_kv_rerotate(ctx.host, a);
    view_of(ctx.host, a.row, "row");
    view_of(ctx.host, a.new_positions, "new_positions");
    if (a.source != nullptr) view_of(ctx.host, a.source, "source");
    name(ctx, choice, "kv_rerotate", a.kv);
}

void run_kv_rerotate(keel_ctx &ctx, const keel_kv_rerotate_args &a) {
    const KvConstants c = kv_constants(ctx.host, a.kv, "kv_rerotate");
    const int64_t end = std::min<int64_t>(a.end, c.max_length);
    if (end <= a.begin || c.kv_heads == 0 || c.k_dim == 0) return;
    const auto count = static_cast<uint32_t>(end - a.begin);
    const bool from_source = (a.features & KEEL_REROTATE_SOURCE) != 0;
    const keel_tensor *source = from_source ? a.source : nullptr;
    const Form form = form_of(ctx, Family::rows);
    launch(ctx, kernel(ctx, "rerotate", form, c.k_dim), row_grid(form, uint64_t{count} * c.kv_heads), a.kv->k,
           c, a.kv->block_table, a.kv->lengths, a.kv->positions,
           rope_constants(ctx.host, a.tables, c.k_dim, "kv_rerotate"), a.tables->cos, a.tables->sin, a.row,
           view_of(ctx.host, a.row, "row"), a.new_positions,
           view_of(ctx.host, a.new_positions, "new_positions"), source, view_or_none(ctx, source, "source"),
           from_source ? 1U : 0U, static_cast<uint32_t>(a.begin), count);
}

} // namespace keel_opencl

// The ops rope and qkv_prepare.
#include "opencl/ops/kv_access.hpp"

#include <algorithm>

namespace keel_opencl {
namespace {

enum PrepareFlags : uint32_t { flag_norm = 1, flag_q_copy = 2, flag_k_copy = 4 };

cl_kernel rope_kernel(keel_ctx &ctx, Form form, uint32_t dim) {
    return ctx.kernels->get(Source::rope, "rope",
                            {{"LANES", lanes_of(form)}, {"MAX_DIM", dim_class(dim)}});
}

} // namespace

void plan_rope(keel_ctx &ctx, const keel_rope_args &a, PlanChoice &choice) {
    view_of(ctx.host, a.x, "x");
    view_of(ctx.host, a.out, "out");
    if (!choice.named) return;
    const Form form = ctx.form;
    rope_kernel(ctx, form, static_cast<uint32_t>(last_dim(a.x)));
    name_kernel(choice, "rope %s", form_name(form));
}

void run_rope(keel_ctx &ctx, const keel_rope_args &a) {
    const View x = view_of(ctx.host, a.x, "x"), out = view_of(ctx.host, a.out, "out");
    if (x.rows() == 0 || x.n == 0) return;
    const Form form = ctx.form;
    const uint32_t group = a.positions->rank == 2 && a.positions->shape[1] != 0
                               ? x.shape[2] / static_cast<uint32_t>(a.positions->shape[1])
                               : 1;
    launch(ctx, rope_kernel(ctx, form, x.n), row_grid(form, x.rows()), a.x, x, a.positions,
           position_constants(ctx.host, a.positions, "rope"), group,
           rope_constants(ctx.host, a.tables, x.n, "rope"), a.tables->cos, a.tables->sin,
           (a.features & KEEL_ROPE_INVERSE) != 0 ? -1.0F : 1.0F, a.out, out);
}

void run_prepare(keel_ctx &ctx, const keel_qkv_args &a, const char *op, const Seats *seats) {
    const KvConstants c = kv_constants(ctx.host, a.kv, op, seats);
    const View k = view_of(ctx.host, a.k, "k"), v = view_of(ctx.host, a.v, "v"),
               q = view_or_none(ctx, a.q, "q");
    const uint32_t tokens = k.shape[1], heads = a.q != nullptr ? q.shape[2] : 0;
    if (tokens == 0 || heads + c.kv_heads == 0) return;
    const RopeConstants rope = a.tables != nullptr ? rope_constants(ctx.host, a.tables, c.k_dim, op)
                                                   : RopeConstants{1, 0, 0, 0, 0, 0, 0};
    const bool copies = (a.features & KEEL_QKV_UNROTATED) != 0;
    const keel_tensor *q_copy = copies ? a.q_unrotated : nullptr,
                      *k_copy = copies ? a.k_unrotated : nullptr;
    const bool norm = (a.features & KEEL_QKV_NORM) != 0;
    const uint32_t flags = (norm ? flag_norm : 0U) | (q_copy != nullptr ? flag_q_copy : 0U) |
                           (k_copy != nullptr ? flag_k_copy : 0U);
    const keel_tensor *none = nullptr;
    const Form form = ctx.form;
    launch(ctx, kv_kernel(ctx, "prepare", form, std::max(c.k_dim, c.v_dim)),
           row_grid(form, uint64_t{tokens} * (heads + 2 * c.kv_heads)), a.q, q, a.k, k, a.v, v,
           heads, tokens, a.positions, position_constants(ctx.host, a.positions, op), rope,
           a.tables != nullptr ? a.tables->cos : none, a.tables != nullptr ? a.tables->sin : none,
           norm ? a.q_norm : none, offset_of(ctx, norm ? a.q_norm : none, "q_norm"),
           norm ? a.k_norm : none, offset_of(ctx, norm ? a.k_norm : none, "k_norm"), flags, a.eps,
           a.kv->k, a.kv->v, c, a.kv->block_table, a.kv->lengths, a.kv->positions,
           seats != nullptr ? seats->list : none, a.q_out, view_or_none(ctx, a.q_out, "q_out"),
           q_copy, view_or_none(ctx, q_copy, "q_unrotated"), k_copy,
           view_or_none(ctx, k_copy, "k_unrotated"));
}

void plan_qkv_prepare(keel_ctx &ctx, const keel_qkv_args &a, PlanChoice &choice) {
    for (const keel_tensor *t : {a.q, a.k, a.v, a.q_out}) view_of(ctx.host, t, "q, k, v or q_out");
    build_kv(ctx, choice, "qkv_prepare", a.kv, {"prepare"}, dim_of(a.kv));
}

void run_qkv_prepare(keel_ctx &ctx, const keel_qkv_args &a) { run_prepare(ctx, a, "qkv_prepare"); }

void run_batch_prepare(keel_ctx &ctx, const keel_qkv_args &a, const Seats &seats) {
    run_prepare(ctx, a, "qkv_prepare", &seats);
}

} // namespace keel_opencl

// The ops kv_append, kv_gather and kv_rerotate.
#include "vulkan/ops/kv_access.hpp"

namespace keel_vulkan {
namespace {

constexpr uint32_t kGatherGroup = 64;

VkPipeline gather_pipeline(keel_ctx &ctx, uint32_t unit) {
    return ctx.kernels.get(Kernel::kv_gather, {kGatherGroup, unit});
}

bool by_fours(const keel_tensor *arena) {
    return arena->offset % 4 == 0 && arena->stride[0] % 4 == 0 && arena->stride[1] % 4 == 0 &&
           row_bytes(arena) % 4 == 0;
}

uint32_t gather_unit(const keel_kv_gather_args &a) {
    return by_fours(a.from->k) && by_fours(a.from->v) && by_fours(a.to->k) && by_fours(a.to->v) ? 4
                                                                                                : 2;
}

bool same_memory(const keel_tensor *a, const keel_tensor *b) { return a->buffer == b->buffer; }

VkPipeline rerotate_pipeline(keel_ctx &ctx, const keel_kv_rerotate_args &a) {
    return ctx.kernels.get(Kernel::kv_rerotate, {kRowGroup, room_for(a.kv->k->shape[2], 128)});
}

} // namespace

void plan_kv_append(keel_ctx &ctx, const keel_kv_append_args &a, PlanChoice &choice) {
    at(ctx, a.k, "k"), at(ctx, a.v, "v");
    append_pipeline(ctx, a.kv);
    name_kernel(choice, "kv_append %s/%s", keel_dtype_name(a.kv->k->dtype),
                keel_dtype_name(a.kv->v->dtype));
}

namespace {

void append(keel_ctx &ctx, const keel_kv_append_args &a, const Seats *seats) {
    AppendParams p = {};
    p.kv = kv_of(ctx, a.kv, "kv_append", seats);
    p.k = base_of(a.k), p.v = base_of(a.v);
    p.k_at = at(ctx, a.k, "k"), p.v_at = at(ctx, a.v, "v");
    p.positions = base_of(a.positions),
    p.positions_at = positions_of(ctx, a.positions, "kv_append");
    p.m = static_cast<uint>(a.k->shape[0]), p.group = 1;
    ctx.stream.dispatch(append_pipeline(ctx, a.kv), p, groups(2 * uint64_t{a.kv->kv_heads}, 1),
                        groups(p.m, 1));
}

} // namespace

void run_kv_append(keel_ctx &ctx, const keel_kv_append_args &a) { append(ctx, a, nullptr); }

void run_batch_append(keel_ctx &ctx, const keel_kv_append_args &a, const Seats &seats) {
    append(ctx, a, &seats);
}

void plan_kv_gather(keel_ctx &ctx, const keel_kv_gather_args &a, PlanChoice &choice) {
    tensor_of(ctx, a.index, "index"), tensor_of(ctx, a.count, "count");
    for (uint32_t s = 0; s < a.n_sides; ++s) tensor_of(ctx, a.sides[s], "a side array");
    gather_pipeline(ctx, gather_unit(a));
    if (a.n_sides != 0) gather_pipeline(ctx, 4);
    name_kernel(choice, "kv_gather by %u bytes", gather_unit(a));
}

void run_kv_gather(keel_ctx &ctx, const keel_kv_gather_args &a) {
    const Tensor index = tensor_of(ctx, a.index, "index");
    GatherParams p = {};
    p.from = kv_of(ctx, a.from, "kv_gather"), p.to = kv_of(ctx, a.to, "kv_gather");
    p.index = base_of(a.index), p.index_stride = index.stride[2], p.index_offset = index.offset;
    p.count = base_of(a.count), p.count_offset = tensor_of(ctx, a.count, "count").offset;
    p.most = index.n;
    // Two views of the same arena can share blocks.
    p.in_place = same_memory(a.from->k, a.to->k) || same_memory(a.from->v, a.to->v) ||
                 same_memory(a.from->positions, a.to->positions);
    if (p.most == 0) return;
    const uint32_t unit = gather_unit(a);
    const uint64_t k = row_bytes(a.from->k), v = row_bytes(a.from->v);
    const uint64_t columns = (k > v ? k : v) / unit;
    const uint32_t heads = a.from->kv_heads;
    ctx.stream.dispatch(gather_pipeline(ctx, unit), p,
                        groups(columns > 2 ? columns : 2, kGatherGroup), heads,
                        p.in_place != 0 ? 3 : 3 * groups(p.most, 64));
    for (uint32_t s = 0; s < a.n_sides; ++s) {
        const Tensor side = tensor_of(ctx, a.sides[s], "a side array");
        p.side = base_of(a.sides[s]), p.side_stride = side.stride[2], p.side_offset = side.offset;
        p.side_slots = side.n;
        p.in_place = 1;
        // Each side array is moved in place.
        ctx.stream.dispatch(gather_pipeline(ctx, 4), p, 1, heads, 1, true);
    }
}

void plan_kv_rerotate(keel_ctx &ctx, const keel_kv_rerotate_args &a, PlanChoice &choice) {
    if (a.end > INT32_MAX)
        refuse(ctx.host, KEEL_E_INVALID_ARG,
               "kv_rerotate: begin %lld and end %lld are not a valid range",
               static_cast<long long>(a.begin), static_cast<long long>(a.end));
    tensor_of(ctx, a.row, "row"), tensor_of(ctx, a.new_positions, "new_positions");
    rerotate_pipeline(ctx, a);
    name_kernel(choice, "kv_rerotate %s", keel_dtype_name(a.kv->k->dtype));
}

void run_kv_rerotate(keel_ctx &ctx, const keel_kv_rerotate_args &a) {
    const Tensor row = tensor_of(ctx, a.row, "row"),
                 fresh = tensor_of(ctx, a.new_positions, "new_positions");
    RerotateParams p = {};
    p.kv = kv_of(ctx, a.kv, "kv_rerotate");
    p.rope = rope_of(ctx, a.tables, a.kv->k->shape[2], "kv_rerotate");
    p.row = base_of(a.row), p.row_stride = row.stride[2], p.row_offset = row.offset,
    p.row_slots = row.n;
    p.new_positions = base_of(a.new_positions), p.new_stride = fresh.stride[2],
    p.new_offset = fresh.offset;
    p.new_slots = fresh.n;
    if ((a.features & KEEL_REROTATE_SOURCE) != 0)
        p.source = base_of(a.source), p.source_at = rows_of(tensor_of(ctx, a.source, "source"));
    const int64_t end = a.end < a.kv->max_length ? a.end : a.kv->max_length;
    if (end <= a.begin) return;
    p.begin = static_cast<uint>(a.begin), p.end = static_cast<uint>(end);
    ctx.stream.dispatch(rerotate_pipeline(ctx, a), p, groups(p.end - p.begin, 1), a.kv->kv_heads);
}

} // namespace keel_vulkan

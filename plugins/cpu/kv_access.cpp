#include "kv_access.hpp"

#include <initializer_list>

namespace keel_cpu {
namespace {

bool is_i32(const keel_tensor *t) {
    return t != nullptr && t->dtype == KEEL_DTYPE_I32;
}

KvSide open_side(const keel_tensor *t) {
    KvSide side;
    side.data = data_of(t);
    side.block_stride = t->stride[0];
    side.row_stride = t->stride[1];
    side.dim = t->shape[2];
    side.row_bytes = static_cast<int64_t>(keel_dtype_row_bytes(t->dtype, static_cast<uint64_t>(side.dim)));
    side.type = row_type(t->dtype);
    return side;
}

} // namespace

keel_status check_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op) noexcept {
    for (const keel_tensor *t : {view->k, view->v}) {
        if (row_type(t->dtype) < 0)
            return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: no kernel for a cache of dtype %u", op, t->dtype);
        if (t->rank != 3 || t->shape[2] % keel_dtype_block(t->dtype) != 0)
            return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: a cache in %s needs rows of whole blocks of %u",
                        op, keel_dtype_name(t->dtype), keel_dtype_block(t->dtype));
    }
    const uint32_t slots = view->block_slots;
    if (slots == 0 || (slots & (slots - 1)) != 0 || view->k->shape[1] != slots || view->v->shape[1] != slots)
        return fail(ctx->host, KEEL_E_INVALID_ARG, "%s: block_slots %u is no power of two or not the arenas'",
                    op, slots);
    if (!is_i32(view->block_table) || !is_i32(view->lengths) || !is_i32(view->positions))
        return fail(ctx->host, KEEL_E_INVALID_ARG, "%s: block table, lengths and positions must be i32", op);
    return KEEL_OK;
}

keel_status open_kv_slots(keel_ctx *ctx, const keel_kv_view *view, const char *op,
                          KvAccess &access) noexcept {
    const keel_status status = check_kv_view(ctx, view, op);
    if (status != KEEL_OK) return status;
    access.k = open_side(view->k);
    access.v = open_side(view->v);
    access.table = data_as<const int32_t>(view->block_table);
    access.table_stride = outer_stride(view->block_table);
    access.lengths = data_as<const int32_t>(view->lengths);
    access.positions = data_as<int32_t>(view->positions);
    access.position_stride = outer_stride(view->positions);
    access.heads = view->kv_heads;
    access.blocks = view->k->shape[0] < view->v->shape[0] ? view->k->shape[0] : view->v->shape[0];
    access.blocks_per_head = view->block_table->shape[1];
    access.shift = static_cast<uint32_t>(__builtin_ctz(view->block_slots));
    access.block_slots = view->block_slots;
    return KEEL_OK;
}

keel_status check_slots(keel_ctx *ctx, const KvAccess &access, int64_t head, int64_t slots,
                        const char *op) noexcept {
    const int64_t blocks = (slots + access.block_slots - 1) >> access.shift;
    if (slots < 0 || blocks > access.blocks_per_head)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "%s: head %lld has %lld slots, its block table room for %lld", op,
                    static_cast<long long>(head), static_cast<long long>(slots),
                    static_cast<long long>(access.blocks_per_head * access.block_slots));
    const int32_t *table = access.blocks_of(head);
    for (int64_t b = 0; b < blocks; ++b)
        if (table[b] < 0 || table[b] >= access.blocks)
            return fail(ctx->host, KEEL_E_INVALID_ARG,
                        "%s: block table of head %lld, entry %lld: %d is not in 0..%lld", op,
                        static_cast<long long>(head), static_cast<long long>(b), table[b],
                        static_cast<long long>(access.blocks - 1));
    return KEEL_OK;
}

keel_status open_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op, KvAccess &access) noexcept {
    keel_status status = open_kv_slots(ctx, view, op, access);
    for (int64_t h = 0; status == KEEL_OK && h < access.heads; ++h) {
        if (access.lengths[h] > view->max_length)
            return fail(ctx->host, KEEL_E_INVALID_ARG, "%s: length %d of head %lld is above max_length %lld",
                        op, access.lengths[h], static_cast<long long>(h),
                        static_cast<long long>(view->max_length));
        status = check_slots(ctx, access, h, access.lengths[h], op);
    }
    return status;
}

} // namespace keel_cpu

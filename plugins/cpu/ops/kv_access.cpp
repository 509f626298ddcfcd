#include "cpu/ops/kv_access.hpp"

#include <initializer_list>

namespace keel_cpu {
namespace {

bool is_i32(const keel_tensor *t) { return t != nullptr && t->dtype == KEEL_DTYPE_I32; }

KvSide open_side(const keel_tensor *t) {
    KvSide side;
    side.data = data_of(t);
    side.block_stride = t->stride[0];
    side.row_stride = t->stride[1];
    side.dim = t->shape[2];
    side.row_bytes =
        static_cast<int64_t>(keel_dtype_row_bytes(t->dtype, static_cast<uint64_t>(side.dim)));
    side.type = row_type(t->dtype);
    return side;
}

} // namespace

namespace {

// Checks the dtypes and shapes of K and V, for one sequence or for several.
template <class View>
keel_status check_arenas(keel_ctx *ctx, const View *view, const char *op) noexcept {
    for (const keel_tensor *t : {view->k, view->v}) {
        if (row_type(t->dtype) < 0)
            return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: no kernel for a cache of dtype %u", op,
                        t->dtype);
        if (t->rank != 3 || t->shape[2] % keel_dtype_block(t->dtype) != 0)
            return fail(ctx->host, KEEL_E_UNSUPPORTED,
                        "%s: a cache in %s needs rows that consist of whole blocks of %u elements",
                        op, keel_dtype_name(t->dtype), keel_dtype_block(t->dtype));
    }
    const uint32_t slots = view->block_slots;
    if (slots == 0 || (slots & (slots - 1)) != 0 || view->k->shape[1] != slots ||
        view->v->shape[1] != slots)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "%s: block_slots %u is not a power of two, or differs from the second "
                    "dimension of k or v",
                    op, slots);
    if (!is_i32(view->block_table) || !is_i32(view->lengths) || !is_i32(view->positions))
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "%s: block table, lengths and positions must be i32", op);
    return KEEL_OK;
}

template <class View> void open_arenas(const View *view, KvAccess &access) {
    access.k = open_side(view->k);
    access.v = open_side(view->v);
    access.table = data_as<const int32_t>(view->block_table);
    access.lengths = data_as<const int32_t>(view->lengths);
    access.positions = data_as<int32_t>(view->positions);
    access.blocks = view->k->shape[0] < view->v->shape[0] ? view->k->shape[0] : view->v->shape[0];
    access.shift = static_cast<uint32_t>(__builtin_ctz(view->block_slots));
    access.block_slots = view->block_slots;
}

// Checks the length and the block ids of each head.
keel_status check_lengths(keel_ctx *ctx, const KvAccess &access, int64_t max_length,
                          const char *op) {
    for (int64_t h = 0; h < access.heads; ++h) {
        const int64_t length = access.length(h);
        if (length > max_length)
            return fail(ctx->host, KEEL_E_INVALID_ARG,
                        "%s: length %lld of head %lld is above max_length %lld", op,
                        static_cast<long long>(length), static_cast<long long>(h),
                        static_cast<long long>(max_length));
        const keel_status status = check_slots(ctx, access, h, length, op);
        if (status != KEEL_OK) return status;
    }
    return KEEL_OK;
}

} // namespace

keel_status check_range(keel_ctx *ctx, int64_t begin, int64_t end, const char *op) noexcept {
    if (begin >= 0 && begin <= end) return KEEL_OK;
    return fail(ctx->host, KEEL_E_INVALID_ARG, "%s: begin %lld and end %lld are not a valid range",
                op, static_cast<long long>(begin), static_cast<long long>(end));
}

keel_status check_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op) noexcept {
    return check_arenas(ctx, view, op);
}

keel_status check_batch_kv(keel_ctx *ctx, const keel_batch_kv *kv, int64_t n,
                           const char *op) noexcept {
    const keel_status status = check_arenas(ctx, kv, op);
    if (status != KEEL_OK) return status;
    const bool ranks =
        kv->block_table->rank == 3 && kv->lengths->rank == 2 && kv->positions->rank == 3;
    if (!ranks || !is_i32(kv->seats) || kv->seats->rank != 1 || kv->seats->shape[0] < n)
        return fail(
            ctx->host, KEEL_E_INVALID_ARG,
            "%s: expected block_table of rank 3, lengths of rank 2, positions of rank 3 and "
            "seats i32 [%lld]",
            op, static_cast<long long>(n));
    return KEEL_OK;
}

keel_status open_batch_kv(keel_ctx *ctx, const keel_batch_kv *kv, int64_t n, const char *op,
                          KvAccess &access) noexcept {
    const keel_status status = check_batch_kv(ctx, kv, n, op);
    if (status != KEEL_OK) return status;
    open_arenas(kv, access);
    access.heads = n * kv->kv_heads;
    access.blocks_per_head = kv->block_table->shape[2];
    access.seats = data_as<const int32_t>(kv->seats);
    access.seat_heads = kv->kv_heads;
    access.table_seat = kv->block_table->stride[0] / 4,
    access.table_stride = kv->block_table->stride[1] / 4;
    access.length_seat = kv->lengths->stride[0] / 4;
    access.position_seat = kv->positions->stride[0] / 4,
    access.position_stride = kv->positions->stride[1] / 4;
    const int64_t places = kv->block_table->shape[0];
    for (int64_t i = 0; i < n; ++i)
        if (access.seats[i] < 0 || access.seats[i] >= places)
            return fail(ctx->host, KEEL_E_INVALID_ARG, "%s: seat %d of row %lld is not in 0..%lld",
                        op, access.seats[i], static_cast<long long>(i),
                        static_cast<long long>(places - 1));
    return check_lengths(ctx, access, kv->max_length, op);
}

keel_status open_kv_slots(keel_ctx *ctx, const keel_kv_view *view, const char *op,
                          KvAccess &access) noexcept {
    const keel_status status = check_kv_view(ctx, view, op);
    if (status != KEEL_OK) return status;
    open_arenas(view, access);
    access.table_stride = outer_stride(view->block_table);
    access.position_stride = outer_stride(view->positions);
    access.heads = view->kv_heads;
    access.blocks_per_head = view->block_table->shape[1];
    return KEEL_OK;
}

keel_status check_slots(keel_ctx *ctx, const KvAccess &access, int64_t head, int64_t slots,
                        const char *op) noexcept {
    const int64_t blocks = (slots + access.block_slots - 1) >> access.shift;
    if (slots < 0 || blocks > access.blocks_per_head)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "%s: head %lld has %lld slots, but its block table has room for only %lld", op,
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

keel_status open_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op,
                         KvAccess &access) noexcept {
    const keel_status status = open_kv_slots(ctx, view, op, access);
    return status != KEEL_OK ? status : check_lengths(ctx, access, view->max_length, op);
}

} // namespace keel_cpu

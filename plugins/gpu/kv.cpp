#include "gpu/kv.hpp"

namespace keel_gpu {
namespace {

uint32_t halves(const keel_host *host, int64_t bytes, const char *op) {
    if (bytes % 2 != 0 || bytes < 0 || bytes / 2 >= int64_t{1} << 32)
        refuse(host, KEEL_E_UNSUPPORTED,
               "%s: the offset or a stride of k or v is odd, or does not fit into 32 bits", op);
    return static_cast<uint32_t>(bytes / 2);
}

} // namespace

void need_i32(const keel_host *host, const keel_tensor *t, const char *name, const char *op) {
    if (t == nullptr || t->dtype != KEEL_DTYPE_I32)
        refuse(host, KEEL_E_UNSUPPORTED, "%s: %s is missing or not i32", op, name);
}

KvConstants kv_constants(const keel_host *host, const keel_kv_view *kv, const char *op,
                         const Seats *seats) {
    if (kv == nullptr || kv->k == nullptr || kv->v == nullptr)
        refuse(host, KEEL_E_INVALID_ARG, "%s: the cache view is missing", op);
    Type k, v;
    if (!type_of(kv->k->dtype, k) || !type_of(kv->v->dtype, v))
        refuse(host, KEEL_E_UNSUPPORTED,
               "%s: a cache with keys in %s and values in %s is not supported", op,
               keel_dtype_name(kv->k->dtype), keel_dtype_name(kv->v->dtype));
    if (kv->k->rank != 3 || kv->v->rank != 3 || kv->block_slots == 0 ||
        (kv->block_slots & (kv->block_slots - 1)) != 0)
        refuse(host, KEEL_E_INVALID_ARG,
               "%s: expected k and v of shape [blocks, block_slots, head_dim] with block_slots a "
               "power of two",
               op);
    if (kv->max_length < 0 || kv->max_length > INT32_MAX)
        refuse(host, KEEL_E_UNSUPPORTED, "%s: max_length %lld is negative or too large", op,
               static_cast<long long>(kv->max_length));
    need_i32(host, kv->block_table, "block_table", op);
    need_i32(host, kv->lengths, "lengths", op);
    need_i32(host, kv->positions, "positions", op);
    const View table = view_of(host, kv->block_table, "block_table");
    const View lengths = view_of(host, kv->lengths, "lengths");
    const View positions = view_of(host, kv->positions, "positions");
    KvConstants c{};
    c.kv_heads = kv->kv_heads;
    c.max_length = static_cast<uint32_t>(kv->max_length);
    while ((uint32_t{1} << c.block_shift) < kv->block_slots) ++c.block_shift;
    const int64_t blocks = kv->k->shape[0] < kv->v->shape[0] ? kv->k->shape[0] : kv->v->shape[0];
    c.blocks = static_cast<uint32_t>(blocks < INT32_MAX ? blocks : INT32_MAX);
    c.k_type = k;
    c.k_dim = static_cast<uint32_t>(kv->k->shape[2]);
    c.k_offset = halves(host, static_cast<int64_t>(kv->k->offset), op);
    c.k_block = halves(host, kv->k->stride[0], op);
    c.k_slot = halves(host, kv->k->stride[1], op);
    c.v_type = v;
    c.v_dim = static_cast<uint32_t>(kv->v->shape[2]);
    c.v_offset = halves(host, static_cast<int64_t>(kv->v->offset), op);
    c.v_block = halves(host, kv->v->stride[0], op);
    c.v_slot = halves(host, kv->v->stride[1], op);
    c.table_offset = table.offset;
    c.table_stride = table.stride[2];
    c.table_blocks = table.n;
    c.lengths_offset = lengths.offset;
    c.positions_offset = positions.offset;
    c.positions_stride = positions.stride[2];
    c.positions_slots = positions.n;
    if (seats != nullptr) {
        c.seat_heads = kv->kv_heads;
        c.seat_rows = seats->rows;
        c.seats_offset = seats->offset;
        c.seats_held = seats->held;
    }
    return c;
}

namespace {

// Removes the seat dimension of `books`, which are block tables, lengths or positions [seats,
// kv_heads, ...]. `one` becomes the tensor of seat 0. Returns the distance between neighbouring
// seats, in rows.
uint32_t drop_seat(const keel_host *host, const keel_tensor *books, uint32_t rank, keel_tensor &one,
                   const char *name, const char *op) {
    need_i32(host, books, name, op);
    if (books->rank != rank || books->shape[0] < 1)
        refuse(host, KEEL_E_INVALID_ARG,
               "%s: expected %s of rank %u, whose first dimension is the seats", op, name, rank);
    one = *books;
    one.rank = rank - 1;
    for (uint32_t i = 0; i + 1 < rank; ++i)
        one.shape[i] = books->shape[i + 1], one.stride[i] = books->stride[i + 1];
    const int64_t row = rank == 2 ? 4 : books->stride[1];
    if (row <= 0 || books->stride[0] % row != 0 || books->stride[0] / row > INT32_MAX)
        refuse(host, KEEL_E_UNSUPPORTED,
               "%s: the stride between seats of %s is not a whole number of rows", op, name);
    return static_cast<uint32_t>(books->stride[0] / row);
}

} // namespace

SeatZero::SeatZero(const keel_host *host, const keel_batch_kv *kv, int64_t n, const char *op) {
    if (kv == nullptr) refuse(host, KEEL_E_INVALID_ARG, "%s: the caches are missing", op);
    const uint32_t rows = drop_seat(host, kv->block_table, 3, table_, "block tables", op);
    if (drop_seat(host, kv->lengths, 2, lengths_, "lengths", op) != rows ||
        drop_seat(host, kv->positions, 3, positions_, "positions", op) != rows)
        refuse(host, KEEL_E_UNSUPPORTED,
               "%s: block tables, lengths and positions have different strides between seats", op);
    need_i32(host, kv->seats, "seats", op);
    if (kv->seats->rank != 1 || kv->seats->shape[0] < n || n > INT32_MAX)
        refuse(host, KEEL_E_INVALID_ARG, "%s: expected seats of shape [%lld] in i32", op,
               static_cast<long long>(n));
    view_.k = kv->k, view_.v = kv->v;
    view_.block_table = &table_, view_.lengths = &lengths_, view_.positions = &positions_;
    view_.block_slots = kv->block_slots;
    view_.kv_heads = kv->kv_heads;
    view_.max_length = kv->max_length;
    const int64_t held = kv->block_table->shape[0];
    seats_ = {kv->seats, static_cast<uint32_t>(n), rows, view_of(host, kv->seats, "seats").offset,
              static_cast<uint32_t>(held < INT32_MAX ? held : INT32_MAX)};
}

RopeConstants rope_constants(const keel_host *host, const keel_rope_tables *tables,
                             int64_t head_dim, const char *op) {
    if (tables == nullptr || !is_f32(tables->cos) || !is_f32(tables->sin))
        refuse(host, KEEL_E_INVALID_ARG, "%s: the tables are missing or not f32", op);
    if (tables->mode != KEEL_ROPE_HALF_SPLIT && tables->mode != KEEL_ROPE_INTERLEAVED)
        refuse(host, KEEL_E_UNSUPPORTED, "%s: unknown rope mode %u", op, tables->mode);
    if (tables->rot % 2 != 0 || tables->rot > head_dim || tables->cos->shape[0] < 1)
        refuse(
            host, KEEL_E_INVALID_ARG,
            "%s: cannot rotate %u elements of heads of %lld elements with RoPE tables of %lld rows",
            op, tables->rot, static_cast<long long>(head_dim),
            static_cast<long long>(tables->cos->shape[0]));
    const View cos = view_of(host, tables->cos, "tables.cos"),
               sin = view_of(host, tables->sin, "tables.sin");
    return {cos.shape[2], tables->rot / 2, tables->mode == KEEL_ROPE_INTERLEAVED ? 1U : 0U,
            cos.offset,   cos.stride[2],   sin.offset,
            sin.stride[2]};
}

PositionConstants position_constants(const keel_host *host, const keel_tensor *t, const char *op) {
    need_i32(host, t, "positions", op);
    const View view = view_of(host, t, "positions");
    if (t->rank == 2) return {view.offset, view.stride[2], 1};
    return {view.offset, 1, 0};
}

} // namespace keel_gpu

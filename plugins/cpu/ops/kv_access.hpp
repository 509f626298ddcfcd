// The form of a keel_kv_view that this backend's ops use: host pointers, which are checked once per
// call.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/tables.hpp"

#include <keel/ext/draft/batched_decode.h>

namespace keel_cpu {

// Returns the distance between rows in elements, for an i32 or f32 tensor [rows, n].
inline int64_t outer_stride(const keel_tensor *t) { return t->rank >= 2 ? t->stride[0] / 4 : 0; }

// The keys or the values of all heads. row() returns the address of a slot's row.
struct KvSide {
    uint8_t *data = nullptr;
    int64_t block_stride = 0, row_stride = 0; // in bytes
    int64_t dim = 0, row_bytes = 0;
    int type = -1; // a RowType; -1: not set
};

struct KvAccess {
    KvSide k, v;
    const int32_t *table = nullptr, *lengths = nullptr;
    int32_t *positions = nullptr;
    int64_t table_stride = 0, position_stride = 0; // distance from head to head, in elements
    int64_t heads = 0, blocks = 0, blocks_per_head = 0;
    uint32_t shift = 0; // slot >> shift is the index of the slot's block in the head's block table
    int64_t block_slots = 0;
    // Only for a batch of sequences (keel.batched_decode/1), otherwise NULL. Each sequence has its
    // own block table, lengths and positions. The heads of the first sequence come first, then the
    // heads of the next sequence; each sequence has `seat_heads` heads. seats[i] is the row of
    // sequence i in the tensors with tables, lengths and positions.
    const int32_t *seats = nullptr;
    int64_t seat_heads = 0;
    int64_t table_seat = 0, length_seat = 0, length_stride = 1,
            position_seat = 0; // distances from row to row of these tables, in elements

    // Returns the index of a head's entry in a table with these strides.
    int64_t place(int64_t head, int64_t seat_stride, int64_t head_stride) const {
        if (seats == nullptr) return head * head_stride;
        return seats[head / seat_heads] * seat_stride + head % seat_heads * head_stride;
    }
    const int32_t *blocks_of(int64_t head) const {
        return table + place(head, table_seat, table_stride);
    }
    int64_t length(int64_t head) const { return lengths[place(head, length_seat, length_stride)]; }
    int32_t *positions_of(int64_t head) const {
        return positions + place(head, position_seat, position_stride);
    }
    uint8_t *row(const KvSide &side, const int32_t *blocks_of_head, int64_t slot) const {
        return side.data + blocks_of_head[slot >> shift] * side.block_stride +
               (slot & (block_slots - 1)) * side.row_stride;
    }
};

// Makes the checks that need only dtypes and shapes, so that op_plan can make them. Returns
// KEEL_E_UNSUPPORTED if no kernel supports the view.
keel_status check_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op) noexcept;

// Fills `access`. Before that, checks that the lengths and the block ids of the used slots are
// inside the arenas. If a check fails, returns KEEL_E_INVALID_ARG and writes nothing.
keel_status open_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op,
                         KvAccess &access) noexcept;

// Checks that begin..end-1 is a valid range of slots. `op` is the name of the op for the error.
keel_status check_range(keel_ctx *ctx, int64_t begin, int64_t end, const char *op) noexcept;

// Do the same as check_kv_view and open_kv_view, for a batch of `n` sequences.
keel_status check_batch_kv(keel_ctx *ctx, const keel_batch_kv *kv, int64_t n,
                           const char *op) noexcept;
keel_status open_batch_kv(keel_ctx *ctx, const keel_batch_kv *kv, int64_t n, const char *op,
                          KvAccess &access) noexcept;

// Like open_kv_view, for the op kv_gather. The used slots are the first slots[h] slots of head h.
// The lengths in the view do not matter.
keel_status open_kv_slots(keel_ctx *ctx, const keel_kv_view *view, const char *op,
                          KvAccess &access) noexcept;
keel_status check_slots(keel_ctx *ctx, const KvAccess &access, int64_t head, int64_t slots,
                        const char *op) noexcept;

} // namespace keel_cpu

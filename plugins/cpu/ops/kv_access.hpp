// A keel_kv_view in the form that this backend's ops use: host pointers, checked once per call.
#pragma once

#include "cpu/context.hpp"
#include "cpu/kernels/tables.hpp"

#include <keel/ext/draft/batched_decode.h>

namespace keel_cpu {

// For an i32 or f32 tensor [rows, n]: the distance from one row to the next, in elements.
inline int64_t outer_stride(const keel_tensor *t) { return t->rank >= 2 ? t->stride[0] / 4 : 0; }

// K or V of all heads: the address of a slot's row.
struct KvSide {
    uint8_t *data = nullptr;
    int64_t block_stride = 0, row_stride = 0; // in bytes
    int64_t dim = 0, row_bytes = 0;
    int type = -1; // a RowType
};

struct KvAccess {
    KvSide k, v;
    const int32_t *table = nullptr, *lengths = nullptr;
    int32_t *positions = nullptr;
    int64_t table_stride = 0, position_stride = 0; // in elements, from head to head
    int64_t heads = 0, blocks = 0, blocks_per_head = 0;
    uint32_t shift = 0; // slot >> shift is the index of the slot's block within the head
    int64_t block_slots = 0;
    // For several sequences (keel.batched_decode/1). Each sequence has its own block table, lengths
    // and positions. Heads are numbered one sequence after the other, `seat_heads` for each. NULL:
    // one sequence.
    const int32_t *seats = nullptr;
    int64_t seat_heads = 0;
    int64_t table_seat = 0, length_seat = 0, length_stride = 1,
            position_seat = 0; // in elements, from seat to seat

    // The place of a head's entry in a table with these strides.
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

// The checks that op_plan can make: dtypes and shapes. Returns KEEL_E_UNSUPPORTED if no kernel
// takes them.
keel_status check_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op) noexcept;

// Fills `access`. First checks that lengths and block ids of the slots in use are inside the
// arenas. A wrong table gives KEEL_E_INVALID_ARG before anything is written.
keel_status open_kv_view(keel_ctx *ctx, const keel_kv_view *view, const char *op,
                         KvAccess &access) noexcept;

// Checks that begin..end-1 is a valid range of slots.
keel_status check_range(keel_ctx *ctx, int64_t begin, int64_t end, const char *op) noexcept;

// check_kv_view and open_kv_view for `n` sequences at once.
keel_status check_batch_kv(keel_ctx *ctx, const keel_batch_kv *kv, int64_t n,
                           const char *op) noexcept;
keel_status open_batch_kv(keel_ctx *ctx, const keel_batch_kv *kv, int64_t n, const char *op,
                          KvAccess &access) noexcept;

// Like open_kv_view, for kv_gather: the slots in use are the first slots[h] of each head, instead
// of those below the view's lengths.
keel_status open_kv_slots(keel_ctx *ctx, const keel_kv_view *view, const char *op,
                          KvAccess &access) noexcept;
keel_status check_slots(keel_ctx *ctx, const KvAccess &access, int64_t head, int64_t slots,
                        const char *op) noexcept;

} // namespace keel_cpu

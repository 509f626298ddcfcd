// A cache view in the form that GPU kernels take.
#pragma once

#include "gpu/view.hpp"

#include <keel/ext/draft/batched_decode.h>

namespace keel_gpu {

// Throws Refusal if the tensor is missing or not i32.
void need_i32(const keel_host *host, const keel_tensor *t, const char *name, const char *op);

// The constants of a cache view for a kernel. The members are 32-bit words, so that OpenCL C and
// GLSL can declare the same struct. Offsets and strides of arenas count units of 2 bytes for every
// dtype. Offsets and strides of integer tensors count units of 4 bytes. Slot s of head h is in
// block
//   table[table_offset + h * table_stride + (s >> block_shift)],
// and its row begins at
//   k_offset + block * k_block + (s & (2^block_shift - 1)) * k_slot.
// The host cannot check the values in device memory, so kernels limit them. A length counts as
// min(max(length, 0), max_length). A block outside 0..blocks-1 counts as empty.
struct KvConstants {
    uint32_t kv_heads, max_length;
    uint32_t block_shift; // log2 of block_slots
    uint32_t blocks;      // number of blocks in the smaller of the two arenas (K or V)
    uint32_t k_type, k_dim, k_offset, k_block, k_slot;
    uint32_t v_type, v_dim, v_offset, v_block, v_slot;
    // table_blocks: number of blocks for each head
    uint32_t table_offset, table_stride, table_blocks;
    uint32_t lengths_offset;
    uint32_t positions_offset, positions_stride, positions_slots;
    // These members are for a batch of sequences (keel.batched_decode/1). For one sequence,
    // seat_heads is 0. Heads are numbered one sequence after the other. Head h is head h %
    // seat_heads of the sequence on seat seats[seats_offset + h / seat_heads]. A seat number of
    // seats_held or more counts as seat seats_held - 1. The block table, lengths and positions of a
    // seat begin seat * seat_rows rows after those of seat 0.
    uint32_t seat_heads, seat_rows, seats_offset, seats_held;
};

// The sequences of a keel.batched_decode/1 call. Row i of the call belongs to the sequence on seat
// list[i].
struct Seats {
    const keel_tensor *list; // seat numbers, a tensor of type i32
    uint32_t n;              // number of rows in the call
    uint32_t rows, offset, held;
};

// Throws Refusal if the view breaks the rules of kv.h or does not fit 32 bits. Buffers may be NULL.
// If `seats` is given, kv must be the view of seat 0.
KvConstants kv_constants(const keel_host *host, const keel_kv_view *kv, const char *op,
                         const Seats *seats = nullptr);

// The view of seat 0 and the list of seats, made from a keel_batch_kv. The constructor throws
// Refusal if the args break the rules of keel/ext/draft/batched_decode.h. It also throws if the
// distance between seats is not a multiple of a row.
class SeatZero {
  public:
    SeatZero(const keel_host *host, const keel_batch_kv *kv, int64_t n, const char *op);
    SeatZero(const SeatZero &) = delete;
    SeatZero &operator=(const SeatZero &) = delete;

    const keel_kv_view *view() const { return &view_; }
    const Seats &seats() const { return seats_; }

  private:
    keel_tensor table_, lengths_, positions_;
    keel_kv_view view_ = {KEEL_HEADER(keel_kv_view)};
    Seats seats_{};
};

// The cos and sin tables of RoPE in the form that kernels take.
struct RopeConstants {
    uint32_t rows, half, interleaved;                        // half: number of pairs in a head
    uint32_t cos_offset, cos_stride, sin_offset, sin_stride; // in units of 4 bytes
};

RopeConstants rope_constants(const keel_host *host, const keel_rope_tables *tables,
                             int64_t head_dim, const char *op);

// A tensor of positions, [m] or [m, kv_heads]. The position of token i in KV head h is at offset +
// i * token_stride + h * head_stride.
struct PositionConstants {
    uint32_t offset, token_stride, head_stride;
};

PositionConstants position_constants(const keel_host *host, const keel_tensor *t, const char *op);

} // namespace keel_gpu

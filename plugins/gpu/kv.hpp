// A cache view in the form that kernels take.
#pragma once

#include "gpu/view.hpp"

#include <keel/ext/draft/batched_decode.h>

namespace keel_gpu {

// Refuses a tensor that is missing or not i32.
void need_i32(const keel_host *host, const keel_tensor *t, const char *name, const char *op);

// Plain 32-bit words, so that OpenCL C and GLSL can declare the same struct. Offsets and strides of
// arenas count units of 2 bytes for every dtype. Those of integer tensors count units of 4 bytes.
// Slot s of head h is in block
//   table[table_offset + h * table_stride + (s >> block_shift)],
// and its row begins at
//   k_offset + block * k_block + (s & (2^block_shift - 1)) * k_slot.
// The host cannot check the values in the tensors, so kernels do: a length counts as
// min(max(length, 0), max_length), and a block outside 0..blocks-1 counts as empty.
struct KvConstants {
    uint32_t kv_heads, max_length;
    uint32_t block_shift; // log2 of block_slots
    uint32_t blocks;      // number of blocks of the smaller arena
    uint32_t k_type, k_dim, k_offset, k_block, k_slot;
    uint32_t v_type, v_dim, v_offset, v_block, v_slot;
    uint32_t table_offset, table_stride, table_blocks; // table_blocks: blocks per head
    uint32_t lengths_offset;
    uint32_t positions_offset, positions_stride, positions_slots;
    // For several sequences at once (keel.batched_decode/1). Their heads are numbered one sequence
    // after the other. Head h is head h % seat_heads of the sequence on seat seats[seats_offset + h
    // / seat_heads]. A seat of seats_held or more counts as the last one. The block table, lengths
    // and positions of a seat begin seat * seat_rows rows after those of seat 0. seat_heads is 0
    // for one sequence.
    uint32_t seat_heads, seat_rows, seats_offset, seats_held;
};

// The sequences of a keel.batched_decode/1 call: row i belongs to the sequence on seat list[i].
struct Seats {
    const keel_tensor *list; // i32
    uint32_t n;              // rows of the call
    uint32_t rows, offset, held;
};

// Refuses views that break the rules of kv.h or do not fit 32 bits. Buffers may be NULL. With
// `seats`, kv must be the view of seat 0.
KvConstants kv_constants(const keel_host *host, const keel_kv_view *kv, const char *op,
                         const Seats *seats = nullptr);

// The view of seat 0, and the list of seats. Refuses args that break the rules of
// keel/ext/draft/batched_decode.h, and seats whose distance is not a multiple of a row.
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

// RoPE tables in the form that kernels take.
struct RopeConstants {
    uint32_t rows, half, interleaved;                        // half: pairs per head
    uint32_t cos_offset, cos_stride, sin_offset, sin_stride; // in units of 4 bytes
};

RopeConstants rope_constants(const keel_host *host, const keel_rope_tables *tables,
                             int64_t head_dim, const char *op);

// Positions [m] or [m, kv_heads]: the position of token i in KV head h is at offset + i *
// token_stride + h * head_stride.
struct PositionConstants {
    uint32_t offset, token_stride, head_stride;
};

PositionConstants position_constants(const keel_host *host, const keel_tensor *t, const char *op);

} // namespace keel_gpu

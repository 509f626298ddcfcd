// A cache view as kernels take it.
#pragma once

#include "gpu/view.hpp"

#include <keel/ext/draft/batched_decode.h>

namespace keel_gpu {

// Refuses a tensor that is missing or not i32.
void need_i32(const keel_host *host, const keel_tensor *t, const char *name, const char *op);

// Plain 32-bit words, so that it can be a struct in OpenCL C and in GLSL. Arenas are addressed in
// units of 2 bytes whatever their dtype; the integer tensors in units of 4. Slot s of head h: block
// = table[table_offset + h * table_stride + (s >> block_shift)], row at k_offset + block * k_block
// + (s & (2^block_shift - 1)) * k_slot. Kernels have to hold against what the host cannot see: a
// length counts as min(max(length, 0), max_length), a block outside 0..blocks-1 holds nothing.
struct KvConstants {
    uint32_t kv_heads, max_length;
    uint32_t block_shift; // log2 of block_slots
    uint32_t blocks;      // of the smaller arena
    uint32_t k_type, k_dim, k_offset, k_block, k_slot;
    uint32_t v_type, v_dim, v_offset, v_block, v_slot;
    uint32_t table_offset, table_stride, table_blocks; // blocks per head
    uint32_t lengths_offset;
    uint32_t positions_offset, positions_stride, positions_slots;
    // Of several sequences at once (keel.batched_decode/1), whose heads follow each other: head h
    // of all is head h % seat_heads of the sequence on seat seats[seats_offset + h / seat_heads]
    // (below seats_held, or the last one), whose books begin seat * seat_rows rows further on.
    // seat_heads 0: of one sequence.
    uint32_t seat_heads, seat_rows, seats_offset, seats_held;
};

// The sequences of a call of keel.batched_decode/1: row i is that on seat list[i].
struct Seats {
    const keel_tensor *list; // i32
    uint32_t n;              // rows of the call
    uint32_t rows, offset, held;
};

// Refuses what breaks the rules of kv.h or does not fit 32 bits. Buffers may be NULL. With `seats`
// kv is the view of seat 0.
KvConstants kv_constants(const keel_host *host, const keel_kv_view *kv, const char *op,
                         const Seats *seats = nullptr);

// The view of seat 0, and the seats; refuses what is not as keel/ext/draft/batched_decode.h says,
// or no multiple of a row apart.
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

// RoPE tables as kernels take them.
struct RopeConstants {
    uint32_t rows, half, interleaved;                        // half: pairs in a head
    uint32_t cos_offset, cos_stride, sin_offset, sin_stride; // units of 4 bytes
};

RopeConstants rope_constants(const keel_host *host, const keel_rope_tables *tables,
                             int64_t head_dim, const char *op);

// Positions [m] or [m, kv_heads]: of token i and KV head h at offset + i * token_stride + h *
// head_stride.
struct PositionConstants {
    uint32_t offset, token_stride, head_stride;
};

PositionConstants position_constants(const keel_host *host, const keel_tensor *t, const char *op);

} // namespace keel_gpu

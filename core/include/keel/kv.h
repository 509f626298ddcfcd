/* The KV cache and the RoPE tables, as a backend's ops see them.
 *
 * A model keeps a key (K) and a value (V) for each token, in each layer and KV head. A SLOT is the
 * place of one key and its value in a head. The POSITION of a key is the number of the token that
 * RoPE encoded in it. Slot and position are equal until slots are evicted. Then the later keys move
 * to lower slots, so slot 10 can hold position 500.
 *
 * The core owns the cache. It allocates blocks, counts slots and moves keys. A backend gets a
 * keel_kv_view of one layer in the args of an op, and reads or writes the rows that the view
 * describes.
 *
 * Rows are stored in blocks. A block has block_slots slots of one KV head. All blocks of a layer
 * are in two arenas, one for K and one for V. A block table lists the blocks of each head. So heads
 * can have different lengths and free their memory independently.
 *
 * EXAMPLE. The address of the key in slot s of head h (rank and strides as in tensor.h):
 *
 *     int32_t block = block_table[h][s / kv->block_slots];
 *     row = k_base + kv->k->offset + block * kv->k->stride[0]
 *                                  + s % kv->block_slots * kv->k->stride[1];
 *
 * The row of the value is at the same block and place in the V arena.
 *
 * RECORDED STEPS. Almost all data that changes from step to step is in buffers, so a backend can
 * record a step once and run it again (ext/draft/replay.h). Two things are not in buffers:
 * max_length, and the tensors k and v. The buffers of k and v change if an arena grows and the
 * backend cannot reserve memory. A recording is valid as long as these two do not change. The
 * core rounds max_length up, so that it changes rarely.
 *
 * Everything here exists since 0.1. */
#ifndef KEEL_KV_H
#define KEEL_KV_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cache of one layer of one sequence. The core owns the view and all tensors in it. They are
 * valid during the call; their buffers are valid until the queued op is done. */
typedef struct keel_kv_view {
    keel_header h;
    /* Arena of the keys: [blocks, block_slots, head_dim], f32, f16, bf16, q8_0 or q4_0. */
    const keel_tensor *k;
    /* Arena of the values: [blocks, block_slots, v_head_dim]. Its type can differ from that of
     * k. */
    const keel_tensor *v;
    /* Block numbers: i32 [kv_heads, blocks_per_head]. Entry [h][i] is the block in k and v with the
     * slots of head h from i * block_slots on. -1 means that the head does not have this block. */
    const keel_tensor *block_table;
    /* Slots in use of each head: i32 [kv_heads]. The lengths include the slots that the current
     * step appends. This holds from the first op of the step on, even if the op that writes these
     * slots has not run yet. */
    const keel_tensor *lengths;
    /* Position of the key in each slot: i32 [kv_heads, slots]. Entries from lengths[h] on have no
     * meaning. */
    const keel_tensor *positions;
    /* Slots of a block, a power of two. */
    uint32_t block_slots;
    /* Number of KV heads. */
    uint32_t kv_heads;
    /* Upper bound of all lengths, which the host knows without reading the buffer. A backend uses
     * it to choose the size of a launch. */
    int64_t max_length;
} keel_kv_view;

/* The pairs of elements of a head that RoPE rotates together. At frequency i, RoPE replaces the
 * pair (a, b) by
 * a' = a * cos - b * sin, b' = b * cos + a * sin. */
typedef uint32_t keel_rope_mode;
enum keel_rope_mode_e {
    /* Pair i is elements i and i + rot/2. Hugging Face checkpoints and GPT-NeoX use it. */
    KEEL_ROPE_HALF_SPLIT = 1,
    /* Pair i is elements 2i and 2i + 1. Checkpoints of Meta and Llama models in GGUF files use
     * it. */
    KEEL_ROPE_INTERLEAVED = 2
};

/* Tables of RoPE's cosines and sines. The core computes them in float64, with the model's scaling
 * of positions, and rounds them to f32. The core owns them. They are valid during the call; their
 * buffers are valid until the queued op is done. */
typedef struct keel_rope_tables {
    keel_header h;
    /* Both are f32 [rows, rot/2]. Position p has row p % rows. The core keeps the rows of all
     * positions that are in use. So positions can grow without limit, and the table has a constant
     * size. */
    const keel_tensor *cos, *sin;
    /* The way in which elements form pairs. */
    keel_rope_mode mode;
    /* Number of elements of a head that are rotated, from element 0 on. Even, at most head_dim. */
    uint32_t rot;
} keel_rope_tables;

#ifdef __cplusplus
}
#endif
#endif

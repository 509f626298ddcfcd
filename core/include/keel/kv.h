/* The KV cache as a backend sees it: one layer's view. */
#ifndef KEEL_KV_H
#define KEEL_KV_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer's cache. K and V lie apart in arenas of fixed blocks; a block holds block_slots
 * slots of ONE KV head, each a row of head_dim elements. Slot s of head h is row s % block_slots
 * of block block_table[h][s / block_slots], in both arenas. Heads may have different lengths.
 * What varies from step to step lies in backend buffers, but for max_length, and k and v where
 * arenas grow by exchange: a recorded step stays valid while those are as they were recorded;
 * record with max_length rounded up to have it last. A slot is where a key lies; its position is
 * what RoPE encoded in it. They differ once slots were evicted. */
typedef struct keel_kv_view {
    keel_header h;
    /* [blocks, block_slots, head_dim], the K dtype */
    const keel_tensor *k;
    /* [blocks, block_slots, v_head_dim], the V dtype */
    const keel_tensor *v;
    /* i32 [kv_heads, blocks_per_head]; -1 where no block is held */
    const keel_tensor *block_table;
    /* i32 [kv_heads]: slots in use, the rows that the running step appends included */
    const keel_tensor *lengths;
    /* i32 [kv_heads, slots]: position of the key in each slot */
    const keel_tensor *positions;
    /* a power of two */
    uint32_t block_slots;
    uint32_t kv_heads;
    /* no length is above this; known to the host, so that grids need no read-back */
    int64_t max_length;
} keel_kv_view;

/* How pairs of a head's elements are rotated. For a pair (a, b) at frequency i: a' = a*cos -
 * b*sin, b' = b*cos + a*sin. */
typedef uint32_t keel_rope_mode;
enum keel_rope_mode_e {
    /* pair i is elements (i, i + rot/2): Hugging Face checkpoints, GPT-NeoX */
    KEEL_ROPE_HALF_SPLIT = 1,
    /* pair i is elements (2i, 2i+1): Meta checkpoints, GGUF's llama */
    KEEL_ROPE_INTERLEAVED = 2
};

/* RoPE tables, computed by the core in float64 with the model's scaling and handed over as f32. */
typedef struct keel_rope_tables {
    keel_header h;
    /* f32 [rows, rot/2]; position p uses row p % rows: the core keeps the rows of all positions
     * in use, so that a stream may go on for ever in constant memory */
    const keel_tensor *cos, *sin;
    keel_rope_mode mode;
    /* elements of a head that are rotated, from element 0; even, at most head_dim */
    uint32_t rot;
} keel_rope_tables;

#ifdef __cplusplus
}
#endif
#endif

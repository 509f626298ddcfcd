/* keel.batched_decode/1 (draft): what a decode step of n sequences does apart for each of them,
 * in one call: appending to n caches, and attention over them. All else of such a step is the op
 * table's ops over n rows.
 *
 * A backend's keel_plugin.get_extension("keel.batched_decode/1") returns a keel_batched_decode.
 * Without it the core calls qkv_prepare and attention once for each sequence. */
#ifndef KEEL_EXT_BATCHED_DECODE_H
#define KEEL_EXT_BATCHED_DECODE_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_BATCHED_DECODE "keel.batched_decode/1"

/* One layer's caches of n sequences. Their blocks lie in one pair of arenas, as keel_kv_view has
 * them, and their books in tensors with a place for each sequence that there may be, its seat.
 * Row i of a call is the newest token of the sequence on seat seats[i]: its slot is
 * lengths[seats[i]][h] - 1. Sequences come and go by what seats lists; all that varies from step
 * to step lies in buffers, but for n (the rows of the call), max_length, and k and v where
 * arenas grow by exchange. The outermost dimension of the books may be strided. */
typedef struct keel_batch_kv {
    keel_header h;
    /* [blocks, block_slots, head_dim], the K dtype */
    const keel_tensor *k;
    /* [blocks, block_slots, v_head_dim], the V dtype */
    const keel_tensor *v;
    /* i32 [n_seats, kv_heads, blocks_per_head]; -1 where no block is held */
    const keel_tensor *block_table;
    /* i32 [n_seats, kv_heads]: slots in use, the row that the running step appends included */
    const keel_tensor *lengths;
    /* i32 [n_seats, kv_heads, slots] */
    const keel_tensor *positions;
    /* i32 [n], contiguous: each 0..n_seats-1, no two alike */
    const keel_tensor *seats;
    /* a power of two */
    uint32_t block_slots;
    uint32_t kv_heads;
    /* no length of these sequences is above this */
    int64_t max_length;
} keel_batch_kv;

/* The table. Required up to `attention`. The args are the op table's with m = n rows, whose `kv`
 * is NULL and not looked at: the caches are given beside them. Row i does what the op does with
 * m = 1 for its sequence, within the op's bound, and bit for bit where the backend can. Queued
 * in the stream like an op. */
typedef struct keel_batched_decode {
    keel_header h;
    /* Settles both calls before they are used, as op_plan does: templates with the largest n and
     * max_length, whose buffers may be NULL. KEEL_E_UNSUPPORTED: not here, and the core goes
     * sequence by sequence. `plan` of the args is NULL, here and in the calls. [ctx] */
    keel_status(KEEL_CALL *prepare)(keel_ctx *, const keel_qkv_args *, const keel_attention_args *,
                                    const keel_batch_kv *);
    /* positions: i32 [n]. All features of the op. since draft. [ctx] */
    keel_status(KEEL_CALL *qkv_prepare)(keel_ctx *, const keel_qkv_args *, const keel_batch_kv *);
    /* positions: i32 [n]. since draft. [ctx] */
    keel_status(KEEL_CALL *kv_append)(keel_ctx *, const keel_kv_append_args *,
                                      const keel_batch_kv *);
    /* q_positions: i32 [n] with KEEL_ATTENTION_WINDOW. KEEL_ATTENTION_CAUSAL changes nothing: a
     * row sees its sequence's slots. With KEEL_ATTENTION_SCORES KEEL_E_UNSUPPORTED: sums go to
     * each sequence's own array. since draft. [ctx] */
    keel_status(KEEL_CALL *attention)(keel_ctx *, const keel_attention_args *,
                                      const keel_batch_kv *);
} keel_batched_decode;

#ifdef __cplusplus
}
#endif
#endif

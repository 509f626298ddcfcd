/* keel.batched_decode/1 (draft): a decode step of n sequences in one call.
 *
 * A decode step of n sequences has n rows: the newest token of each sequence. Most ops treat the
 * rows independently, so the ops of the op table can compute them. But two ops need the cache of
 * each sequence: each row is appended to the cache of its own sequence, and attends only to this
 * cache. This extension does both for all n sequences at once.
 *
 * A backend's keel_plugin.get_extension("keel.batched_decode/1") returns a keel_batched_decode.
 * Without it, the core calls qkv_prepare and attention once for each sequence.
 *
 * EXAMPLE. Two sequences on the seats 0 and 3, one layer. `seats` is an i32 buffer with {0, 3}:
 *
 *     keel_batch_kv caches = {KEEL_HEADER(keel_batch_kv)};  // the layer's arenas, tables, lengths
 *     caches.seats = &seats;                                    // i32 [2]
 *     table->qkv_prepare(ctx, &qkv_args, &caches);              // m = 2, args.kv is NULL
 *     table->attention(ctx, &attention_args, &caches);
 *
 * Everything here exists since the draft. */
#ifndef KEEL_EXT_BATCHED_DECODE_H
#define KEEL_EXT_BATCHED_DECODE_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_BATCHED_DECODE "keel.batched_decode/1"

/* The caches of n sequences, for one layer. All blocks are in one pair of arenas, as in
 * keel_kv_view (kv.h). Block tables, lengths and positions are tensors with one entry for each
 * SEAT. A seat is the place of a sequence in these tensors; there are n_seats of them. Row i of a
 * call belongs to the sequence on seat seats[i]. Its slot in head h is lengths[seats[i]][h] - 1.
 *
 * If a sequence joins or leaves, only the list of seats changes. All data that changes from step to
 * step is in buffers, with three exceptions: n (the rows of the call), max_length, and the tensors
 * k and v. The buffers of k and v change if the backend cannot reserve memory and an arena grows.
 * The outermost dimension of block_table, lengths and positions may be strided.
 *
 * The core owns the struct and the tensors; they are valid during the call. */
typedef struct keel_batch_kv {
    keel_header h;
    /* Arena of the keys: [blocks, block_slots, head_dim]. */
    const keel_tensor *k;
    /* Arena of the values: [blocks, block_slots, v_head_dim]. */
    const keel_tensor *v;
    /* Block numbers: i32 [n_seats, kv_heads, blocks_per_head]. -1 means that the head does not have
     * this block. */
    const keel_tensor *block_table;
    /* Slots in use: i32 [n_seats, kv_heads]. The row that this step appends is included. */
    const keel_tensor *lengths;
    /* Position of the key in each slot: i32 [n_seats, kv_heads, slots]. */
    const keel_tensor *positions;
    /* Seat of each row: i32 [n], contiguous. Each seat is 0..n_seats-1, and all are different. */
    const keel_tensor *seats;
    /* Slots of a block, a power of two. */
    uint32_t block_slots;
    /* Number of KV heads. */
    uint32_t kv_heads;
    /* Upper bound of the lengths of these sequences. */
    int64_t max_length;
} keel_batch_kv;

/* The functions of this extension. Members up to `attention` are required and must not be NULL. The
 * args structs are those of the op table, for m = n rows. The members `kv` and `plan` of the args
 * are NULL. The caches are the last argument.
 *
 * The result of row i is equal to the result of the op with m = 1 for its sequence, within the op's
 * bound. If possible, the results are bit-identical. Calls are queued in the stream like ops. */
typedef struct keel_batched_decode {
    keel_header h;
    /* Prepares the other functions, as op_plan does (backend.h). The arguments are templates of the
     * largest calls: the largest n and max_length, with buffers that may be NULL.
     * KEEL_E_UNSUPPORTED: the backend does not support these templates. Then the core calls the ops
     * for one sequence after the other. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *prepare)(keel_ctx *, const keel_qkv_args *, const keel_attention_args *,
                                    const keel_batch_kv *);
    /* The op qkv_prepare with all its features. `positions` is i32 [n]. Thread: one call at a
     * time on a context. */
    keel_status(KEEL_CALL *qkv_prepare)(keel_ctx *, const keel_qkv_args *, const keel_batch_kv *);
    /* The op kv_append. `positions` is i32 [n]. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *kv_append)(keel_ctx *, const keel_kv_append_args *,
                                      const keel_batch_kv *);
    /* The op attention. With KEEL_ATTENTION_WINDOW, `q_positions` is i32 [n]. KEEL_ATTENTION_CAUSAL
     * changes nothing, because a row attends to all slots of its sequence. For
     * KEEL_ATTENTION_SCORES it returns KEEL_E_UNSUPPORTED, because each sequence has its own array
     * of sums. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *attention)(keel_ctx *, const keel_attention_args *,
                                      const keel_batch_kv *);
} keel_batched_decode;

#ifdef __cplusplus
}
#endif
#endif

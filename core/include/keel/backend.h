/* A compute backend: devices, contexts, buffers, a stream, weights, plans and the op table.
 *
 * The required slots are the first ten; with `matmul` added that is a working backend. Every
 * other slot may be NULL: the core then composes the op of smaller ones, or runs it on the
 * fallback the config names, or on its own reference - and says so.
 *
 * THE STREAM. A context has one. Ops and buffer_write are queued in it and run in order;
 * buffer_write has copied its source when it returns. Nothing has to start before flush. flush
 * returns a ticket, rising by at least one from call to call; work queued before flush is done
 * when wait(ticket) returns. buffer_read waits for all that was queued before it. An error of
 * queued work surfaces from the next flush, wait, poll or buffer_read.
 *
 * WHAT VARIES FROM STEP TO STEP LIVES IN BUFFERS (ids, positions, lengths, block tables, index
 * lists), never in args: a step can be recorded once and submitted again (draft keel.replay/1).
 *
 * Extension names the core knows or reserves: keel.replay/1, keel.timestamps/1,
 * keel.read_later/1, keel.stream_counts/1, keel.batched_decode/1, keel.fused_ffn/1,
 * keel.attention_backward/1; keel.mla/1, keel.moe/1, keel.gptq/1, keel.kv_merge/1. */
#ifndef KEEL_BACKEND_H
#define KEEL_BACKEND_H

#include "ops_policy.h"
#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A device opened for work: one stream, its buffers, weights and plans. */
typedef struct keel_ctx keel_ctx;

typedef uint32_t keel_device_type;
enum keel_device_type_e {
    KEEL_DEVICE_CPU = 1,
    KEEL_DEVICE_INTEGRATED = 2, /* a GPU that shares the host's memory */
    KEEL_DEVICE_DISCRETE = 3,
    KEEL_DEVICE_OTHER = 4
};

enum keel_device_flags_e {
    /* host-visible buffers are as fast as others: one physical memory */
    KEEL_DEVICE_UNIFIED = 1,
    /* buffer_create takes host memory (KEEL_BUFFER_IMPORT) */
    KEEL_DEVICE_IMPORTS_HOST = 2
};

/* Out-struct. Text is UTF-8, cut to fit, NUL at the end. */
typedef struct keel_device_info {
    keel_header h;
    char name[128];
    char vendor[64];
    char driver[128];
    keel_device_type type;
    uint32_t flags;       /* keel_device_flags_e */
    uint64_t total_bytes; /* of memory it can use; 0: unknown */
} keel_device_info;

typedef struct keel_ctx_desc {
    keel_header h;
    uint32_t device; /* index below device_count */
    uint32_t n_params;
    const keel_param *const *params; /* the plugin's table, checked and complete */
} keel_ctx_desc;

typedef uint32_t keel_sync;
enum keel_sync_e {
    KEEL_SYNC_LAZY = 0,   /* flush at natural ends, wait only where the host reads */
    KEEL_SYNC_EAGER = 1,  /* wait after every op: for debugging */
    KEEL_SYNC_BATCHED = 2 /* flush every sync_ops ops */
};

/* Out-struct: what the context likes. A zero member means: the core's default. */
typedef struct keel_ctx_info {
    keel_header h;
    /* for people: "avx2, 2 threads, compute fast" */
    char description[256];
    /* what A is in the op table; f32 by default */
    keel_dtype activation_dtype;
    /* what `strategy: auto` means */
    keel_sync sync;
    /* with KEEL_SYNC_BATCHED */
    uint32_t sync_ops;
    /* slots of a cache block, a power of two; 64 by default */
    uint32_t kv_block_slots;
    /* tokens of a prefill chunk; 512 by default */
    uint32_t prefill_chunk;
    /* of buffers, of imported memory, and of the offsets at which the core places tensors in a
     * buffer; at least 64. Views into them may begin anywhere (tensor.h) */
    uint32_t buffer_align;
    /* 0: no limit but memory */
    uint64_t max_buffer_bytes;
    /* bits 1 << dtype: weight_prepare, matmul and embed take weights of these too, beside f32,
     * f16, bf16, q8_0 and q4_0. What a file holds in others, the core converts and says so.
     * since 0.1 */
    uint64_t weight_dtypes;
} keel_ctx_info;

typedef uint32_t keel_buffer_kind;
enum keel_buffer_kind_e {
    /* fastest for the device */
    KEEL_BUFFER_DEVICE = 0,
    /* buffer_map works */
    KEEL_BUFFER_HOST_VISIBLE = 1,
    /* uses the host memory given, without a copy, until destroyed */
    KEEL_BUFFER_IMPORT = 2,
    /* address space only: ranges hold memory between buffer_commit(1) and buffer_commit(0) */
    KEEL_BUFFER_RESERVE = 3
};

typedef struct keel_buffer_desc {
    keel_header h;
    /* bytes, above 0 */
    uint64_t size;
    keel_buffer_kind kind;
    uint32_t reserved;
    /* KEEL_BUFFER_IMPORT: the memory, aligned to keel_ctx_info.buffer_align, valid until
     * destroyed; else NULL */
    void *host;
} keel_buffer_desc;

/* Out-struct, in bytes; 0: unknown. Where nothing is free `free` is 1: the core takes all of
 * `total` that is not ours for free if it is 0. */
typedef struct keel_mem_info {
    keel_header h;
    uint64_t total, free;
    uint64_t ours; /* held by this context: buffers, weights, plans, scratch */
} keel_mem_info;

typedef uint32_t keel_join;
enum keel_join_e {
    /* sources one after the other: Q, K, V */
    KEEL_JOIN_ROWS = 0,
    /* row 0 of each source, row 1 of each, ...: gate, up. All have the same number of rows */
    KEEL_JOIN_INTERLEAVE = 1
};

enum keel_weight_use_e { KEEL_USE_MATMUL = 1,
                         KEEL_USE_EMBED = 2 };

/* Part of a weight as it lies in a file. Rows are contiguous, keel_dtype_row_bytes(dtype, cols)
 * apart. */
typedef struct keel_weight_source {
    keel_header h;
    const void *mapping;    /* start of the mapped file or memory block */
    uint64_t mapping_bytes; /* its whole size, so that a device can import it once */
    uint64_t offset;        /* of row 0 in it; any alignment */
    keel_dtype dtype;
    uint32_t reserved;
    int64_t rows, cols;
} keel_weight_source;

typedef struct keel_weight_desc {
    keel_header h;
    const keel_weight_source *const *sources; /* n_sources, all with the same dtype and cols */
    uint32_t n_sources;
    keel_join join;
    uint32_t use;   /* keel_weight_use_e bits; both for tied embeddings */
    uint32_t max_m; /* largest number of rows that x will have */
} keel_weight_desc;

/* Out-struct. */
typedef struct keel_weight_info {
    keel_header h;
    /* joined */
    int64_t rows, cols;
    /* that matmul reads for m = 1: the joined weight in the backend's layout */
    uint64_t bytes;
    /* 1: the sources stay in use, and mapped, until weight_destroy; 0: the core may drop them */
    uint32_t source_needed;
    /* of the stored values */
    keel_dtype dtype;
    /* for people: "q4_0, 8 rows interleaved" */
    char layout[64];
} keel_weight_info;

/* Out-struct. */
typedef struct keel_plan_info {
    keel_header h;
    /* of backend memory that the op uses beside its tensors; shared between plans where it can
     * be */
    uint64_t scratch_bytes;
    /* for people and tests: "matmul q4_0 avx2 fast" */
    char kernel[64];
} keel_plan_info;

/* The table. Required up to `wait`. */
typedef struct keel_backend {
    keel_header h;

    /* How many devices there are now; 0 is fine. since 0.1. [init] */
    keel_status(KEEL_CALL *device_count)(const keel_host *, uint32_t *n);
    /* Facts of device `index`. since 0.1. [init] */
    keel_status(KEEL_CALL *device_info)(const keel_host *, uint32_t index, keel_device_info *out);
    /* Opens a device. The host pointer stays valid until ctx_destroy returns. since 0.1. [init] */
    keel_status(KEEL_CALL *ctx_create)(const keel_host *, const keel_ctx_desc *, keel_ctx **out);
    /* After all its buffers, weights and plans were destroyed; waits for queued work. since 0.1.
     * [ctx] */
    void(KEEL_CALL *ctx_destroy)(keel_ctx *);
    /* A buffer, not zeroed, aligned to max(64 B, the device's own). KEEL_E_OUT_OF_MEMORY leaves
     * all as it was; a kind that the backend does not have is KEEL_E_UNSUPPORTED (DEVICE always
     * works). since 0.1. [ctx] */
    keel_status(KEEL_CALL *buffer_create)(keel_ctx *, const keel_buffer_desc *, keel_buffer **out);
    /* Queued work that uses it is waited for first. NULL is fine. since 0.1. [ctx] */
    void(KEEL_CALL *buffer_destroy)(keel_ctx *, keel_buffer *);
    /* Queued: n bytes from src to offset; src is copied before the return. since 0.1. [ctx] */
    keel_status(KEEL_CALL *buffer_write)(keel_ctx *, keel_buffer *, uint64_t offset,
                                         const void *src, uint64_t n);
    /* Waits for all that was queued, then copies n bytes to dst. since 0.1. [ctx] */
    keel_status(KEEL_CALL *buffer_read)(keel_ctx *, keel_buffer *, uint64_t offset, void *dst,
                                        uint64_t n);
    /* Submits what is queued; *ticket names it. since 0.1. [ctx] */
    keel_status(KEEL_CALL *flush)(keel_ctx *, uint64_t *ticket);
    /* Returns when all up to the ticket is done. A ticket that no flush gave, 0 too, is
     * KEEL_E_INVALID_ARG. since 0.1. [ctx] */
    keel_status(KEEL_CALL *wait)(keel_ctx *, uint64_t ticket);

    /* ---- optional from here on ---- */

    /* KEEL_OK if done, KEEL_E_NOT_READY if not. For hosts other than the core, which waits; NULL
     * is fine. since 0.1. [ctx] */
    keel_status(KEEL_CALL *poll)(keel_ctx *, uint64_t ticket);
    /* NULL: all defaults. since 0.1. [ctx] */
    keel_status(KEEL_CALL *ctx_info)(keel_ctx *, keel_ctx_info *out);
    /* NULL: unknown. since 0.1. [ctx] */
    keel_status(KEEL_CALL *mem_info)(keel_ctx *, keel_mem_info *out);
    /* The host's pointer to a HOST_VISIBLE, RESERVE or IMPORT buffer, the same for its life. The
     * host touches it only when no queued work does. NULL: the core reads and writes through
     * copies. since 0.1. [ctx] */
    keel_status(KEEL_CALL *buffer_map)(keel_ctx *, keel_buffer *, void **out);
    /* commit 1: memory stands behind the range (contents undefined). 0: whole pages of the range
     * go back to the system; their contents are lost. Of RESERVE buffers. Ordered in the stream.
     * NULL: no RESERVE; the core grows by copying. since 0.1. [ctx] */
    keel_status(KEEL_CALL *buffer_commit)(keel_ctx *, keel_buffer *, uint64_t offset, uint64_t n,
                                          uint32_t commit);

    /* Takes a weight into the backend's own layout, or uses the source in place. May run long:
     * looks at host->cancelled. NULL or KEEL_E_UNSUPPORTED: the core keeps the joined weight in
     * a buffer and passes it as a tensor. since 0.1. [ctx] */
    keel_status(KEEL_CALL *weight_prepare)(keel_ctx *, const keel_weight_desc *, keel_weight **out);
    /* NULL is fine. Required with weight_prepare. since 0.1. [ctx] */
    void(KEEL_CALL *weight_destroy)(keel_ctx *, keel_weight *);
    /* Required with weight_prepare. since 0.1. [ctx] */
    keel_status(KEEL_CALL *weight_info)(keel_ctx *, const keel_weight *, keel_weight_info *out);

    /* Settles an op before it is used. `args` is its args struct as a template of the largest
     * call to come; buffers may be NULL. In a call each dimension that counts tokens, rows,
     * slots, blocks or ranges may be smaller, strides outside of those differ, and so may
     * buffers, offsets, max_length, begin, end and n_sides; the rest is the same.
     * KEEL_E_UNSUPPORTED: this op will not run here. NULL: ops are tried as they come. Required
     * with plan_destroy and plan_info. since 0.1. [ctx] */
    keel_status(KEEL_CALL *op_plan)(keel_ctx *, keel_op op, const keel_op_args *args,
                                    keel_plan **out);
    /* NULL is fine. since 0.1. [ctx] */
    void(KEEL_CALL *plan_destroy)(keel_ctx *, keel_plan *);
    /* since 0.1. [ctx] */
    keel_status(KEEL_CALL *plan_info)(keel_ctx *, const keel_plan *, keel_plan_info *out);

    /* ---- ops ---------------------------------------------------------------------------------
     * They are queued in the stream. ops*.h has their meaning, shapes and bounds. NULL: the core
     * uses its fallback ladder. All since 0.1, all [ctx]. Slot k is the op with id k + 1. */
    keel_status(KEEL_CALL *matmul)(keel_ctx *, const keel_matmul_args *);
    keel_status(KEEL_CALL *rms_norm)(keel_ctx *, const keel_norm_args *);
    keel_status(KEEL_CALL *add_rms_norm)(keel_ctx *, const keel_norm_args *);
    keel_status(KEEL_CALL *layer_norm)(keel_ctx *, const keel_norm_args *);
    keel_status(KEEL_CALL *silu_mul)(keel_ctx *, const keel_gate_args *);
    keel_status(KEEL_CALL *gelu_mul)(keel_ctx *, const keel_gate_args *);
    keel_status(KEEL_CALL *add)(keel_ctx *, const keel_elementwise_args *);
    keel_status(KEEL_CALL *add_bias)(keel_ctx *, const keel_elementwise_args *);
    keel_status(KEEL_CALL *scale)(keel_ctx *, const keel_elementwise_args *);
    keel_status(KEEL_CALL *scaled_add)(keel_ctx *, const keel_elementwise_args *);
    keel_status(KEEL_CALL *softmax)(keel_ctx *, const keel_move_args *);
    keel_status(KEEL_CALL *cast)(keel_ctx *, const keel_move_args *);
    keel_status(KEEL_CALL *copy)(keel_ctx *, const keel_move_args *);
    keel_status(KEEL_CALL *transpose)(keel_ctx *, const keel_move_args *);
    keel_status(KEEL_CALL *zero)(keel_ctx *, const keel_move_args *);
    keel_status(KEEL_CALL *rope)(keel_ctx *, const keel_rope_args *);
    keel_status(KEEL_CALL *qkv_prepare)(keel_ctx *, const keel_qkv_args *);
    keel_status(KEEL_CALL *attention)(keel_ctx *, const keel_attention_args *);
    keel_status(KEEL_CALL *attention_scores)(keel_ctx *, const keel_attention_scores_args *);
    keel_status(KEEL_CALL *key_project)(keel_ctx *, const keel_keys_args *);
    keel_status(KEEL_CALL *key_sum)(keel_ctx *, const keel_keys_args *);
    keel_status(KEEL_CALL *value_norms)(keel_ctx *, const keel_keys_args *);
    keel_status(KEEL_CALL *query_stats)(keel_ctx *, const keel_query_stats_args *);
    keel_status(KEEL_CALL *kv_append)(keel_ctx *, const keel_kv_append_args *);
    keel_status(KEEL_CALL *kv_gather)(keel_ctx *, const keel_kv_gather_args *);
    keel_status(KEEL_CALL *kv_rerotate)(keel_ctx *, const keel_kv_rerotate_args *);
    keel_status(KEEL_CALL *embed)(keel_ctx *, const keel_embed_args *);
    keel_status(KEEL_CALL *argmax_rows)(keel_ctx *, const keel_rows_args *);
    keel_status(KEEL_CALL *top_k_rows)(keel_ctx *, const keel_rows_args *);
} keel_backend;

/* X(ID, slot, args type) for each op, in the order of the slots: for wrappers, tables and tests. */
#define KEEL_FOR_EACH_OP(X)                                           \
    X(MATMUL, matmul, keel_matmul_args)                               \
    X(RMS_NORM, rms_norm, keel_norm_args)                             \
    X(ADD_RMS_NORM, add_rms_norm, keel_norm_args)                     \
    X(LAYER_NORM, layer_norm, keel_norm_args)                         \
    X(SILU_MUL, silu_mul, keel_gate_args)                             \
    X(GELU_MUL, gelu_mul, keel_gate_args)                             \
    X(ADD, add, keel_elementwise_args)                                \
    X(ADD_BIAS, add_bias, keel_elementwise_args)                      \
    X(SCALE, scale, keel_elementwise_args)                            \
    X(SCALED_ADD, scaled_add, keel_elementwise_args)                  \
    X(SOFTMAX, softmax, keel_move_args)                               \
    X(CAST, cast, keel_move_args)                                     \
    X(COPY, copy, keel_move_args)                                     \
    X(TRANSPOSE, transpose, keel_move_args)                           \
    X(ZERO, zero, keel_move_args)                                     \
    X(ROPE, rope, keel_rope_args)                                     \
    X(QKV_PREPARE, qkv_prepare, keel_qkv_args)                        \
    X(ATTENTION, attention, keel_attention_args)                      \
    X(ATTENTION_SCORES, attention_scores, keel_attention_scores_args) \
    X(KEY_PROJECT, key_project, keel_keys_args)                       \
    X(KEY_SUM, key_sum, keel_keys_args)                               \
    X(VALUE_NORMS, value_norms, keel_keys_args)                       \
    X(QUERY_STATS, query_stats, keel_query_stats_args)                \
    X(KV_APPEND, kv_append, keel_kv_append_args)                      \
    X(KV_GATHER, kv_gather, keel_kv_gather_args)                      \
    X(KV_REROTATE, kv_rerotate, keel_kv_rerotate_args)                \
    X(EMBED, embed, keel_embed_args)                                  \
    X(ARGMAX_ROWS, argmax_rows, keel_rows_args)                       \
    X(TOP_K_ROWS, top_k_rows, keel_rows_args)

#ifdef __cplusplus
}
#endif
#endif

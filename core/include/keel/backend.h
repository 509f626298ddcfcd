/* A compute backend: the table of functions that runs a model on a device.
 *
 * ORDER OF CALLS. The core calls these functions, in this order:
 * 1. device_count and device_info list the devices. ctx_create opens one of them. The result is a
 *    keel_ctx, the context.
 * 2. weight_prepare makes each weight of the model. op_plan plans each op. Both functions are
 *    optional.
 * 3. buffer_create makes the buffers of the activations and of the KV cache.
 * 4. For each step of the model, buffer_write writes token ids, positions and block tables. Then
 *    the core calls the ops, flush, and buffer_read or wait.
 * 5. The destroy functions free the objects, ctx_destroy last.
 *
 * WHAT IS REQUIRED. The first ten functions, device_count to wait, are required. A backend is
 * useful if it also has `matmul`. Every other function may be NULL. If an op is NULL or refuses a
 * call, the core uses the next rung of the fallback ladder (ops.h) and reports this to the user.
 *
 * THE STREAM. A context has one stream: a queue of work that runs in order.
 * - Ops and buffer_write are queued in it. buffer_write copies its source before it returns.
 * - Queued work can start at once, or only at the next flush. flush returns a ticket. Each ticket
 *   is larger than the previous ticket. When wait(ticket) returns, all work queued before that
 *   flush is done.
 * - buffer_read waits for all work queued before it.
 * - If queued work fails, the next flush, wait, poll or buffer_read returns the error.
 *
 * RECORDED STEPS. All data that changes from step to step is in buffers: token ids, positions,
 * lengths, block tables, index lists. The args structs stay the same. So a backend can record a
 * step once and submit it again (ext/draft/replay.h).
 *
 * EXAMPLE. If the ops of a context finish before their call returns, the context needs no queue:
 *
 *     keel_status flush(keel_ctx *ctx, uint64_t *ticket) {
 *         *ticket = ++ctx->tickets;
 *         return KEEL_OK;
 *     }
 *     keel_status wait(keel_ctx *ctx, uint64_t ticket) {
 *         return ticket == 0 || ticket > ctx->tickets ? KEEL_E_INVALID_ARG : KEEL_OK;
 *     }
 *
 * STRUCTS. "Out-struct" means: the caller zeroes the struct and writes its header, and the callee
 * fills it with keel_emit() (abi.h). In the other structs, the caller owns the struct and what it
 * points to; both are valid during the call. "For people" means: the text is shown, never parsed.
 *
 * EXTENSIONS. keel_plugin.get_extension returns further tables (ext/draft/). The core uses
 * keel.replay/1, keel.timestamps/1, keel.read_later/1, keel.stream_counts/1 and
 * keel.batched_decode/1. Other hosts use keel.attention_dense/1. Reserved: keel.fused_ffn/1,
 * keel.attention_backward/1, keel.mla/1, keel.gptq/1, keel.kv_merge/1.
 *
 * After KEEL_E_DEVICE_LOST, the core only calls destroy functions of the context. Everything here
 * exists since 0.1. */
#ifndef KEEL_BACKEND_H
#define KEEL_BACKEND_H

#include "op_list.h"
#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A device that was opened for work, with one stream, and the buffers, weights and plans on it. The
 * backend defines it. ctx_create makes it, ctx_destroy frees it. */
typedef struct keel_ctx keel_ctx;

/* ---- devices and contexts -------------------------------------------------------------------- */

typedef uint32_t keel_device_type;
enum keel_device_type_e {
    KEEL_DEVICE_CPU = 1,
    KEEL_DEVICE_INTEGRATED = 2, /* a GPU that shares the memory of the host */
    KEEL_DEVICE_DISCRETE = 3,   /* a GPU with memory of its own */
    KEEL_DEVICE_OTHER = 4
};

/* Bits of keel_device_info.flags. */
enum keel_device_flags_e {
    /* Host and device share the physical memory: HOST_VISIBLE buffers are as fast as others. */
    KEEL_DEVICE_UNIFIED = 1,
    /* buffer_create accepts KEEL_BUFFER_IMPORT. */
    KEEL_DEVICE_IMPORTS_HOST = 2
};

/* Out-struct. Texts are UTF-8, cut to fit, and end with NUL. */
typedef struct keel_device_info {
    keel_header h;
    /* For people. A pipeline file can select a device by a part of its name or vendor. */
    char name[128];
    char vendor[64];
    char driver[128];      /* name and version of the driver; can be empty */
    keel_device_type type; /* a pipeline file can select a device by its type too */
    /* Bits of keel_device_flags_e. */
    uint32_t flags;
    /* Bytes of memory that the device can use. 0: unknown. */
    uint64_t total_bytes;
} keel_device_info;

/* What ctx_create opens. */
typedef struct keel_ctx_desc {
    keel_header h;
    /* Number of the device, below the count of device_count. */
    uint32_t device;
    /* Number of parameters. */
    uint32_t n_params;
    /* One value for each row of the plugin's parameter table, in its order (plugin.h). */
    const keel_param *const *params;
} keel_ctx_desc;

/* How the core submits queued work and waits for it. It never changes a result. */
typedef uint32_t keel_sync;
enum keel_sync_e {
    KEEL_SYNC_LAZY = 0,   /* flush at the end of a step, wait when the host reads */
    KEEL_SYNC_EAGER = 1,  /* wait after every op; for debugging */
    KEEL_SYNC_BATCHED = 2 /* flush every sync_ops ops */
};

/* Out-struct: the preferences of the context. For a member that is 0, the core uses its default. */
typedef struct keel_ctx_info {
    keel_header h;
    /* For people, such as "avx2, 2 threads, compute fast". Backends without op_plan put "compute
     * fast" in it if the bounds for "fast" apply (ops.h). */
    char description[256];
    /* The activation type, which ops.h calls A: f32, f16 or bf16. Default: f32. */
    keel_dtype activation_dtype;
    /* The strategy that `strategy: auto` in a pipeline file selects. */
    keel_sync sync;
    /* With KEEL_SYNC_BATCHED: ops between two flushes. */
    uint32_t sync_ops;
    /* Slots of a block of the KV cache. A power of two, at most 4096. Default: 64. */
    uint32_t kv_block_slots;
    /* Tokens of a chunk of a prompt, at most 65536. Default: 512. */
    uint32_t prefill_chunk;
    /* Alignment in bytes of buffers, of imported memory, and of the offsets at which the core
     * places tensors in a buffer. A power of two, at least 64. Default: 64. A view into a
     * tensor can begin at any of its elements (tensor.h). */
    uint32_t buffer_align;
    /* Largest buffer in bytes. 0: no limit except memory. */
    uint64_t max_buffer_bytes;
    /* Weight types that weight_prepare, matmul and embed take, in addition to f32, f16, bf16, q8_0
     * and q4_0, which every backend takes. A set of bits 1 << dtype. The core converts weights of
     * other types and reports the conversion. */
    uint64_t weight_dtypes;
} keel_ctx_info;

/* ---- buffers --------------------------------------------------------------------------------- */

typedef uint32_t keel_buffer_kind;
enum keel_buffer_kind_e {
    /* Memory that is fastest for the device. Every backend has this kind. */
    KEEL_BUFFER_DEVICE = 0,
    /* buffer_map works for it. */
    KEEL_BUFFER_HOST_VISIBLE = 1,
    /* The buffer is the host memory in keel_buffer_desc.host, without a copy. */
    KEEL_BUFFER_IMPORT = 2,
    /* Address space without memory. buffer_commit with commit 1 gives memory to a range, and
     * buffer_commit with commit 0 takes it away. */
    KEEL_BUFFER_RESERVE = 3
};

/* What buffer_create makes. */
typedef struct keel_buffer_desc {
    keel_header h;
    /* Bytes, at least 1. */
    uint64_t size;
    keel_buffer_kind kind; /* the kind; see buffer_create for kinds that a backend does not have */
    uint32_t reserved;
    /* KEEL_BUFFER_IMPORT: the host memory, aligned to keel_ctx_info.buffer_align. The caller owns
     * it; it is valid until the buffer is destroyed. Other kinds: NULL. */
    void *host;
} keel_buffer_desc;

/* Out-struct. Numbers are bytes of device memory. */
typedef struct keel_mem_info {
    keel_header h;
    /* The total memory of the device, and its free memory. 0: unknown. If `free` is 0, the core
     * assumes that everything is free except `ours`. So if the device has no free memory left, the
     * backend writes 1 to `free`. */
    uint64_t total, free;
    /* Bytes that this context holds: buffers, weights, plans, scratch. */
    uint64_t ours;
} keel_mem_info;

/* ---- weights --------------------------------------------------------------------------------- */

/* The way in which several sources become the rows of one weight. */
typedef uint32_t keel_join;
enum keel_join_e {
    /* All rows of the first source, then all rows of the second, and so on. Used for Q, K, V. */
    KEEL_JOIN_ROWS = 0,
    /* Row 0 of each source, then row 1 of each source, and so on. Used for gate and up. All sources
     * have the same number of rows. */
    KEEL_JOIN_INTERLEAVE = 1
};

/* Bits of keel_weight_desc.use: the ops that read the weight. */
enum keel_weight_use_e { KEEL_USE_MATMUL = 1,
                         KEEL_USE_EMBED = 2,
                         KEEL_USE_EXPERTS = 4 }; /* expert_matmul, and no other op */

/* A matrix in a model file, one source of a weight. Rows are contiguous, and
 * keel_dtype_row_bytes(dtype, cols) bytes apart. The memory is valid during weight_prepare. If
 * keel_weight_info.source_needed is 1, the memory is valid until weight_destroy. */
typedef struct keel_weight_source {
    keel_header h;
    /* Start of the mapped file, or of a block of memory. */
    const void *mapping;
    /* Size of the whole mapping in bytes. With this size, a device can import the mapping once for
     * all weights. */
    uint64_t mapping_bytes;
    /* Bytes from `mapping` to row 0. It can have any alignment. */
    uint64_t offset;
    keel_dtype dtype; /* type of the elements */
    uint32_t reserved;
    int64_t rows, cols; /* size of the matrix; cols is a multiple of the dtype's block */
} keel_weight_source;

/* What weight_prepare makes. */
typedef struct keel_weight_desc {
    keel_header h;
    /* n_sources pointers, at least one. All sources have the same dtype and cols. */
    const keel_weight_source *const *sources;
    uint32_t n_sources; /* number of sources */
    keel_join join;     /* how the sources become one matrix; not used if there is one source */
    /* Bits of keel_weight_use_e. Both bits if input and output embeddings are the same weight. */
    uint32_t use;
    /* Largest number of rows that x of a matmul will have. */
    uint32_t max_m;
    /* With KEEL_USE_EXPERTS: the number of experts, else 0. All experts have the same number of
     * rows. The sources are joined by rows. The first n_sources / experts sources have the rows of
     * expert 0, the next ones the rows of expert 1, and so on. */
    uint32_t experts;
    uint32_t reserved;
} keel_weight_desc;

/* Out-struct. */
typedef struct keel_weight_info {
    keel_header h;
    /* Size of the joined weight. */
    int64_t rows, cols;
    /* Bytes that a matmul with one row (m = 1) reads: the joined weight in the backend's layout. */
    uint64_t bytes;
    /* 1: the backend reads the sources in place, so they stay mapped until weight_destroy. 0: the
     * core may unmap or free the sources. */
    uint32_t source_needed;
    /* Type of the stored values. */
    keel_dtype dtype;
    /* For people, such as "q4_0, 8 rows interleaved". */
    char layout[64];
} keel_weight_info;

/* Out-struct. */
typedef struct keel_plan_info {
    keel_header h;
    /* Bytes of device memory that the op uses in addition to its tensors. Plans share this memory
     * if possible. */
    uint64_t scratch_bytes;
    /* For people and tests, such as "matmul q4_0 avx2 fast". If "fast" is in it, the bounds for
     * "fast" apply (ops.h). */
    char kernel[64];
} keel_plan_info;

/* ---- the table ------------------------------------------------------------------------------- */

/* The functions of a backend. Members up to `wait` are required and must not be NULL. */
typedef struct keel_backend {
    keel_header h;

    /* Writes the number of devices to *n. 0 devices is not an error. If the backend knows why there
     * is no device, it passes the reason to keel_host.set_error. Thread: no other create call
     * of the plugin at the same time. */
    keel_status(KEEL_CALL *device_count)(const keel_host *, uint32_t *n);
    /* Describes the device `index`. KEEL_E_NOT_FOUND: there is no such device. Thread: no other
     * create call of the plugin at the same time. */
    keel_status(KEEL_CALL *device_info)(const keel_host *, uint32_t index, keel_device_info *out);
    /* Opens a device. The host pointer stays valid until ctx_destroy returns. On an error, *out is
     * not used. Thread: no other create call of the plugin at the same time. */
    keel_status(KEEL_CALL *ctx_create)(const keel_host *, const keel_ctx_desc *, keel_ctx **out);
    /* Waits for queued work and closes the device. Before this call, the core has destroyed the
     * context's buffers, weights and plans. Thread: one call at a time on a context. */
    void(KEEL_CALL *ctx_destroy)(keel_ctx *);
    /* Makes a buffer in *out. The buffer is not zeroed. It is aligned to 64 bytes, or to the
     * device's alignment if that is larger. KEEL_E_UNSUPPORTED: the backend does not have this kind
     * (every backend has KEEL_BUFFER_DEVICE). KEEL_E_OUT_OF_MEMORY: nothing changed. Thread:
     * one call at a time on a context. */
    keel_status(KEEL_CALL *buffer_create)(keel_ctx *, const keel_buffer_desc *, keel_buffer **out);
    /* Frees a buffer, after the queued work that uses it. NULL is allowed. Thread: one call at
     * a time on a context. */
    void(KEEL_CALL *buffer_destroy)(keel_ctx *, keel_buffer *);
    /* Queues a write of n bytes from `src` to `offset` of the buffer. `src` is copied before the
     * function returns. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *buffer_write)(keel_ctx *, keel_buffer *, uint64_t offset,
                                         const void *src, uint64_t n);
    /* Waits for all queued work, then copies n bytes from `offset` of the buffer to `dst`.
     * Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *buffer_read)(keel_ctx *, keel_buffer *, uint64_t offset, void *dst,
                                        uint64_t n);
    /* Submits all queued work and writes its ticket to *ticket, at least 1. Thread: one call at
     * a time on a context. */
    keel_status(KEEL_CALL *flush)(keel_ctx *, uint64_t *ticket);
    /* Waits until all work up to the ticket is done. KEEL_E_INVALID_ARG: no flush returned this
     * ticket. 0 is never a ticket. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *wait)(keel_ctx *, uint64_t ticket);

    /* ---- optional from here on ---- */
    /* KEEL_OK: the work up to the ticket is done. KEEL_E_NOT_READY: the work is not done yet. The
     * function does not wait. The core does not call it, but other hosts may call it. Thread:
     * one call at a time on a context. */
    keel_status(KEEL_CALL *poll)(keel_ctx *, uint64_t ticket);
    /* Writes the preferences of the context. If ctx_info is NULL, the core uses its defaults.
     * Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *ctx_info)(keel_ctx *, keel_ctx_info *out);
    /* Writes the memory of the device. If mem_info is NULL, the core does not know the memory.
     * Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *mem_info)(keel_ctx *, keel_mem_info *out);
    /* Writes to *out the host's pointer to a HOST_VISIBLE, RESERVE or IMPORT buffer. The pointer
     * does not change during the lifetime of the buffer. The host uses the memory only while no
     * queued work uses it. If buffer_map is NULL, the core copies with buffer_read and
     * buffer_write. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *buffer_map)(keel_ctx *, keel_buffer *, void **out);
    /* Gives memory to n bytes of a RESERVE buffer, or takes it away, in the stream's order. commit
     * 1: the range gets memory with undefined contents. commit 0: whole pages of the range return
     * to the system and lose their contents. If buffer_commit is NULL, the backend has no RESERVE
     * buffers, so the core copies a KV cache when it grows. Thread: one call at a time on a
     * context. */
    keel_status(KEEL_CALL *buffer_commit)(keel_ctx *, keel_buffer *, uint64_t offset, uint64_t n,
                                          uint32_t commit);

    /* Makes a weight in *out. The function copies the sources into the backend's layout, or reads
     * them in place. weight_prepare can take long, so it calls host->cancelled from time to time.
     * If weight_prepare is NULL or returns KEEL_E_UNSUPPORTED, the core joins the sources in a
     * buffer, and ops get the weight as a tensor. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *weight_prepare)(keel_ctx *, const keel_weight_desc *, keel_weight **out);
    /* Frees a weight. NULL is allowed. Required if weight_prepare is not NULL. Thread: one call
     * at a time on a context. */
    void(KEEL_CALL *weight_destroy)(keel_ctx *, keel_weight *);
    /* Describes a weight. Required if weight_prepare is not NULL. Thread: one call at a time on
     * a context. */
    keel_status(KEEL_CALL *weight_info)(keel_ctx *, const keel_weight *, keel_weight_info *out);

    /* Prepares calls of an op and makes a plan in *out. `args` is the args struct of the op; it is
     * a template of the largest call. Its buffers may be NULL. The calls that use the plan may
     * differ from the template:
     * - Dimensions that count tokens, rows, slots, blocks or ranges may be smaller. Then the
     *   strides of the dimensions outside them may differ too.
     * - Buffers, offsets, max_length, begin, end and n_sides may differ.
     * Everything else is equal. KEEL_E_UNSUPPORTED: the backend does not support the op or these
     * args. If op_plan is NULL, the core calls ops without a plan, and the backend decides in the
     * call. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *op_plan)(keel_ctx *, keel_op op, const keel_op_args *args,
                                    keel_plan **out);
    /* Frees a plan. NULL is allowed. Required if op_plan is not NULL. Thread: one call at a
     * time on a context. */
    void(KEEL_CALL *plan_destroy)(keel_ctx *, keel_plan *);
    /* Describes a plan. Required if op_plan is not NULL. Thread: one call at a time on a
     * context. */
    keel_status(KEEL_CALL *plan_info)(keel_ctx *, const keel_plan *, keel_plan_info *out);

    /* ---- ops ---------------------------------------------------------------------------------
     * Each call queues the op in the stream. The ops are described in ops.h, ops_attention.h,
     * ops_policy.h and ops_experts.h. Errors: see ops.h. If an op is NULL, the core uses its
     * fallback ladder. Op number n is the n-th function below. Thread of all ops: one call at a
     * time on a context. */
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
    keel_status(KEEL_CALL *choose_experts)(keel_ctx *, const keel_choose_experts_args *);
    keel_status(KEEL_CALL *expert_matmul)(keel_ctx *, const keel_expert_matmul_args *);
} keel_backend;

#ifdef __cplusplus
}
#endif
#endif

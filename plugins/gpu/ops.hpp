// How a GPU backend's ops and entry points are declared: in its own namespace, in the same way by both. table.hpp makes the table of them.
#pragma once

#include "common/backend_plugin.hpp"
#include "gpu/checks.hpp"

#include <keel/ext/draft/replay.h>
#include <keel/ext/draft/stream_counts.h>

#include <memory>

// plan_<slot> checks and says how the op would run; run_<slot> queues it. Both refuse by throwing. One file per group:
//   ops/linear.cpp         matmul, embed
//   ops/norm.cpp           rms_norm, add_rms_norm, layer_norm
//   ops/elementwise.cpp    silu_mul, gelu_mul, add, add_bias, scale, scaled_add, softmax
//   ops/move.cpp           cast, copy, transpose, zero
//   ops/rope.cpp           rope, qkv_prepare
//   ops/attention.cpp      attention
//   ops/policy_inputs.cpp  attention_scores, key_project, key_sum, value_norms, query_stats
//   ops/kv.cpp             kv_append, kv_gather, kv_rerotate
//   ops/rows.cpp           argmax_rows, top_k_rows
#define KEEL_GPU_DECLARE_OP(ID, slot, args_type)                                                             \
    void plan_##slot(keel_ctx &, const args_type &, keel_gpu::PlanChoice &);                                 \
    void run_##slot(keel_ctx &, const args_type &);

// What extensions.hpp needs of a backend; that header says what each does.
#define KEEL_GPU_DECLARE_EXTENSIONS                                                                          \
    void time_ops(keel_ctx &, bool on);                                                                      \
    bool times_ops(const keel_ctx &);                                                                        \
    uint32_t read_times(keel_ctx &, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,                  \
                        uint32_t capacity);                                                                  \
    uint64_t device_time(keel_ctx &);                                                                        \
    std::unique_ptr<keel_recording> start_recording(keel_ctx &);                                             \
    void end_recording(keel_ctx &, std::unique_ptr<keel_recording> &, bool wanted);                          \
    void submit_recording(keel_ctx &, keel_recording &);                                                     \
    void destroy_recording(keel_ctx &, keel_recording *) noexcept;                                           \
    extern const char *const recording_kind;                                                                 \
    bool reads_later(const keel_ctx &);                                                                      \
    uint64_t start_read(keel_ctx &, keel_buffer &, uint64_t offset, uint64_t n);                             \
    bool finish_read(keel_ctx &, uint64_t number, void *to);                                                 \
    void count_stream(const keel_ctx &, keel_stream_counts &);                                               \
    void run_batch_prepare(keel_ctx &, const keel_qkv_args &, const keel_gpu::Seats &);                      \
    void run_batch_append(keel_ctx &, const keel_kv_append_args &, const keel_gpu::Seats &);                 \
    void run_batch_attention(keel_ctx &, const keel_attention_args &, const keel_gpu::Seats &);              \
    void plan_batch_attention(keel_ctx &, const keel_attention_args &, const keel_gpu::Seats &,              \
                              keel_gpu::PlanChoice &);

#define KEEL_GPU_DECLARE_BACKEND                                                                             \
    KEEL_FOR_EACH_OP(KEEL_GPU_DECLARE_OP)                                                                    \
    KEEL_FOR_EACH_ENTRY_POINT(KEEL_DECLARE_ENTRY_POINT)                                                      \
    KEEL_GPU_DECLARE_EXTENSIONS

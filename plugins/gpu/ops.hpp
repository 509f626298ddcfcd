// Macros that declare the ops and entry points of a GPU backend. A backend expands them in its own
// namespace. table.hpp builds the table of entry points from them.
#pragma once

#include "common/backend_plugin.hpp"
#include "gpu/checks.hpp"

#include <keel/ext/draft/replay.h>
#include <keel/ext/draft/stream_counts.h>

#include <memory>

namespace keel_gpu {

// Some ops differ only in one number and share one function of the backend. These are the numbers.
// The kernels use the same numbers.
enum Norm : uint32_t { norm_rms = 0, norm_add_rms = 1, norm_layer = 2 };
enum Gate : uint32_t { gate_silu = 0, gate_gelu = 1, gate_gelu_tanh = 2 };
enum Combine : uint32_t {
    combine_add = 0,
    combine_add_bias = 1,
    combine_scale = 2,
    combine_scaled_add = 3
};
enum Move : uint32_t { move_copy, move_transpose, move_zero };

} // namespace keel_gpu

// plan_<op> chooses how the op runs, and run_<op> queues it. Both throw Refusal on errors. Before
// these calls, table.hpp has checked the args (checks.hpp). Each group of ops has one file:
//   ops/linear.cpp         matmul, embed
//   ops/norm.cpp           norm: rms_norm, add_rms_norm, layer_norm
//   ops/elementwise.cpp    gate: silu_mul, gelu_mul; combine: add, add_bias, scale, scaled_add;
//                          softmax
//   ops/move.cpp           move: copy, transpose, zero; cast
//   ops/rope.cpp           rope, qkv_prepare
//   ops/attention.cpp      attention
//   ops/policy_inputs.cpp  attention_scores, key_project, key_sum, value_norms, query_stats
//   ops/kv.cpp             kv_append, kv_gather, kv_rerotate
//   ops/rows.cpp           argmax_rows, top_k_rows

// Expands X(group, type of the number, args) for each group of ops that share a function.
#define KEEL_GPU_FOR_EACH_GROUP(X)                                                                 \
    X(norm, Norm, keel_norm_args)                                                                  \
    X(gate, Gate, keel_gate_args)                                                                  \
    X(combine, Combine, keel_elementwise_args)                                                     \
    X(move, Move, keel_move_args)

// Expands X(op, args) for each op that has its own function.
#define KEEL_GPU_FOR_EACH_SINGLE_OP(X)                                                             \
    X(matmul, keel_matmul_args)                                                                    \
    X(embed, keel_embed_args)                                                                      \
    X(softmax, keel_move_args)                                                                     \
    X(cast, keel_move_args)                                                                        \
    X(rope, keel_rope_args)                                                                        \
    X(qkv_prepare, keel_qkv_args)                                                                  \
    X(attention, keel_attention_args)                                                              \
    X(attention_scores, keel_attention_scores_args)                                                \
    X(key_project, keel_keys_args)                                                                 \
    X(key_sum, keel_keys_args)                                                                     \
    X(value_norms, keel_keys_args)                                                                 \
    X(query_stats, keel_query_stats_args)                                                          \
    X(kv_append, keel_kv_append_args)                                                              \
    X(kv_gather, keel_kv_gather_args)                                                              \
    X(kv_rerotate, keel_kv_rerotate_args)                                                          \
    X(argmax_rows, keel_rows_args)                                                                 \
    X(top_k_rows, keel_rows_args)

// `op` is the name of the op, which becomes part of the plan's description.
#define KEEL_GPU_DECLARE_GROUP(group, type, args)                                                  \
    void plan_##group(keel_ctx &, const args &, keel_gpu::type, const char *op,                    \
                      keel_gpu::PlanChoice &);                                                     \
    void run_##group(keel_ctx &, const args &, keel_gpu::type);
#define KEEL_GPU_DECLARE_OP(op, args)                                                              \
    void plan_##op(keel_ctx &, const args &, keel_gpu::PlanChoice &);                              \
    void run_##op(keel_ctx &, const args &);

// Declares the functions that extensions.hpp needs from a backend. extensions.hpp describes each
// function.
#define KEEL_GPU_DECLARE_EXTENSIONS                                                                \
    void time_ops(keel_ctx &, bool on);                                                            \
    bool times_ops(const keel_ctx &);                                                              \
    uint32_t read_times(keel_ctx &, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,        \
                        uint32_t capacity);                                                        \
    uint64_t device_time(keel_ctx &);                                                              \
    std::unique_ptr<keel_recording> start_recording(keel_ctx &);                                   \
    void end_recording(keel_ctx &, std::unique_ptr<keel_recording> &, bool wanted);                \
    void submit_recording(keel_ctx &, keel_recording &);                                           \
    void destroy_recording(keel_ctx &, keel_recording *) noexcept;                                 \
    extern const char *const recording_kind;                                                       \
    bool reads_later(const keel_ctx &);                                                            \
    uint64_t start_read(keel_ctx &, keel_buffer &, uint64_t offset, uint64_t n);                   \
    bool finish_read(keel_ctx &, uint64_t number, void *to);                                       \
    void count_stream(const keel_ctx &, keel_stream_counts &);                                     \
    void run_batch_prepare(keel_ctx &, const keel_qkv_args &, const keel_gpu::Seats &);            \
    void run_batch_append(keel_ctx &, const keel_kv_append_args &, const keel_gpu::Seats &);       \
    void run_batch_attention(keel_ctx &, const keel_attention_args &, const keel_gpu::Seats &);    \
    void plan_batch_attention(keel_ctx &, const keel_attention_args &, const keel_gpu::Seats &,    \
                              keel_gpu::PlanChoice &);

#define KEEL_GPU_DECLARE_BACKEND                                                                   \
    KEEL_GPU_FOR_EACH_GROUP(KEEL_GPU_DECLARE_GROUP)                                                \
    KEEL_GPU_FOR_EACH_SINGLE_OP(KEEL_GPU_DECLARE_OP)                                               \
    KEEL_FOR_EACH_ENTRY_POINT(KEEL_DECLARE_ENTRY_POINT)                                            \
    KEEL_GPU_DECLARE_EXTENSIONS

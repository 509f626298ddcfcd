/* Made by tools/abi/make_abi_frozen.py; what it is for stands there. Layout of 64-bit systems. */
/* clang-format off */
#include <keel/abi.h>
#include <keel/allocator.h>
#include <keel/backend.h>
#include <keel/host.h>
#include <keel/kv.h>
#include <keel/op_list.h>
#include <keel/ops.h>
#include <keel/ops_attention.h>
#include <keel/ops_experts.h>
#include <keel/ops_policy.h>
#include <keel/plugin.h>
#include <keel/policy.h>
#include <keel/tensor.h>

#define MEMBER(type, member, at, bytes)                                                      \
    _Static_assert(offsetof(type, member) == (at), #type "." #member " moved");             \
    _Static_assert(sizeof(((type *)0)->member) == (bytes), #type "." #member " was resized")
#define VALUE(name, value) _Static_assert((unsigned long long)(name) == (value), #name " was renumbered")

#if UINTPTR_MAX == 0xffffffffffffffffu

/* keel_header */
MEMBER(keel_header, struct_size, 0, 4);
MEMBER(keel_header, abi_version, 4, 4);

/* keel_allocator_needs */
MEMBER(keel_allocator_needs, h, 0, 8);
MEMBER(keel_allocator_needs, needs, 8, 8);
MEMBER(keel_allocator_needs, flags, 16, 4);
MEMBER(keel_allocator_needs, reserved, 20, 4);

/* keel_allocator_input */
MEMBER(keel_allocator_input, h, 0, 8);
MEMBER(keel_allocator_input, layers, 8, 4);
MEMBER(keel_allocator_input, kv_heads, 12, 4);
MEMBER(keel_allocator_input, budget, 16, 8);
MEMBER(keel_allocator_input, protected_slots, 24, 8);
MEMBER(keel_allocator_input, stride, 32, 8);
MEMBER(keel_allocator_input, lengths, 40, 8);
MEMBER(keel_allocator_input, scores, 48, 8);
MEMBER(keel_allocator_input, protected_masks, 56, 8);
MEMBER(keel_allocator_input, fixed_slots, 64, 8);

/* keel_allocator */
MEMBER(keel_allocator, h, 0, 8);
MEMBER(keel_allocator, create, 8, 8);
MEMBER(keel_allocator, destroy, 16, 8);
MEMBER(keel_allocator, allocate, 24, 8);

/* keel_device_info */
MEMBER(keel_device_info, h, 0, 8);
MEMBER(keel_device_info, name, 8, 128);
MEMBER(keel_device_info, vendor, 136, 64);
MEMBER(keel_device_info, driver, 200, 128);
MEMBER(keel_device_info, type, 328, 4);
MEMBER(keel_device_info, flags, 332, 4);
MEMBER(keel_device_info, total_bytes, 336, 8);

/* keel_ctx_desc */
MEMBER(keel_ctx_desc, h, 0, 8);
MEMBER(keel_ctx_desc, device, 8, 4);
MEMBER(keel_ctx_desc, n_params, 12, 4);
MEMBER(keel_ctx_desc, params, 16, 8);

/* keel_ctx_info */
MEMBER(keel_ctx_info, h, 0, 8);
MEMBER(keel_ctx_info, description, 8, 256);
MEMBER(keel_ctx_info, activation_dtype, 264, 4);
MEMBER(keel_ctx_info, sync, 268, 4);
MEMBER(keel_ctx_info, sync_ops, 272, 4);
MEMBER(keel_ctx_info, kv_block_slots, 276, 4);
MEMBER(keel_ctx_info, prefill_chunk, 280, 4);
MEMBER(keel_ctx_info, buffer_align, 284, 4);
MEMBER(keel_ctx_info, max_buffer_bytes, 288, 8);
MEMBER(keel_ctx_info, weight_dtypes, 296, 8);

/* keel_buffer_desc */
MEMBER(keel_buffer_desc, h, 0, 8);
MEMBER(keel_buffer_desc, size, 8, 8);
MEMBER(keel_buffer_desc, kind, 16, 4);
MEMBER(keel_buffer_desc, reserved, 20, 4);
MEMBER(keel_buffer_desc, host, 24, 8);

/* keel_mem_info */
MEMBER(keel_mem_info, h, 0, 8);
MEMBER(keel_mem_info, total, 8, 8);
MEMBER(keel_mem_info, free, 16, 8);
MEMBER(keel_mem_info, ours, 24, 8);

/* keel_weight_source */
MEMBER(keel_weight_source, h, 0, 8);
MEMBER(keel_weight_source, mapping, 8, 8);
MEMBER(keel_weight_source, mapping_bytes, 16, 8);
MEMBER(keel_weight_source, offset, 24, 8);
MEMBER(keel_weight_source, dtype, 32, 4);
MEMBER(keel_weight_source, reserved, 36, 4);
MEMBER(keel_weight_source, rows, 40, 8);
MEMBER(keel_weight_source, cols, 48, 8);

/* keel_weight_desc */
MEMBER(keel_weight_desc, h, 0, 8);
MEMBER(keel_weight_desc, sources, 8, 8);
MEMBER(keel_weight_desc, n_sources, 16, 4);
MEMBER(keel_weight_desc, join, 20, 4);
MEMBER(keel_weight_desc, use, 24, 4);
MEMBER(keel_weight_desc, max_m, 28, 4);
MEMBER(keel_weight_desc, experts, 32, 4);
MEMBER(keel_weight_desc, reserved, 36, 4);

/* keel_weight_info */
MEMBER(keel_weight_info, h, 0, 8);
MEMBER(keel_weight_info, rows, 8, 8);
MEMBER(keel_weight_info, cols, 16, 8);
MEMBER(keel_weight_info, bytes, 24, 8);
MEMBER(keel_weight_info, source_needed, 32, 4);
MEMBER(keel_weight_info, dtype, 36, 4);
MEMBER(keel_weight_info, layout, 40, 64);

/* keel_plan_info */
MEMBER(keel_plan_info, h, 0, 8);
MEMBER(keel_plan_info, scratch_bytes, 8, 8);
MEMBER(keel_plan_info, kernel, 16, 64);

/* keel_backend */
MEMBER(keel_backend, h, 0, 8);
MEMBER(keel_backend, device_count, 8, 8);
MEMBER(keel_backend, device_info, 16, 8);
MEMBER(keel_backend, ctx_create, 24, 8);
MEMBER(keel_backend, ctx_destroy, 32, 8);
MEMBER(keel_backend, buffer_create, 40, 8);
MEMBER(keel_backend, buffer_destroy, 48, 8);
MEMBER(keel_backend, buffer_write, 56, 8);
MEMBER(keel_backend, buffer_read, 64, 8);
MEMBER(keel_backend, flush, 72, 8);
MEMBER(keel_backend, wait, 80, 8);
MEMBER(keel_backend, poll, 88, 8);
MEMBER(keel_backend, ctx_info, 96, 8);
MEMBER(keel_backend, mem_info, 104, 8);
MEMBER(keel_backend, buffer_map, 112, 8);
MEMBER(keel_backend, buffer_commit, 120, 8);
MEMBER(keel_backend, weight_prepare, 128, 8);
MEMBER(keel_backend, weight_destroy, 136, 8);
MEMBER(keel_backend, weight_info, 144, 8);
MEMBER(keel_backend, op_plan, 152, 8);
MEMBER(keel_backend, plan_destroy, 160, 8);
MEMBER(keel_backend, plan_info, 168, 8);
MEMBER(keel_backend, matmul, 176, 8);
MEMBER(keel_backend, rms_norm, 184, 8);
MEMBER(keel_backend, add_rms_norm, 192, 8);
MEMBER(keel_backend, layer_norm, 200, 8);
MEMBER(keel_backend, silu_mul, 208, 8);
MEMBER(keel_backend, gelu_mul, 216, 8);
MEMBER(keel_backend, add, 224, 8);
MEMBER(keel_backend, add_bias, 232, 8);
MEMBER(keel_backend, scale, 240, 8);
MEMBER(keel_backend, scaled_add, 248, 8);
MEMBER(keel_backend, softmax, 256, 8);
MEMBER(keel_backend, cast, 264, 8);
MEMBER(keel_backend, copy, 272, 8);
MEMBER(keel_backend, transpose, 280, 8);
MEMBER(keel_backend, zero, 288, 8);
MEMBER(keel_backend, rope, 296, 8);
MEMBER(keel_backend, qkv_prepare, 304, 8);
MEMBER(keel_backend, attention, 312, 8);
MEMBER(keel_backend, attention_scores, 320, 8);
MEMBER(keel_backend, key_project, 328, 8);
MEMBER(keel_backend, key_sum, 336, 8);
MEMBER(keel_backend, value_norms, 344, 8);
MEMBER(keel_backend, query_stats, 352, 8);
MEMBER(keel_backend, kv_append, 360, 8);
MEMBER(keel_backend, kv_gather, 368, 8);
MEMBER(keel_backend, kv_rerotate, 376, 8);
MEMBER(keel_backend, embed, 384, 8);
MEMBER(keel_backend, argmax_rows, 392, 8);
MEMBER(keel_backend, top_k_rows, 400, 8);
MEMBER(keel_backend, choose_experts, 408, 8);
MEMBER(keel_backend, expert_matmul, 416, 8);

/* keel_region */
MEMBER(keel_region, h, 0, 8);
MEMBER(keel_region, worker, 8, 4);
MEMBER(keel_region, n, 12, 4);
MEMBER(keel_region, barrier, 16, 8);
MEMBER(keel_region, core, 24, 8);

/* keel_host */
MEMBER(keel_host, h, 0, 8);
MEMBER(keel_host, host_data, 8, 8);
MEMBER(keel_host, log, 16, 8);
MEMBER(keel_host, set_error, 24, 8);
MEMBER(keel_host, alloc, 32, 8);
MEMBER(keel_host, free, 40, 8);
MEMBER(keel_host, worker_count, 48, 8);
MEMBER(keel_host, parallel_region, 56, 8);
MEMBER(keel_host, cancelled, 64, 8);
MEMBER(keel_host, get_extension, 72, 8);

/* keel_kv_view */
MEMBER(keel_kv_view, h, 0, 8);
MEMBER(keel_kv_view, k, 8, 8);
MEMBER(keel_kv_view, v, 16, 8);
MEMBER(keel_kv_view, block_table, 24, 8);
MEMBER(keel_kv_view, lengths, 32, 8);
MEMBER(keel_kv_view, positions, 40, 8);
MEMBER(keel_kv_view, block_slots, 48, 4);
MEMBER(keel_kv_view, kv_heads, 52, 4);
MEMBER(keel_kv_view, max_length, 56, 8);

/* keel_rope_tables */
MEMBER(keel_rope_tables, h, 0, 8);
MEMBER(keel_rope_tables, cos, 8, 8);
MEMBER(keel_rope_tables, sin, 16, 8);
MEMBER(keel_rope_tables, mode, 24, 4);
MEMBER(keel_rope_tables, rot, 28, 4);

/* keel_op_args */
MEMBER(keel_op_args, h, 0, 8);
MEMBER(keel_op_args, features, 8, 8);
MEMBER(keel_op_args, plan, 16, 8);

/* keel_matmul_args */
MEMBER(keel_matmul_args, h, 0, 8);
MEMBER(keel_matmul_args, features, 8, 8);
MEMBER(keel_matmul_args, plan, 16, 8);
MEMBER(keel_matmul_args, x, 24, 8);
MEMBER(keel_matmul_args, weight, 32, 8);
MEMBER(keel_matmul_args, w, 40, 8);
MEMBER(keel_matmul_args, bias, 48, 8);
MEMBER(keel_matmul_args, out, 56, 8);

/* keel_embed_args */
MEMBER(keel_embed_args, h, 0, 8);
MEMBER(keel_embed_args, features, 8, 8);
MEMBER(keel_embed_args, plan, 16, 8);
MEMBER(keel_embed_args, ids, 24, 8);
MEMBER(keel_embed_args, weight, 32, 8);
MEMBER(keel_embed_args, w, 40, 8);
MEMBER(keel_embed_args, out, 48, 8);
MEMBER(keel_embed_args, scale, 56, 4);
MEMBER(keel_embed_args, reserved, 60, 4);

/* keel_norm_args */
MEMBER(keel_norm_args, h, 0, 8);
MEMBER(keel_norm_args, features, 8, 8);
MEMBER(keel_norm_args, plan, 16, 8);
MEMBER(keel_norm_args, x, 24, 8);
MEMBER(keel_norm_args, residual, 32, 8);
MEMBER(keel_norm_args, weight, 40, 8);
MEMBER(keel_norm_args, bias, 48, 8);
MEMBER(keel_norm_args, out, 56, 8);
MEMBER(keel_norm_args, eps, 64, 4);
MEMBER(keel_norm_args, reserved, 68, 4);

/* keel_gate_args */
MEMBER(keel_gate_args, h, 0, 8);
MEMBER(keel_gate_args, features, 8, 8);
MEMBER(keel_gate_args, plan, 16, 8);
MEMBER(keel_gate_args, gate, 24, 8);
MEMBER(keel_gate_args, up, 32, 8);
MEMBER(keel_gate_args, out, 40, 8);

/* keel_elementwise_args */
MEMBER(keel_elementwise_args, h, 0, 8);
MEMBER(keel_elementwise_args, features, 8, 8);
MEMBER(keel_elementwise_args, plan, 16, 8);
MEMBER(keel_elementwise_args, a, 24, 8);
MEMBER(keel_elementwise_args, b, 32, 8);
MEMBER(keel_elementwise_args, out, 40, 8);
MEMBER(keel_elementwise_args, factor, 48, 4);
MEMBER(keel_elementwise_args, reserved, 52, 4);

/* keel_move_args */
MEMBER(keel_move_args, h, 0, 8);
MEMBER(keel_move_args, features, 8, 8);
MEMBER(keel_move_args, plan, 16, 8);
MEMBER(keel_move_args, x, 24, 8);
MEMBER(keel_move_args, out, 32, 8);

/* keel_rows_args */
MEMBER(keel_rows_args, h, 0, 8);
MEMBER(keel_rows_args, features, 8, 8);
MEMBER(keel_rows_args, plan, 16, 8);
MEMBER(keel_rows_args, x, 24, 8);
MEMBER(keel_rows_args, values, 32, 8);
MEMBER(keel_rows_args, index, 40, 8);

/* keel_rope_args */
MEMBER(keel_rope_args, h, 0, 8);
MEMBER(keel_rope_args, features, 8, 8);
MEMBER(keel_rope_args, plan, 16, 8);
MEMBER(keel_rope_args, x, 24, 8);
MEMBER(keel_rope_args, positions, 32, 8);
MEMBER(keel_rope_args, tables, 40, 8);
MEMBER(keel_rope_args, out, 48, 8);

/* keel_qkv_args */
MEMBER(keel_qkv_args, h, 0, 8);
MEMBER(keel_qkv_args, features, 8, 8);
MEMBER(keel_qkv_args, plan, 16, 8);
MEMBER(keel_qkv_args, q, 24, 8);
MEMBER(keel_qkv_args, k, 32, 8);
MEMBER(keel_qkv_args, v, 40, 8);
MEMBER(keel_qkv_args, positions, 48, 8);
MEMBER(keel_qkv_args, tables, 56, 8);
MEMBER(keel_qkv_args, q_norm, 64, 8);
MEMBER(keel_qkv_args, k_norm, 72, 8);
MEMBER(keel_qkv_args, kv, 80, 8);
MEMBER(keel_qkv_args, q_out, 88, 8);
MEMBER(keel_qkv_args, q_unrotated, 96, 8);
MEMBER(keel_qkv_args, k_unrotated, 104, 8);
MEMBER(keel_qkv_args, eps, 112, 4);
MEMBER(keel_qkv_args, reserved, 116, 4);

/* keel_scores */
MEMBER(keel_scores, h, 0, 8);
MEMBER(keel_scores, out, 8, 8);
MEMBER(keel_scores, window, 16, 4);
MEMBER(keel_scores, reduce_queries, 20, 4);
MEMBER(keel_scores, reduce_group, 24, 4);
MEMBER(keel_scores, accumulate, 28, 4);

/* keel_attention_args */
MEMBER(keel_attention_args, h, 0, 8);
MEMBER(keel_attention_args, features, 8, 8);
MEMBER(keel_attention_args, plan, 16, 8);
MEMBER(keel_attention_args, q, 24, 8);
MEMBER(keel_attention_args, kv, 32, 8);
MEMBER(keel_attention_args, out, 40, 8);
MEMBER(keel_attention_args, q_positions, 48, 8);
MEMBER(keel_attention_args, lse, 56, 8);
MEMBER(keel_attention_args, scores, 64, 8);
MEMBER(keel_attention_args, scale, 72, 4);
MEMBER(keel_attention_args, softcap, 76, 4);
MEMBER(keel_attention_args, window, 80, 8);

/* keel_kv_append_args */
MEMBER(keel_kv_append_args, h, 0, 8);
MEMBER(keel_kv_append_args, features, 8, 8);
MEMBER(keel_kv_append_args, plan, 16, 8);
MEMBER(keel_kv_append_args, k, 24, 8);
MEMBER(keel_kv_append_args, v, 32, 8);
MEMBER(keel_kv_append_args, positions, 40, 8);
MEMBER(keel_kv_append_args, kv, 48, 8);

/* keel_kv_gather_args */
MEMBER(keel_kv_gather_args, h, 0, 8);
MEMBER(keel_kv_gather_args, features, 8, 8);
MEMBER(keel_kv_gather_args, plan, 16, 8);
MEMBER(keel_kv_gather_args, from, 24, 8);
MEMBER(keel_kv_gather_args, to, 32, 8);
MEMBER(keel_kv_gather_args, index, 40, 8);
MEMBER(keel_kv_gather_args, count, 48, 8);
MEMBER(keel_kv_gather_args, sides, 56, 8);
MEMBER(keel_kv_gather_args, n_sides, 64, 4);
MEMBER(keel_kv_gather_args, reserved, 68, 4);

/* keel_kv_rerotate_args */
MEMBER(keel_kv_rerotate_args, h, 0, 8);
MEMBER(keel_kv_rerotate_args, features, 8, 8);
MEMBER(keel_kv_rerotate_args, plan, 16, 8);
MEMBER(keel_kv_rerotate_args, kv, 24, 8);
MEMBER(keel_kv_rerotate_args, tables, 32, 8);
MEMBER(keel_kv_rerotate_args, row, 40, 8);
MEMBER(keel_kv_rerotate_args, new_positions, 48, 8);
MEMBER(keel_kv_rerotate_args, source, 56, 8);
MEMBER(keel_kv_rerotate_args, begin, 64, 8);
MEMBER(keel_kv_rerotate_args, end, 72, 8);

/* keel_choose_experts_args */
MEMBER(keel_choose_experts_args, h, 0, 8);
MEMBER(keel_choose_experts_args, features, 8, 8);
MEMBER(keel_choose_experts_args, plan, 16, 8);
MEMBER(keel_choose_experts_args, logits, 24, 8);
MEMBER(keel_choose_experts_args, bias, 32, 8);
MEMBER(keel_choose_experts_args, index, 40, 8);
MEMBER(keel_choose_experts_args, weights, 48, 8);
MEMBER(keel_choose_experts_args, scale, 56, 4);
MEMBER(keel_choose_experts_args, groups, 60, 4);
MEMBER(keel_choose_experts_args, groups_kept, 64, 4);
MEMBER(keel_choose_experts_args, group_top, 68, 4);

/* keel_expert_matmul_args */
MEMBER(keel_expert_matmul_args, h, 0, 8);
MEMBER(keel_expert_matmul_args, features, 8, 8);
MEMBER(keel_expert_matmul_args, plan, 16, 8);
MEMBER(keel_expert_matmul_args, x, 24, 8);
MEMBER(keel_expert_matmul_args, weight, 32, 8);
MEMBER(keel_expert_matmul_args, w, 40, 8);
MEMBER(keel_expert_matmul_args, index, 48, 8);
MEMBER(keel_expert_matmul_args, weights, 56, 8);
MEMBER(keel_expert_matmul_args, out, 64, 8);
MEMBER(keel_expert_matmul_args, experts, 72, 8);

/* keel_attention_scores_args */
MEMBER(keel_attention_scores_args, h, 0, 8);
MEMBER(keel_attention_scores_args, features, 8, 8);
MEMBER(keel_attention_scores_args, plan, 16, 8);
MEMBER(keel_attention_scores_args, q, 24, 8);
MEMBER(keel_attention_scores_args, kv, 32, 8);
MEMBER(keel_attention_scores_args, ranges, 40, 8);
MEMBER(keel_attention_scores_args, weights, 48, 8);
MEMBER(keel_attention_scores_args, scores, 56, 8);
MEMBER(keel_attention_scores_args, scale, 64, 4);
MEMBER(keel_attention_scores_args, reserved, 68, 4);
MEMBER(keel_attention_scores_args, q_positions, 72, 8);
MEMBER(keel_attention_scores_args, window, 80, 8);
MEMBER(keel_attention_scores_args, softcap, 88, 4);
MEMBER(keel_attention_scores_args, reserved_2, 92, 4);

/* keel_keys_args */
MEMBER(keel_keys_args, h, 0, 8);
MEMBER(keel_keys_args, features, 8, 8);
MEMBER(keel_keys_args, plan, 16, 8);
MEMBER(keel_keys_args, kv, 24, 8);
MEMBER(keel_keys_args, tables, 32, 8);
MEMBER(keel_keys_args, projection, 40, 8);
MEMBER(keel_keys_args, out, 48, 8);
MEMBER(keel_keys_args, begin, 56, 8);
MEMBER(keel_keys_args, end, 64, 8);

/* keel_query_stats_args */
MEMBER(keel_query_stats_args, h, 0, 8);
MEMBER(keel_query_stats_args, features, 8, 8);
MEMBER(keel_query_stats_args, plan, 16, 8);
MEMBER(keel_query_stats_args, q, 24, 8);
MEMBER(keel_query_stats_args, sum, 32, 8);
MEMBER(keel_query_stats_args, second, 40, 8);

/* keel_param_spec */
MEMBER(keel_param_spec, h, 0, 8);
MEMBER(keel_param_spec, key, 8, 8);
MEMBER(keel_param_spec, doc, 16, 8);
MEMBER(keel_param_spec, type, 24, 4);
MEMBER(keel_param_spec, flags, 28, 4);
MEMBER(keel_param_spec, min, 32, 8);
MEMBER(keel_param_spec, max, 40, 8);
MEMBER(keel_param_spec, default_utf8, 48, 8);
MEMBER(keel_param_spec, choices, 56, 8);

/* keel_param */
MEMBER(keel_param, h, 0, 8);
MEMBER(keel_param, key, 8, 8);
MEMBER(keel_param, type, 16, 4);
MEMBER(keel_param, is_default, 20, 4);
MEMBER(keel_param, i, 24, 8);
MEMBER(keel_param, f, 32, 8);
MEMBER(keel_param, s, 40, 8);

/* keel_plugin */
MEMBER(keel_plugin, h, 0, 8);
MEMBER(keel_plugin, min_host_abi, 8, 4);
MEMBER(keel_plugin, kind, 12, 4);
MEMBER(keel_plugin, id, 16, 8);
MEMBER(keel_plugin, version, 24, 8);
MEMBER(keel_plugin, vendor, 32, 8);
MEMBER(keel_plugin, license, 40, 8);
MEMBER(keel_plugin, doc, 48, 8);
MEMBER(keel_plugin, build_info, 56, 8);
MEMBER(keel_plugin, caps, 64, 8);
MEMBER(keel_plugin, sanitizer, 72, 4);
MEMBER(keel_plugin, n_params, 76, 4);
MEMBER(keel_plugin, params, 80, 8);
MEMBER(keel_plugin, vtable, 88, 8);
MEMBER(keel_plugin, get_extension, 96, 8);

/* keel_geometry */
MEMBER(keel_geometry, h, 0, 8);
MEMBER(keel_geometry, layers, 8, 4);
MEMBER(keel_geometry, heads, 12, 4);
MEMBER(keel_geometry, kv_heads, 16, 4);
MEMBER(keel_geometry, head_dim, 20, 4);
MEMBER(keel_geometry, context, 24, 4);
MEMBER(keel_geometry, rot, 28, 4);
MEMBER(keel_geometry, rope_frequencies, 32, 8);
MEMBER(keel_geometry, rope_mode, 40, 4);
MEMBER(keel_geometry, attention_scale, 44, 4);
MEMBER(keel_geometry, rope_factor, 48, 8);

/* keel_policy_needs */
MEMBER(keel_policy_needs, h, 0, 8);
MEMBER(keel_policy_needs, needs, 8, 8);
MEMBER(keel_policy_needs, granularity, 16, 4);
MEMBER(keel_policy_needs, output, 20, 4);
MEMBER(keel_policy_needs, flags, 24, 4);
MEMBER(keel_policy_needs, window, 28, 4);
MEMBER(keel_policy_needs, reduce_queries, 32, 4);
MEMBER(keel_policy_needs, reduce_group, 36, 4);
MEMBER(keel_policy_needs, own_budget, 40, 4);
MEMBER(keel_policy_needs, projection_cols, 44, 4);
MEMBER(keel_policy_needs, projection, 48, 8);
MEMBER(keel_policy_needs, least_budget, 56, 4);
MEMBER(keel_policy_needs, skip_queries, 60, 4);
MEMBER(keel_policy_needs, chunk, 64, 4);
MEMBER(keel_policy_needs, replay_chunk, 68, 4);
MEMBER(keel_policy_needs, replay_lead, 72, 4);
MEMBER(keel_policy_needs, replay_sinks, 76, 4);

/* keel_policy_input */
MEMBER(keel_policy_input, h, 0, 8);
MEMBER(keel_policy_input, trigger, 8, 4);
MEMBER(keel_policy_input, layer, 12, 4);
MEMBER(keel_policy_input, kv_heads, 16, 4);
MEMBER(keel_policy_input, heads, 20, 4);
MEMBER(keel_policy_input, next_position, 24, 8);
MEMBER(keel_policy_input, stride, 32, 8);
MEMBER(keel_policy_input, lengths, 40, 8);
MEMBER(keel_policy_input, budgets, 48, 8);
MEMBER(keel_policy_input, protected_mask, 56, 8);
MEMBER(keel_policy_input, positions, 64, 8);
MEMBER(keel_policy_input, key_norms, 72, 8);
MEMBER(keel_policy_input, value_norms, 80, 8);
MEMBER(keel_policy_input, scores, 88, 8);
MEMBER(keel_policy_input, key_sum, 96, 8);
MEMBER(keel_policy_input, key_project, 104, 8);
MEMBER(keel_policy_input, query_sum, 112, 8);
MEMBER(keel_policy_input, query_second, 120, 8);
MEMBER(keel_policy_input, keys, 128, 8);
MEMBER(keel_policy_input, query_count, 136, 8);
MEMBER(keel_policy_input, key_anchor, 144, 8);
MEMBER(keel_policy_input, chunk_scores, 152, 8);

/* keel_policy_decision */
MEMBER(keel_policy_decision, h, 0, 8);
MEMBER(keel_policy_decision, scores, 8, 8);
MEMBER(keel_policy_decision, keep, 16, 8);
MEMBER(keel_policy_decision, keep_count, 24, 8);
MEMBER(keel_policy_decision, stay, 32, 8);

/* keel_policy */
MEMBER(keel_policy, h, 0, 8);
MEMBER(keel_policy, create, 8, 8);
MEMBER(keel_policy, destroy, 16, 8);
MEMBER(keel_policy, decide, 24, 8);
MEMBER(keel_policy, reset, 32, 8);
MEMBER(keel_policy, fork, 40, 8);
MEMBER(keel_policy, truncate, 48, 8);
MEMBER(keel_policy, save, 56, 8);
MEMBER(keel_policy, load, 64, 8);

/* keel_tensor */
MEMBER(keel_tensor, h, 0, 8);
MEMBER(keel_tensor, buffer, 8, 8);
MEMBER(keel_tensor, offset, 16, 8);
MEMBER(keel_tensor, dtype, 24, 4);
MEMBER(keel_tensor, rank, 28, 4);
MEMBER(keel_tensor, shape, 32, 32);
MEMBER(keel_tensor, stride, 64, 32);

#endif

VALUE(KEEL_OK, 0ull);
VALUE(KEEL_E_UNSUPPORTED, 1ull);
VALUE(KEEL_E_INVALID_ARG, 2ull);
VALUE(KEEL_E_OUT_OF_MEMORY, 3ull);
VALUE(KEEL_E_DEVICE_LOST, 4ull);
VALUE(KEEL_E_CANCELLED, 5ull);
VALUE(KEEL_E_INTERNAL, 6ull);
VALUE(KEEL_E_VERSION, 7ull);
VALUE(KEEL_E_NOT_FOUND, 8ull);
VALUE(KEEL_E_NOT_READY, 9ull);
VALUE(KEEL_ABI_MAJOR, 0ull);
VALUE(KEEL_ALLOCATOR_RAGGED, 1ull);
VALUE(KEEL_ALLOCATOR_COMPARES, 2ull);
VALUE(KEEL_ALLOCATOR_BY_LAYER, 4ull);
VALUE(KEEL_ALLOCATOR_NEED_SCORES, 1ull);
VALUE(KEEL_DEVICE_CPU, 1ull);
VALUE(KEEL_DEVICE_INTEGRATED, 2ull);
VALUE(KEEL_DEVICE_DISCRETE, 3ull);
VALUE(KEEL_DEVICE_OTHER, 4ull);
VALUE(KEEL_DEVICE_UNIFIED, 1ull);
VALUE(KEEL_DEVICE_IMPORTS_HOST, 2ull);
VALUE(KEEL_SYNC_LAZY, 0ull);
VALUE(KEEL_SYNC_EAGER, 1ull);
VALUE(KEEL_SYNC_BATCHED, 2ull);
VALUE(KEEL_BUFFER_DEVICE, 0ull);
VALUE(KEEL_BUFFER_HOST_VISIBLE, 1ull);
VALUE(KEEL_BUFFER_IMPORT, 2ull);
VALUE(KEEL_BUFFER_RESERVE, 3ull);
VALUE(KEEL_JOIN_ROWS, 0ull);
VALUE(KEEL_JOIN_INTERLEAVE, 1ull);
VALUE(KEEL_USE_MATMUL, 1ull);
VALUE(KEEL_USE_EMBED, 2ull);
VALUE(KEEL_USE_EXPERTS, 4ull);
VALUE(KEEL_LOG_TRACE, 0ull);
VALUE(KEEL_LOG_DEBUG, 1ull);
VALUE(KEEL_LOG_INFO, 2ull);
VALUE(KEEL_LOG_WARN, 3ull);
VALUE(KEEL_LOG_ERROR, 4ull);
VALUE(KEEL_ROPE_HALF_SPLIT, 1ull);
VALUE(KEEL_ROPE_INTERLEAVED, 2ull);
VALUE(KEEL_OP_MATMUL, 1ull);
VALUE(KEEL_OP_RMS_NORM, 2ull);
VALUE(KEEL_OP_ADD_RMS_NORM, 3ull);
VALUE(KEEL_OP_LAYER_NORM, 4ull);
VALUE(KEEL_OP_SILU_MUL, 5ull);
VALUE(KEEL_OP_GELU_MUL, 6ull);
VALUE(KEEL_OP_ADD, 7ull);
VALUE(KEEL_OP_ADD_BIAS, 8ull);
VALUE(KEEL_OP_SCALE, 9ull);
VALUE(KEEL_OP_SCALED_ADD, 10ull);
VALUE(KEEL_OP_SOFTMAX, 11ull);
VALUE(KEEL_OP_CAST, 12ull);
VALUE(KEEL_OP_COPY, 13ull);
VALUE(KEEL_OP_TRANSPOSE, 14ull);
VALUE(KEEL_OP_ZERO, 15ull);
VALUE(KEEL_OP_ROPE, 16ull);
VALUE(KEEL_OP_QKV_PREPARE, 17ull);
VALUE(KEEL_OP_ATTENTION, 18ull);
VALUE(KEEL_OP_ATTENTION_SCORES, 19ull);
VALUE(KEEL_OP_KEY_PROJECT, 20ull);
VALUE(KEEL_OP_KEY_SUM, 21ull);
VALUE(KEEL_OP_VALUE_NORMS, 22ull);
VALUE(KEEL_OP_QUERY_STATS, 23ull);
VALUE(KEEL_OP_KV_APPEND, 24ull);
VALUE(KEEL_OP_KV_GATHER, 25ull);
VALUE(KEEL_OP_KV_REROTATE, 26ull);
VALUE(KEEL_OP_EMBED, 27ull);
VALUE(KEEL_OP_ARGMAX_ROWS, 28ull);
VALUE(KEEL_OP_TOP_K_ROWS, 29ull);
VALUE(KEEL_OP_CHOOSE_EXPERTS, 30ull);
VALUE(KEEL_OP_EXPERT_MATMUL, 31ull);
VALUE(KEEL_MATMUL_BIAS, 1ull);
VALUE(KEEL_MATMUL_ACCUMULATE, 2ull);
VALUE(KEEL_GATE_INTERLEAVED, 1ull);
VALUE(KEEL_GELU_TANH, 2ull);
VALUE(KEEL_REDUCE_NONE, 0ull);
VALUE(KEEL_REDUCE_SUM, 1ull);
VALUE(KEEL_REDUCE_MEAN, 2ull);
VALUE(KEEL_REDUCE_MAX, 3ull);
VALUE(KEEL_ROPE_INVERSE, 1ull);
VALUE(KEEL_QKV_NORM, 1ull);
VALUE(KEEL_QKV_UNROTATED, 2ull);
VALUE(KEEL_ATTENTION_CAUSAL, 1ull);
VALUE(KEEL_ATTENTION_WINDOW, 2ull);
VALUE(KEEL_ATTENTION_SOFTCAP, 4ull);
VALUE(KEEL_ATTENTION_LSE, 8ull);
VALUE(KEEL_ATTENTION_SCORES, 16ull);
VALUE(KEEL_REROTATE_SOURCE, 1ull);
VALUE(KEEL_CHOOSE_SIGMOID, 1ull);
VALUE(KEEL_CHOOSE_NORMALIZE, 2ull);
VALUE(KEEL_CHOOSE_BIAS, 4ull);
VALUE(KEEL_CHOOSE_GROUPS, 8ull);
VALUE(KEEL_EXPERTS_SUM, 1ull);
VALUE(KEEL_EXPERTS_ACCUMULATE, 2ull);
VALUE(KEEL_SCORES_CAUSAL, 1ull);
VALUE(KEEL_SCORES_RANGES, 2ull);
VALUE(KEEL_SCORES_WEIGHTS, 4ull);
VALUE(KEEL_SCORES_LOGITS, 8ull);
VALUE(KEEL_SCORES_SOFTCAP, 16ull);
VALUE(KEEL_SCORES_WINDOW, 32ull);
VALUE(KEEL_KEYS_UNROTATED, 1ull);
VALUE(KEEL_KEYS_NORMS, 2ull);
VALUE(KEEL_KEYS_NORMALIZED, 4ull);
VALUE(KEEL_KEYS_L1, 8ull);
VALUE(KEEL_PLUGIN_BACKEND, 1ull);
VALUE(KEEL_PLUGIN_POLICY, 2ull);
VALUE(KEEL_PLUGIN_ALLOCATOR, 3ull);
VALUE(KEEL_PARAM_INT, 1ull);
VALUE(KEEL_PARAM_FLOAT, 2ull);
VALUE(KEEL_PARAM_BOOL, 3ull);
VALUE(KEEL_PARAM_STRING, 4ull);
VALUE(KEEL_PARAM_CHOICE, 5ull);
VALUE(KEEL_PARAM_PATH, 6ull);
VALUE(KEEL_PARAM_REQUIRED, 1ull);
VALUE(KEEL_CAP_OWN_THREADS, 1ull);
VALUE(KEEL_SANITIZER_NONE, 0ull);
VALUE(KEEL_SANITIZER_ADDRESS, 1ull);
VALUE(KEEL_SANITIZER_THREAD, 2ull);
VALUE(KEEL_KEEP_TOKEN, 1ull);
VALUE(KEEL_KEEP_LAYER, 2ull);
VALUE(KEEL_KEEP_HEAD_EQUAL, 3ull);
VALUE(KEEL_KEEP_HEAD_RAGGED, 4ull);
VALUE(KEEL_OUTPUT_SCORES, 1ull);
VALUE(KEEL_OUTPUT_KEEP, 2ull);
VALUE(KEEL_POLICY_COMPARABLE, 1ull);
VALUE(KEEL_POLICY_PREFILL_ONLY, 2ull);
VALUE(KEEL_POLICY_BLOCKWISE, 4ull);
VALUE(KEEL_POLICY_BETWEEN_LAYERS, 8ull);
VALUE(KEEL_POLICY_KEEPS_ALL, 16ull);
VALUE(KEEL_POLICY_SEEDED, 32ull);
VALUE(KEEL_POLICY_KVPRESS_WORDS, 64ull);
VALUE(KEEL_TRIGGER_PREFILL_END, 1ull);
VALUE(KEEL_TRIGGER_BUDGET, 2ull);
VALUE(KEEL_TRIGGER_INSERT, 3ull);
VALUE(KEEL_TRIGGER_EVERY_N, 4ull);
VALUE(KEEL_TRIGGER_PRESSURE, 5ull);
VALUE(KEEL_TRIGGER_CHUNK, 6ull);
VALUE(KEEL_NEED_POSITIONS, 1ull);
VALUE(KEEL_NEED_KEY_NORMS, 2ull);
VALUE(KEEL_NEED_VALUE_NORMS, 4ull);
VALUE(KEEL_NEED_WINDOW_SCORES, 8ull);
VALUE(KEEL_NEED_RUNNING_SCORES, 16ull);
VALUE(KEEL_NEED_KEY_SUM, 32ull);
VALUE(KEEL_NEED_KEY_PROJECT, 64ull);
VALUE(KEEL_NEED_QUERY_STATS, 128ull);
VALUE(KEEL_NEED_REPLAY, 256ull);
VALUE(KEEL_NEED_KEYS, 512ull);
VALUE(KEEL_NEED_KEY_ANCHOR, 1024ull);
VALUE(KEEL_NEED_CHUNK_SCORES, 2048ull);
VALUE(KEEL_NEED_UNROTATED, 4096ull);
VALUE(KEEL_DTYPE_NONE, 0ull);
VALUE(KEEL_DTYPE_F32, 1ull);
VALUE(KEEL_DTYPE_F16, 2ull);
VALUE(KEEL_DTYPE_BF16, 3ull);
VALUE(KEEL_DTYPE_Q8_0, 8ull);
VALUE(KEEL_DTYPE_Q4_0, 9ull);
VALUE(KEEL_DTYPE_Q4_K, 10ull);
VALUE(KEEL_DTYPE_Q5_K, 11ull);
VALUE(KEEL_DTYPE_Q6_K, 12ull);
VALUE(KEEL_DTYPE_I32, 16ull);
VALUE(KEEL_DTYPE_U32, 17ull);
VALUE(KEEL_DTYPE_U8, 18ull);
VALUE(KEEL_DTYPE_I8, 19ull);
VALUE(KEEL_DTYPE_F8E5M2, 32ull);
VALUE(KEEL_DTYPE_F8E4M3, 33ull);
VALUE(KEEL_MAX_RANK, 4ull);

// What the host hands to each kernel. Read by C++ and by GLSL: both lay these structs out alike
// (64-bit members first, no vectors). Up to 128 bytes are push constants, larger ones lie in
// memory. Addresses are of buffers' first bytes; "offset" and strides are counted in units of the
// element (4 bytes for f32 and i32) from there, modulo 2^32.
#ifndef KEEL_VULKAN_PARAMS_H
#define KEEL_VULKAN_PARAMS_H

#ifdef __cplusplus
#include <cstdint>
namespace keel_vulkan {
using uint = uint32_t;
#endif

// keel_gpu::View
struct Tensor {
    uint shape[3];
    uint stride[3];
    uint n, offset;
};

// Rows by one or two numbers.
struct Rows {
    uint outer, inner, offset; // strides of the two outer dimensions
};

// x[m, k] * w[n, k]^T; rows of w are w_stride bytes apart, their scales (split layout)
// scales_stride bytes.
struct LinearParams {
    uint64_t x, w, scales, bias, to;                        // of element 0
    uint64_t x_stride, w_stride, scales_stride, out_stride; // bytes
    uint m, n, k;
    uint accumulate;
};

struct EmbedParams {
    uint64_t ids, w, scales, to;
    uint64_t w_stride, scales_stride, out_stride;
    uint m, rows, cols;
    float factor;
};

struct NormParams {
    uint64_t x, residual, weight, bias, to; // weight, bias: of element 0; bias 0: none
    Rows x_at, residual_at, out_at;
    uint rows, inner, n; // row r is (r / inner, r % inner)
    float eps;
};

struct ElementwiseParams {
    uint64_t a, b, to;
    Tensor a_at, b_at, out_at;
    float factor;
    uint reserved;
};

struct GateParams {
    uint64_t gate, up, to; // up 0: none
    Rows gate_at, up_at, out_at;
    uint m, n;
};

struct MoveParams {
    uint64_t x, to; // x 0: zeros
    Tensor x_at, out_at;
};

struct RowsParams {
    uint64_t x, values, index;
    Rows x_at, values_at, index_at;
    uint rows, n, k;
    uint first; // of top_k: places before it were filled by the dispatch before
};

// keel_gpu::RopeConstants with the tables' addresses.
struct Rope {
    uint64_t cos, sin;
    uint rows, half_rot, interleaved;
    uint cos_offset, cos_stride, sin_offset, sin_stride;
    uint reserved;
};

// [m, heads, dim] by token and head.
struct Positions {
    uint offset, token_stride, head_stride;
};

// keel_gpu::KvConstants with the tensors' addresses.
struct Kv {
    uint64_t k, v, table, lengths, positions, seats; // seats 0: of one sequence
    uint kv_heads, max_length, block_shift, blocks;
    uint k_type, k_dim, k_offset, k_block, k_slot;
    uint v_type, v_dim, v_offset, v_block, v_slot;
    uint table_offset, table_stride, table_blocks;
    uint lengths_offset;
    uint positions_offset, positions_stride, positions_slots;
    uint seat_heads, seat_rows, seats_offset, seats_held;
    uint reserved;
};

struct RopeParams {
    Rope rope;
    uint64_t x, to, positions;
    Rows x_at, out_at;
    Positions positions_at;
    uint m, heads, dim, group;
    float sign;
};

// qkv_prepare, and kv_append with heads 0.
struct AppendParams {
    Kv kv;
    Rope rope;
    uint64_t q, k, v, positions, q_norm, k_norm, q_out, q_unrotated, k_unrotated; // 0: none
    Rows q_at, k_at, v_at, q_out_at, q_unrotated_at, k_unrotated_at;
    Positions positions_at;
    uint m, heads, group;
    uint rotate;
    float eps;
};

struct GatherParams {
    Kv from, to;
    uint64_t index, count, side; // side 0: the cache itself
    uint index_stride, index_offset, count_offset;
    uint side_stride, side_offset, side_slots;
    uint in_place; // slots move within the same memory: each after the one before
    uint most;     // entries of an index list
};

struct RerotateParams {
    Kv kv;
    Rope rope;
    uint64_t row, new_positions, source; // source 0: the cache
    uint row_stride, row_offset, row_slots;
    uint new_stride, new_offset, new_slots;
    Rows source_at;
    uint begin, end;
    uint reserved;
};

struct AttentionParams {
    Kv kv;
    uint64_t q, to, q_positions, lse, parts, stats, ranges, weights, scores; // 0: none
    Rows q_at, out_at, lse_at;
    Positions q_positions_at;
    uint m, group;
    uint causal, windowed;
    int window;
    float scale, cap; // cap 0: none
    uint part_slots, n_parts;
    uint first; // the first query that is looked at: contributing queries are the last ones
    uint ranged, n_ranges, ranges_stride, ranges_offset;
    uint weights_stride, weights_offset;
    uint scores_stride, scores_offset;
    uint reduce_queries, reduce_group, accumulate, logits;
};

struct KeysParams {
    Kv kv;
    Rope rope;
    uint64_t to, projection, norms; // projection 0: none; norms: of key_sum, 0: none
    Rows out_at;                    // by head and slot, or head
    uint projection_stride, projection_offset;
    uint r;
    uint begin, end;
    uint rotate, l1;
    uint out_slots;
};

struct StatsParams {
    uint64_t q, sum, second; // second 0: none
    Rows q_at, sum_at, second_at;
    uint m, heads, dim;
    uint reserved;
};

#ifdef __cplusplus
} // namespace keel_vulkan
#endif
#endif

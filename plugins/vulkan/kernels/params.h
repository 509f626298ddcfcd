// Parameters of the kernels. C++ and GLSL both include this file and lay out its structs in the
// same way: 64-bit members come first, and there are no vectors. Parameters of up to 128 bytes are
// push constants. Larger parameters are stored in memory.
//
// Most tensors are described by three kinds of numbers:
// - Address (uint64_t): the address of byte 0 of the tensor's buffer. 0 means that there is no
//   tensor.
// - Offset: the distance of the tensor's element 0 from the start of the buffer, in units.
// - Stride: the distance between neighbours in a dimension, in units, modulo 2^32.
// A unit is 4 bytes for f32, i32 and u32, 2 bytes for f16, bf16 and blocks, and 1 byte for 8-bit
// types. Kernels that only copy bytes may use smaller units (MoveParams). If a tensor has no offset
// here, its address is the address of its element 0. Some strides count bytes; the comments in the
// structs say so.
#ifndef KEEL_VULKAN_PARAMS_H
#define KEEL_VULKAN_PARAMS_H

#ifdef __cplusplus
#include <cstdint>
namespace keel_vulkan {
using uint = uint32_t;
#endif

// The members of keel_gpu::View.
struct Tensor {
    uint shape[3];
    uint stride[3];
    uint n, offset;
};

// Rows with two indices. Row (i, j) begins at unit offset + i * outer + j * inner.
struct Rows {
    uint outer, inner, offset;
};

// Computes x[m, k] * w[n, k]^T. `scales` and scales_stride are used only with the split layout.
struct LinearParams {
    uint64_t x, w, scales, bias, to;                        // addresses of element 0
    uint64_t x_stride, w_stride, scales_stride, out_stride; // bytes from one row to the next
    uint m, n, k;
    uint accumulate;
};

struct EmbedParams {
    uint64_t ids, w, scales, to;                  // addresses of element 0
    uint64_t w_stride, scales_stride, out_stride; // bytes from one row to the next
    uint m, rows, cols;
    float factor;
};

struct NormParams {
    // weight, bias: addresses of element 0; bias is 0 if the op has no bias
    uint64_t x, residual, weight, bias, to;
    Rows x_at, residual_at, out_at;
    uint rows, inner, n; // row r has the two indices r / inner and r % inner
    float eps;
};

struct ElementwiseParams {
    uint64_t a, b, to;
    Tensor a_at, b_at, out_at;
    float factor;
    uint reserved;
};

struct GateParams {
    uint64_t gate, up, to; // up: 0 if the op has no `up`
    Rows gate_at, up_at, out_at;
    uint m, n;
};

struct MoveParams {
    uint64_t x, to; // x: 0 means that zeros are written
    Tensor x_at, out_at;
};

struct RowsParams {
    uint64_t x, values, index;
    Rows x_at, values_at, index_at;
    uint rows, n, k;
    uint first; // for top_k: earlier dispatches wrote the results before this place
};

// keel_gpu::RopeConstants and the addresses of the tables.
struct Rope {
    uint64_t cos, sin;
    uint rows, half_rot, interleaved;
    uint cos_offset, cos_stride, sin_offset, sin_stride;
    uint reserved;
};

// Strides of a tensor of positions, by token and by head.
struct Positions {
    uint offset, token_stride, head_stride;
};

// keel_gpu::KvConstants and the addresses of the tensors.
struct Kv {
    uint64_t k, v, table, lengths, positions, seats; // seats: 0 for one sequence
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

// Parameters of qkv_prepare. kv_append uses them with heads = 0.
struct AppendParams {
    Kv kv;
    Rope rope;
    // An address is 0 if the tensor is absent. q_norm and k_norm are addresses of element 0.
    uint64_t q, k, v, positions, q_norm, k_norm, q_out, q_unrotated, k_unrotated;
    Rows q_at, k_at, v_at, q_out_at, q_unrotated_at, k_unrotated_at;
    Positions positions_at;
    uint m, heads, group;
    uint rotate;
    float eps;
};

struct GatherParams {
    Kv from, to;
    uint64_t index, count, side; // side: 0 means that the cache itself is moved
    uint index_stride, index_offset, count_offset;
    uint side_stride, side_offset, side_slots;
    uint in_place; // 1: source and target can share memory, so the slots are moved in order
    uint most;     // number of indices in a list
};

struct RerotateParams {
    Kv kv;
    Rope rope;
    uint64_t row, new_positions, source; // source: 0 means that keys are read from the cache
    uint row_stride, row_offset, row_slots;
    uint new_stride, new_offset, new_slots;
    Rows source_at;
    uint begin, end;
    uint reserved;
};

struct AttentionParams {
    Kv kv;
    // an address is 0 if the tensor is absent
    uint64_t q, to, q_positions, lse, parts, stats, ranges, weights, scores;
    Rows q_at, out_at, lse_at;
    Positions q_positions_at;
    uint m, group;
    uint causal, windowed;
    int window;
    float scale, cap; // cap: 0 means no soft cap
    uint part_slots, n_parts;
    uint first; // the first query to compute; the contributing queries are the last ones
    uint ranged, n_ranges, ranges_stride, ranges_offset;
    uint weights_stride, weights_offset;
    uint scores_stride, scores_offset;
    uint reduce_queries, reduce_group, accumulate, logits;
};

struct KeysParams {
    Kv kv;
    Rope rope;
    // projection: 0 if absent; norms: only for key_sum, 0 if absent
    uint64_t to, projection, norms;
    Rows out_at; // the indices are head and slot, or only the head
    uint projection_stride, projection_offset;
    uint r;
    uint begin, end;
    uint rotate, l1;
    uint out_slots;
};

struct StatsParams {
    uint64_t q, sum, second; // second: 0 if absent
    Rows q_at, sum_at, second_at;
    uint m, heads, dim;
    uint reserved;
};

#ifdef __cplusplus
} // namespace keel_vulkan
#endif
#endif

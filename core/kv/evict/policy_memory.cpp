// What a policy makes the core hold beside keys and values, told before anything is made.
#include "device/device.hpp"
#include "kv/evict/cache_plan.hpp"

#include <algorithm>

namespace keel {

uint64_t CachePlan::policy_need_bytes(int64_t context, int64_t held) const {
    const KvShape &s = shape_;
    const auto blocks = static_cast<uint64_t>((context + s.block_slots - 1) / s.block_slots);
    const uint64_t slots = blocks * s.block_slots, dim = s.head_dim, f32 = sizeof(float);
    const uint64_t rows = uint64_t{s.layers} * s.kv_heads,
                   cells = rows * static_cast<uint64_t>(held);
    const uint64_t layer_cells = s.kv_heads * static_cast<uint64_t>(held);
    uint64_t bytes = 0;
    // In steps.
    if (gathered_.window > 0) {
        const keel_dtype type = executor_.device().info().activation_dtype;
        bytes += 2 * uint64_t{s.layers} * gathered_.window *
                 keel_dtype_row_bytes(type, int64_t{s.heads} * s.head_dim);
    }
    if (gathered_.running) bytes += rows * slots * f32;
    if (gathered_.chunks) bytes += rows * slots * f32;
    if (gathered_.stats) {
        const auto steps =
            static_cast<uint64_t>(std::min<int64_t>(step_tokens(executor_, s), context));
        bytes +=
            uint64_t{s.layers} * s.heads * (dim + dim * dim + InputOps::stats_rows * dim) * f32 +
            steps * s.heads * dim * f32;
    }
    if (keeps_all()) return bytes;
    // When slots go: on the device, and as read.
    const auto wants = [&](uint64_t bit) { return (needs_.needs & bit) != 0; };
    const auto both = [&](uint64_t bit, uint64_t numbers) {
        bytes += wants(bit) ? 2 * numbers * f32 : 0;
    };
    both(KEEL_NEED_KEY_NORMS, cells);
    both(KEEL_NEED_VALUE_NORMS, cells);
    both(KEEL_NEED_KEY_ANCHOR, cells);
    both(KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR, rows * dim);
    both(KEEL_NEED_WINDOW_SCORES,
         needs_.reduce_group == KEEL_REDUCE_NONE ? cells / s.kv_heads * s.heads : cells);
    both(KEEL_NEED_RUNNING_SCORES, cells);
    both(KEEL_NEED_CHUNK_SCORES, cells);
    both(KEEL_NEED_REPLAY, cells);
    both(KEEL_NEED_KEYS, layer_cells * dim);
    both(KEEL_NEED_KEY_PROJECT, layer_cells * needs_.projection_cols);
    if (wants(KEEL_NEED_KEY_PROJECT)) bytes += dim * needs_.projection_cols * f32;
    if (wants(KEEL_NEED_UNROTATED))
        bytes += (static_cast<uint64_t>(held) * geometry_.rot + s.kv_heads * slots) * f32;
    if (wants(KEEL_NEED_REPLAY)) bytes += rows * slots * f32;
    if (wants(KEEL_NEED_QUERY_STATS))
        bytes += uint64_t{s.layers} * s.heads * (dim + dim * dim) * f32;
    // The policy's answers: a mask, and scores with what stays, or lists; with positions.
    const uint64_t answered = allocator_.by_scores ? cells : layer_cells;
    bytes += answered * (3 + f32 + (wants(KEEL_NEED_POSITIONS) ? sizeof(int32_t) : 0));
    if (!may_move_keys()) return bytes;
    bytes += 4 * (s.kv_heads * slots * sizeof(int32_t) +
                  uint64_t{RerotationOps::table_rows} * config_.rope_frequencies.size() * f32);
    if (keeps_pristine()) return bytes + layer_cells * dim * f32;
    return bytes +
           rows * static_cast<uint64_t>(config_.protect_prefix) * (dim * f32 + sizeof(int32_t));
}

} // namespace keel

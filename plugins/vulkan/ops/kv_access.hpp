// A cache view and related args in the form that kernels take: the constants of keel_gpu and the
// addresses of the buffers.
#pragma once

#include "vulkan/ops/ops.hpp"

#include <string.h>

namespace keel_vulkan {

// If `seats` is given, the call is for a batch of sequences, and kv must be the view of seat 0.
inline Kv kv_of(const keel_ctx &ctx, const keel_kv_view *kv, const char *op,
                const Seats *seats = nullptr) {
    const KvConstants c = kv_constants(ctx.host, kv, op, seats);
    Kv out = {};
    out.k = base_of(kv->k), out.v = base_of(kv->v);
    out.table = base_of(kv->block_table), out.lengths = base_of(kv->lengths),
    out.positions = base_of(kv->positions);
    out.seats = seats != nullptr ? base_of(seats->list) : 0;
    // From kv_heads on, both structs have the same words in the same order.
    static_assert(sizeof(KvConstants) == offsetof(Kv, reserved) - offsetof(Kv, kv_heads));
    memcpy(&out.kv_heads, &c, sizeof c);
    return out;
}

inline Rope rope_of(const keel_ctx &ctx, const keel_rope_tables *tables, int64_t head_dim,
                    const char *op) {
    const RopeConstants c = rope_constants(ctx.host, tables, head_dim, op);
    return {base_of(tables->cos), base_of(tables->sin), c.rows,       c.half,       c.interleaved,
            c.cos_offset,         c.cos_stride,         c.sin_offset, c.sin_stride, 0};
}

inline Positions positions_of(const keel_ctx &ctx, const keel_tensor *t, const char *op) {
    const PositionConstants c = position_constants(ctx.host, t, op);
    return {c.offset, c.token_stride, c.head_stride};
}

// Returns the smallest power of two that is at least n and at least `least`. Rounding keeps the
// number of pipelines small.
inline uint32_t room_for(int64_t n, uint32_t least) {
    uint32_t room = least;
    while (room < n) room *= 2;
    return room;
}

inline Type cache_type(const keel_tensor *arena) {
    Type type = type_f32;
    type_of(arena->dtype, type);
    return type;
}

inline Rows at(const keel_ctx &ctx, const keel_tensor *t, const char *name) {
    return rows_of(tensor_of(ctx, t, name));
}

// Size of a workgroup that handles the row of one head.
constexpr uint32_t kRowGroup = 32;

// Returns the pipeline of qkv_prepare and kv_append.
inline VkPipeline append_pipeline(keel_ctx &ctx, const keel_kv_view *kv) {
    const int64_t dim = kv->k->shape[2] > kv->v->shape[2] ? kv->k->shape[2] : kv->v->shape[2];
    return ctx.kernels.get(Kernel::kv_append, {kRowGroup, room_for(dim, 128)});
}

} // namespace keel_vulkan

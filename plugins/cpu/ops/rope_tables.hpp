// The cos and sin tables of RoPE, in the form that the rope kernels take.
#pragma once

#include "cpu/ops/kv_access.hpp"

namespace keel_cpu {

// Makes the checks that need only dtypes and shapes, so that op_plan can make them.
inline keel_status check_tables(keel_ctx *ctx, const keel_rope_tables *t, int64_t head_dim,
                                const char *op) {
    if (!is_f32(t->cos) || !is_f32(t->sin) || t->rot > head_dim || t->rot % 2 != 0)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "%s: tables must be f32, with an even rot of at most %lld", op,
                    static_cast<long long>(head_dim));
    if (t->mode != KEEL_ROPE_HALF_SPLIT && t->mode != KEEL_ROPE_INTERLEAVED)
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: unknown rope mode %u", op, t->mode);
    return KEEL_OK;
}

struct RopeTables {
    const float *cos = nullptr, *sin = nullptr;
    int64_t cos_stride = 0, sin_stride = 0, rows = 0, rot = 0;
    keel_rope_mode mode = KEEL_ROPE_HALF_SPLIT;

    explicit RopeTables(const keel_rope_tables *t = nullptr) {
        if (t == nullptr) return;
        cos = data_as<const float>(t->cos), sin = data_as<const float>(t->sin);
        cos_stride = outer_stride(t->cos), sin_stride = outer_stride(t->sin);
        rows = t->cos->shape[0], rot = rows == 0 ? 0 : t->rot, mode = t->mode;
    }
    // Rotates one head with the table row of `position`. `out` can be x.
    void rotate(const AttentionKernels &kernels, const float *x, float *out, int64_t dim,
                int64_t position, float sign) const {
        int64_t row = rows == 0 ? 0 : position % rows;
        if (row < 0) row += rows;
        kernels.rope(x, out, dim, rot, cos + row * cos_stride, sin + row * sin_stride, sign, mode);
    }
};

} // namespace keel_cpu

#include "weights.hpp"

#include "ops.hpp"

#include <memory>
#include <stdio.h>
#include <string.h>

namespace keel_vulkan {
namespace {

constexpr uint64_t kPieceBytes = 4u << 20;

void look_for_cancel(keel_ctx &ctx) {
    if (ctx.services.cancelled != nullptr && ctx.services.cancelled(ctx.host) != 0)
        refuse(ctx.host, KEEL_E_CANCELLED, "stopped while a weight was loaded");
}

// Rows by pieces through host memory of our own, which the stream copies.
void upload(keel_ctx &ctx, const keel_weight_desc &desc, const keel_weight &w) {
    const WeightShape &shape = w.shape;
    const bool splits = is_block(shape.type);
    const uint64_t row = splits ? shape.code_bytes() + w.scales_stride() : w.row_stride;
    if (row == 0 || shape.rows == 0) return;
    const auto step = static_cast<int64_t>(kPieceBytes / row + 1);
    std::vector<uint8_t> room(static_cast<size_t>(step) * row, 0);
    for (int64_t first = 0; first < shape.rows; first += step) {
        look_for_cancel(ctx);
        const int64_t n = shape.rows - first < step ? shape.rows - first : step;
        const auto count = static_cast<uint64_t>(n), from = static_cast<uint64_t>(first);
        if (splits) {
            uint8_t *scales = room.data() + count * shape.code_bytes();
            split_rows(desc, shape, first, n, room.data(), scales);
            ctx.stream.write(w.range, from * shape.code_bytes(), room.data(), count * shape.code_bytes());
            ctx.stream.write(w.range, shape.scales_offset() + from * w.scales_stride(), scales,
                             count * w.scales_stride());
            continue;
        }
        for (uint64_t r = 0; r < count; ++r)
            memcpy(room.data() + r * row, source_row(desc, first + static_cast<int64_t>(r)),
                   shape.row_bytes());
        ctx.stream.write(w.range, from * row, room.data(), count * row);
    }
}

} // namespace

keel_status KEEL_CALL weight_prepare(keel_ctx *ctx, const keel_weight_desc *desc,
                                     keel_weight **out) noexcept {
    *out = nullptr;
    return guarded(ctx->host, [&] {
        auto w = std::make_unique<keel_weight>();
        w->shape = check_weight(ctx->host, *desc);
        const bool splits = is_block(w->shape.type);
        w->row_stride = splits ? w->shape.code_bytes() : (w->shape.row_bytes() + 15) / 16 * 16;
        w->bytes = splits ? w->shape.split_bytes() : w->row_stride * static_cast<uint64_t>(w->shape.rows);
        w->range = ctx->memory.take(MemoryUse::device, w->bytes);
        try {
            upload(*ctx, *desc, *w);
        } catch (...) {
            ctx->stream.give_back_later(w->range);
            throw;
        }
        ctx->weight_bytes += w->bytes;
        *out = w.release();
        check_messages(ctx, "weight_prepare");
    });
}

void KEEL_CALL weight_destroy(keel_ctx *ctx, keel_weight *w) noexcept {
    if (w == nullptr) return;
    guarded(ctx->host, [&] {
        ctx->weight_bytes -= w->bytes;
        ctx->stream.give_back_later(w->range);
    });
    delete w;
}

keel_status KEEL_CALL weight_info(keel_ctx *, const keel_weight *w, keel_weight_info *out) noexcept {
    keel_weight_info info = make_out<keel_weight_info>();
    info.rows = w->shape.rows;
    info.cols = w->shape.cols;
    info.bytes = w->bytes;
    info.dtype = dtype_of(w->shape.type);
    snprintf(info.layout, sizeof info.layout, "%s, %s", type_name(w->shape.type),
             is_block(w->shape.type) ? "codes and scales apart" : "rows aligned to 16 bytes");
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

} // namespace keel_vulkan

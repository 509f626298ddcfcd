#include "vulkan/weights.hpp"

#include "vulkan/ops/ops.hpp"

#include "gpu/create.hpp"

#include <stdio.h>
#include <string.h>

namespace keel_vulkan {
namespace {

constexpr uint64_t kPieceBytes = 4u << 20, kPageBytes = 4096;

// Returns true if kernels can read the weight's single source directly in the file's mapping. For
// this, the source must have the right row layout, and host and device must share memory. Whole
// pages are imported, so data next to the weight is imported too.
bool fits_in_place(const keel_ctx &ctx, const keel_weight_desc &desc, const keel_weight &w) {
    const keel_weight_source &s = *desc.sources[0];
    const DeviceFacts &facts = ctx.device.facts();
    const auto at = reinterpret_cast<uintptr_t>(s.mapping) + s.offset;
    return facts.unified && facts.imports && facts.import_align <= kPageBytes &&
           desc.n_sources == 1 && w.bytes != 0 && !is_block(w.shape.type) &&
           w.row_stride == w.shape.row_bytes() && at % 16 == 0 &&
           ctx.memory.allocations() < facts.properties.limits.maxMemoryAllocationCount / 2;
}

// Imports the pages of the weight. Returns false if the driver does not accept these pages. Then
// the weight is copied.
bool use_in_place(keel_ctx &ctx, const keel_weight_desc &desc, keel_weight &w) {
    const uint64_t align = ctx.device.facts().import_align;
    const auto at = reinterpret_cast<uintptr_t>(desc.sources[0]->mapping) + desc.sources[0]->offset;
    const uintptr_t first = at / align * align;
    const uint64_t bytes = (at + w.bytes - first + align - 1) / align * align;
    if (bytes > ctx.device.facts().max_allocation) return false;
    try {
        // The mapping is read-only. This is safe, because kernels only read weights.
        w.imported = ctx.memory.import(reinterpret_cast<void *>(first), bytes);
    } catch (const Refusal &refusal) {
        if (refusal.status == KEEL_E_DEVICE_LOST) throw;
        return false;
    }
    w.range = {w.imported, at - first, w.bytes};
    return true;
}

// Copies rows to the device in pieces, through the staging memory.
void upload(keel_ctx &ctx, const keel_weight_desc &desc, const keel_weight &w) {
    const WeightShape &shape = w.shape;
    const bool splits = is_block(shape.type);
    const uint64_t row = splits ? shape.code_bytes() + w.scales_stride() : w.row_stride;
    if (row == 0 || shape.rows == 0) return;
    const auto step = static_cast<int64_t>(kPieceBytes / row + 1);
    std::vector<uint8_t> room(static_cast<size_t>(step) * row, 0);
    for (int64_t first = 0; first < shape.rows; first += step) {
        need_not_cancelled(ctx.host);
        const int64_t n = shape.rows - first < step ? shape.rows - first : step;
        const auto count = static_cast<uint64_t>(n), from = static_cast<uint64_t>(first);
        if (splits) {
            uint8_t *scales = room.data() + count * shape.code_bytes();
            split_rows(desc, shape, first, n, room.data(), scales);
            ctx.stream.write(w.range, from * shape.code_bytes(), room.data(),
                             count * shape.code_bytes());
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

keel_status KEEL_CALL weight_prepare(keel_ctx *ctx, const keel_weight_desc *theirs,
                                     keel_weight **out) noexcept {
    return create_weight(ctx, theirs, out, [&](const keel_weight_desc &desc) {
        auto w = std::make_unique<keel_weight>();
        w->shape = check_weight(ctx->host, desc);
        const bool splits = is_block(w->shape.type);
        w->row_stride = splits ? w->shape.code_bytes() : (w->shape.row_bytes() + 15) / 16 * 16;
        w->bytes =
            splits ? w->shape.split_bytes() : w->row_stride * static_cast<uint64_t>(w->shape.rows);
        if (!fits_in_place(*ctx, desc, *w) || !use_in_place(*ctx, desc, *w)) {
            w->range = take_memory(*ctx, MemoryUse::device, w->bytes);
            try {
                upload(*ctx, desc, *w);
            } catch (...) {
                ctx->stream.give_back_later(w->range);
                throw;
            }
            ctx->weight_bytes += w->bytes;
        }
        keel_weight *made = w.release();
        try {
            check_messages(ctx, "weight_prepare");
        } catch (...) {
            weight_destroy(ctx, made);
            throw;
        }
        return made;
    });
}

void KEEL_CALL weight_destroy(keel_ctx *ctx, keel_weight *w) noexcept {
    if (w == nullptr) return;
    if (w->imported != nullptr) {
        close_import(*ctx, w->imported); // after this call the host may unmap the mapping
        delete w;
        return;
    }
    guarded(ctx->host, [&] {
        ctx->weight_bytes -= w->bytes;
        ctx->stream.give_back_later(w->range);
    });
    delete w;
}

keel_status KEEL_CALL weight_info(keel_ctx *, const keel_weight *w,
                                  keel_weight_info *out) noexcept {
    keel_weight_info info = make_out<keel_weight_info>();
    info.rows = w->shape.rows;
    info.cols = w->shape.cols;
    info.bytes = w->bytes;
    info.dtype = dtype_of(w->shape.type);
    info.source_needed = w->imported != nullptr ? 1 : 0;
    snprintf(info.layout, sizeof info.layout, "%s, %s", type_name(w->shape.type),
             is_block(w->shape.type)  ? "codes and scales apart"
             : w->imported != nullptr ? "in place"
                                      : "rows aligned to 16 bytes");
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

} // namespace keel_vulkan

// Buffers. A buffer is a part of a larger allocation. The memory of an IMPORT buffer is the host's
// own memory.
#include "vulkan/ops/ops.hpp"

#include "gpu/create.hpp"

#include <string.h>

namespace keel_vulkan {
namespace {

void get_memory(keel_ctx &ctx, const keel_buffer_desc &desc, keel_buffer &b) {
    switch (desc.kind) {
    case KEEL_BUFFER_DEVICE: b.range = take_memory(ctx, MemoryUse::device, desc.size); break;
    case KEEL_BUFFER_HOST_VISIBLE:
        b.range = take_memory(
            ctx, ctx.device.facts().unified ? MemoryUse::device : MemoryUse::download, desc.size);
        if (b.range.mapped() == nullptr) {
            ctx.memory.give_back(b.range);
            refuse(ctx.host, KEEL_E_UNSUPPORTED,
                   "buffer: kind HOST_VISIBLE is not supported, because the host can "
                   "access no memory of this device");
        }
        break;
    case KEEL_BUFFER_IMPORT:
        b.imported = ctx.memory.import(desc.host, desc.size);
        b.range = {b.imported, 0, desc.size};
        b.host = static_cast<uint8_t *>(desc.host);
        return;
    default:
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "buffer: kind %u is not supported; expected DEVICE, HOST_VISIBLE or "
               "IMPORT",
               desc.kind);
    }
    ctx.buffer_bytes += desc.size;
}

} // namespace

keel_status KEEL_CALL buffer_create(keel_ctx *ctx, const keel_buffer_desc *theirs,
                                    keel_buffer **out) noexcept {
    return create_buffer(ctx, theirs, out, [&](const keel_buffer_desc &desc) {
        auto buffer = std::make_unique<keel_buffer>();
        buffer->size = desc.size;
        buffer->kind = desc.kind;
        get_memory(*ctx, desc, *buffer);
        keel_buffer *made = buffer.release();
        try {
            check_messages(ctx, "buffer_create");
        } catch (...) {
            buffer_destroy(ctx, made);
            throw;
        }
        return made;
    });
}

void KEEL_CALL buffer_destroy(keel_ctx *ctx, keel_buffer *b) noexcept {
    if (b == nullptr) return;
    if (b->imported != nullptr) {
        close_import(*ctx, b->imported);
    } else {
        guarded(ctx->host, [&] {
            ctx->buffer_bytes -= b->size;
            ctx->stream.give_back_later(b->range);
        });
    }
    delete b;
}

keel_status KEEL_CALL buffer_write(keel_ctx *ctx, keel_buffer *b, uint64_t offset, const void *src,
                                   uint64_t n) noexcept {
    return guarded(ctx->host, [&] {
        need_range(ctx->host, b->size, offset, n);
        need_no_recording(*ctx, "buffer_write");
        if (b->host != nullptr && ctx->stream.idle()) {
            if (n != 0) memcpy(b->host + offset, src, n);
        } else {
            ctx->stream.write(b->range, offset, src, n);
        }
        check_messages(ctx, "buffer_write");
    });
}

keel_status KEEL_CALL buffer_read(keel_ctx *ctx, keel_buffer *b, uint64_t offset, void *dst,
                                  uint64_t n) noexcept {
    return guarded(ctx->host, [&] {
        need_range(ctx->host, b->size, offset, n);
        need_no_recording(*ctx, "buffer_read");
        if (b->host != nullptr) {
            ctx->stream.finish();
            if (n != 0) memcpy(dst, b->host + offset, n);
        } else {
            ctx->stream.read(b->range, offset, dst, n);
        }
        check_messages(ctx, "buffer_read");
    });
}

keel_status KEEL_CALL buffer_map(keel_ctx *ctx, keel_buffer *b, void **out) noexcept {
    *out = b->kind == KEEL_BUFFER_IMPORT         ? b->host
           : b->kind == KEEL_BUFFER_HOST_VISIBLE ? b->range.mapped()
                                                 : nullptr;
    if (*out == nullptr)
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "a buffer of kind DEVICE cannot be mapped");
    return KEEL_OK;
}

} // namespace keel_vulkan

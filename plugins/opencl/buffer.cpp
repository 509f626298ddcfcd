// Buffers are OpenCL memory objects. If host and device share one memory (unified memory),
// HOST_VISIBLE and IMPORT buffers use the host's own memory (stream.hpp). RESERVE buffers are not
// supported, because OpenCL cannot allocate memory for a part of a buffer.
#include "opencl/ops/ops.hpp"

#include "gpu/create.hpp"

#include <stdio.h>
#include <string.h>

namespace keel_opencl {
namespace {

void create(keel_ctx &ctx, const keel_buffer_desc &desc, keel_buffer &b) {
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    void *host = nullptr;
    switch (desc.kind) {
    case KEEL_BUFFER_DEVICE: break;
    case KEEL_BUFFER_HOST_VISIBLE:
        if (!ctx.unified)
            refuse(ctx.host, KEEL_E_UNSUPPORTED,
                   "buffer: expected the kind DEVICE, because this device shares no memory with "
                   "the host");
        flags |= CL_MEM_ALLOC_HOST_PTR;
        break;
    case KEEL_BUFFER_IMPORT:
        if (!ctx.unified)
            refuse(ctx.host, KEEL_E_UNSUPPORTED,
                   "buffer: expected the kind DEVICE, because this device shares no memory with "
                   "the host");
        if (desc.host == nullptr ||
            reinterpret_cast<uintptr_t>(desc.host) % ctx.device.alignment != 0)
            refuse(ctx.host, KEEL_E_INVALID_ARG,
                   "buffer: expected imported memory that is aligned to %u bytes",
                   ctx.device.alignment);
        flags |= CL_MEM_USE_HOST_PTR;
        host = desc.host;
        break;
    default:
        refuse(ctx.host, KEEL_E_UNSUPPORTED,
               "buffer: kind %u is not supported; expected DEVICE, HOST_VISIBLE or "
               "IMPORT",
               desc.kind);
    }
    if (ctx.device.max_buffer != 0 && desc.size > ctx.device.max_buffer)
        refuse(ctx.host, KEEL_E_OUT_OF_MEMORY,
               "a buffer of %llu bytes is too large: device '%s' allows at most "
               "%llu for one buffer",
               static_cast<unsigned long long>(desc.size), ctx.device.name.c_str(),
               static_cast<unsigned long long>(ctx.device.max_buffer));
    cl_int code = CL_SUCCESS;
    b.memory.reset(clCreateBuffer(ctx.context.get(), flags, desc.size, host, &code));
    char what[64];
    snprintf(what, sizeof what, "clCreateBuffer of %llu bytes",
             static_cast<unsigned long long>(desc.size));
    check(ctx.host, code, what);
    b.size = desc.size;
    b.kind = desc.kind;
    if (desc.kind == KEEL_BUFFER_DEVICE) return;
    share(ctx, b);
}

// Returns true if no work is queued or running.
bool is_idle(keel_ctx &ctx) { return !ctx.queued && is_done(ctx, ctx.ticket); }

} // namespace

keel_status KEEL_CALL buffer_create(keel_ctx *ctx, const keel_buffer_desc *theirs,
                                    keel_buffer **out) noexcept {
    return create_buffer(ctx, theirs, out, [&](const keel_buffer_desc &desc) {
        auto buffer = std::make_unique<keel_buffer>();
        create(*ctx, desc, *buffer);
        if (desc.kind != KEEL_BUFFER_IMPORT) ctx->buffer_bytes += desc.size;
        return buffer.release();
    });
}

void KEEL_CALL buffer_destroy(keel_ctx *ctx, keel_buffer *b) noexcept {
    if (b == nullptr) return;
    // when this function returns, the host may reuse the buffer's memory
    if (b->mapped != nullptr) {
        guarded(ctx->host, [&] { finish(*ctx); });
        if (!settle(*ctx)) return; // the device can still use the memory, so it is not freed
        std::erase(ctx->shared, b);
        if (ctx->host_has)
            clEnqueueUnmapMemObject(ctx->queue.get(), b->memory.get(), b->mapped, 0, nullptr,
                                    nullptr);
        clFinish(ctx->queue.get());
    }
    if (b->kind != KEEL_BUFFER_IMPORT) ctx->buffer_bytes -= b->size;
    delete b; // work in the queue keeps the memory object alive
}

keel_status KEEL_CALL buffer_write(keel_ctx *ctx, keel_buffer *b, uint64_t offset, const void *src,
                                   uint64_t n) noexcept {
    return guarded(ctx->host, [&] {
        need_range(ctx->host, b->size, offset, n);
        need_no_recording(*ctx, "buffer_write");
        require_alive(*ctx);
        if (n == 0) return;
        if (b->mapped != nullptr && ctx->host_has && is_idle(*ctx)) {
            memcpy(static_cast<uint8_t *>(b->mapped) + offset, src, n);
            return;
        }
        give_to_device(*ctx);
        ctx->queued = true;
        ctx->staging->write(b->memory.get(), offset, src, n);
    });
}

keel_status KEEL_CALL buffer_read(keel_ctx *ctx, keel_buffer *b, uint64_t offset, void *dst,
                                  uint64_t n) noexcept {
    return guarded(ctx->host, [&] {
        need_range(ctx->host, b->size, offset, n);
        need_no_recording(*ctx, "buffer_read");
        // this wait has a time limit; the wait of the copy itself has no limit
        finish(*ctx);
        if (n == 0) return;
        if (b->mapped != nullptr) {
            memcpy(dst, static_cast<const uint8_t *>(b->mapped) + offset, n);
            return;
        }
        check(ctx->host,
              clEnqueueReadBuffer(ctx->queue.get(), b->memory.get(), CL_TRUE, offset, n, dst, 0,
                                  nullptr, nullptr),
              "clEnqueueReadBuffer", true);
    });
}

keel_status KEEL_CALL buffer_map(keel_ctx *ctx, keel_buffer *b, void **out) noexcept {
    *out = b->mapped;
    return b->mapped != nullptr ? KEEL_OK
                                : keel_gpu::fail(ctx->host, KEEL_E_UNSUPPORTED,
                                                 "a buffer of kind DEVICE cannot be mapped");
}

} // namespace keel_opencl

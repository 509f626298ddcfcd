// All buffers are host memory. A RESERVE buffer is reserved address space. Its pages get memory
// with buffer_commit(), which can also release the memory.
#include "cpu/ops/ops.hpp"

#include <new>
#include <string.h>

namespace keel_cpu {
namespace {

keel_status bad_range(keel_ctx *ctx, const keel_buffer *buffer, uint64_t offset, uint64_t n) {
    if (offset <= buffer->size && n <= buffer->size - offset) return KEEL_OK;
    return fail(ctx->host, KEEL_E_INVALID_ARG,
                "offset %llu and size %llu do not fit into a buffer of %llu bytes",
                (unsigned long long)offset, (unsigned long long)n,
                (unsigned long long)buffer->size);
}

keel_status no_memory(keel_ctx *ctx, uint64_t bytes) {
    return fail(ctx->host, KEEL_E_OUT_OF_MEMORY, "not enough memory for a buffer of %llu bytes",
                (unsigned long long)bytes);
}

keel_status get_memory(keel_ctx *ctx, const keel_buffer_desc *desc, keel_buffer *b) {
    switch (desc->kind) {
    case KEEL_BUFFER_DEVICE:
    case KEEL_BUFFER_HOST_VISIBLE:
        b->memory = memory_alloc(ctx->host, desc->size);
        if (b->memory.data == nullptr) return no_memory(ctx, desc->size);
        ctx->buffer_bytes += desc->size;
        break;
    case KEEL_BUFFER_IMPORT:
        if (desc->host == nullptr || reinterpret_cast<uintptr_t>(desc->host) % 64 != 0)
            return fail(ctx->host, KEEL_E_INVALID_ARG,
                        "expected imported memory that is aligned to 64 bytes");
        b->data = static_cast<uint8_t *>(desc->host);
        return KEEL_OK;
    case KEEL_BUFFER_RESERVE: {
        b->memory = memory_reserve(desc->size);
        if (b->memory.data == nullptr) return no_memory(ctx, desc->size);
        // The flags are zero at first, and take no memory until a page is committed. So a reserve
        // buffer can be far larger than its used part.
        b->committed = memory_reserve(b->memory.mapped / page_bytes());
        if (b->committed.data == nullptr) return no_memory(ctx, desc->size);
        break;
    }
    default: return fail(ctx->host, KEEL_E_UNSUPPORTED, "unknown kind of buffer %u", desc->kind);
    }
    b->data = b->memory.data;
    return KEEL_OK;
}

} // namespace

keel_status KEEL_CALL buffer_create(keel_ctx *ctx, const keel_buffer_desc *theirs,
                                    keel_buffer **out) noexcept {
    *out = nullptr;
    keel_buffer_desc mine;
    if (keel_adopt(&mine, sizeof mine, theirs, KEEL_PREFIX(keel_buffer_desc, kind)) != KEEL_OK)
        return fail(
            ctx->host, KEEL_E_INVALID_ARG,
            "the buffer description has another ABI version; build the plugin for this Keel");
    const keel_buffer_desc *desc = &mine;
    if (desc->size == 0)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "expected a buffer of 1 byte or more, found 0 bytes");
    void *place = ctx->host->alloc(ctx->host, sizeof(keel_buffer), 64);
    if (place == nullptr) return no_memory(ctx, desc->size);
    keel_buffer *b = new (place) keel_buffer;
    b->size = desc->size;
    b->kind = desc->kind;
    const keel_status status = get_memory(ctx, desc, b);
    if (status != KEEL_OK) {
        memory_free(ctx->host, b->memory);
        ctx->host->free(ctx->host, b);
        return status;
    }
    *out = b;
    return KEEL_OK;
}

void KEEL_CALL buffer_destroy(keel_ctx *ctx, keel_buffer *b) noexcept {
    if (b == nullptr) return;
    if (b->kind == KEEL_BUFFER_RESERVE)
        ctx->buffer_bytes -= b->committed_bytes;
    else if (b->kind != KEEL_BUFFER_IMPORT)
        ctx->buffer_bytes -= b->size;
    memory_free(ctx->host, b->memory);
    memory_free(ctx->host, b->committed);
    ctx->host->free(ctx->host, b);
}

keel_status KEEL_CALL buffer_write(keel_ctx *ctx, keel_buffer *b, uint64_t offset, const void *src,
                                   uint64_t n) noexcept {
    const keel_status status = bad_range(ctx, b, offset, n);
    if (status == KEEL_OK && n != 0) memcpy(b->data + offset, src, n);
    return status;
}

keel_status KEEL_CALL buffer_read(keel_ctx *ctx, keel_buffer *b, uint64_t offset, void *dst,
                                  uint64_t n) noexcept {
    const keel_status status = bad_range(ctx, b, offset, n);
    if (status == KEEL_OK && n != 0) memcpy(dst, b->data + offset, n);
    return status;
}

keel_status KEEL_CALL buffer_map(keel_ctx *ctx, keel_buffer *b, void **out) noexcept {
    *out = nullptr;
    if (b->kind == KEEL_BUFFER_DEVICE)
        return fail(ctx->host, KEEL_E_UNSUPPORTED, "a buffer of kind DEVICE cannot be mapped");
    *out = b->data;
    return KEEL_OK;
}

// A page gets memory when a committed range touches it. A page loses its memory when a released
// range covers the whole page.
keel_status KEEL_CALL buffer_commit(keel_ctx *ctx, keel_buffer *b, uint64_t offset, uint64_t n,
                                    uint32_t commit) noexcept {
    if (b->kind != KEEL_BUFFER_RESERVE)
        return fail(ctx->host, KEEL_E_INVALID_ARG,
                    "buffer_commit: expected a buffer of kind RESERVE");
    const keel_status status = bad_range(ctx, b, offset, n);
    if (status != KEEL_OK || n == 0) return status;
    const uint64_t page = page_bytes();
    // A range that ends at the end of the buffer includes the rest of the last page.
    const uint64_t end = offset + n == b->size ? b->memory.mapped : offset + n;
    uint64_t first = commit ? offset / page : (offset + page - 1) / page;
    const uint64_t last = commit ? (end + page - 1) / page : end / page;
    const uint8_t wanted = commit ? 1 : 0;
    while (first < last) { // each iteration handles one run of pages that change
        if (b->committed.data[first] == wanted) {
            ++first;
            continue;
        }
        uint64_t stop = first;
        while (stop < last && b->committed.data[stop] != wanted) ++stop;
        const uint64_t bytes = (stop - first) * page;
        const bool done = commit ? memory_commit(b->data + first * page, bytes)
                                 : memory_release(b->data + first * page, bytes);
        if (!done) return no_memory(ctx, bytes);
        memset(b->committed.data + first, wanted, stop - first);
        ctx->buffer_bytes += commit ? bytes : 0 - bytes;
        b->committed_bytes += commit ? bytes : 0 - bytes;
        first = stop;
    }
    return KEEL_OK;
}

} // namespace keel_cpu

#include "reference/check.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>

namespace keel::reference {
namespace {

constexpr uint64_t alignment = 64;
// the most bytes of a buffer; for larger sizes, the system is not called
constexpr uint64_t most_bytes = uint64_t{1} << 40;

keel_status KEEL_CALL device_count(const keel_host *, uint32_t *n) {
    *n = 1;
    return KEEL_OK;
}

keel_status KEEL_CALL device_info(const keel_host *, uint32_t index, keel_device_info *out) {
    if (index != 0) return KEEL_E_NOT_FOUND;
    keel_device_info info = {};
    std::strncpy(info.name, "reference", sizeof(info.name) - 1);
    std::strncpy(info.vendor, "Keel", sizeof(info.vendor) - 1);
    info.type = KEEL_DEVICE_CPU;
    info.flags = KEEL_DEVICE_UNIFIED | KEEL_DEVICE_IMPORTS_HOST;
    keel_emit(out, &info, sizeof(info));
    return KEEL_OK;
}

keel_status KEEL_CALL ctx_create(const keel_host *host, const keel_ctx_desc *theirs,
                                 keel_ctx **out) {
    *out = nullptr;
    return guarded(nullptr, [&] {
        auto context = std::make_unique<Context>();
        keel_ctx_desc desc;
        if (keel_adopt(&context->host, sizeof(keel_host), host, sizeof(keel_header)) != KEEL_OK ||
            keel_adopt(&desc, sizeof(desc), theirs, sizeof(keel_header)) != KEEL_OK) {
            refuse(KEEL_E_VERSION, "");
        }
        if (desc.device != 0) refuse(KEEL_E_NOT_FOUND, "");
        context->their_host = host;
        *out = reinterpret_cast<keel_ctx *>(context.release());
    });
}

void KEEL_CALL ctx_destroy(keel_ctx *ctx) { delete reinterpret_cast<Context *>(ctx); }

void free_buffer(Context &context, Buffer *buffer) {
    if (buffer == nullptr) return;
    if (buffer->owned) {
        std::free(buffer->data);
        context.bytes -= buffer->size;
    }
    delete buffer;
}

keel_status KEEL_CALL buffer_create(keel_ctx *ctx, const keel_buffer_desc *theirs,
                                    keel_buffer **out) {
    *out = nullptr;
    return guarded(&of(ctx), [&] {
        keel_buffer_desc desc;
        need_that(keel_adopt(&desc, sizeof(desc), theirs, KEEL_PREFIX(keel_buffer_desc, kind)) ==
                      KEEL_OK,
                  "the buffer description has another ABI version or is too small");
        need_that(desc.size > 0, "expected a buffer of 1 byte or more, found 0 bytes");
        if (desc.kind > KEEL_BUFFER_RESERVE)
            refuse(KEEL_E_UNSUPPORTED, "the kind of the buffer is not known");
        auto buffer = std::make_unique<Buffer>();
        buffer->size = desc.size;
        buffer->kind = desc.kind;
        if (desc.kind == KEEL_BUFFER_IMPORT) {
            need_that(desc.host != nullptr,
                      "a buffer of kind IMPORT needs memory of the host, found NULL");
            buffer->data = static_cast<std::byte *>(desc.host);
        } else {
            // A RESERVE buffer is also plain memory, because the system allocates its pages when
            // they are first touched.
            if (desc.size > most_bytes)
                refuse(KEEL_E_OUT_OF_MEMORY, "the buffer is larger than the memory of any machine");
            const uint64_t rounded = (desc.size + alignment - 1) / alignment * alignment;
            buffer->data = static_cast<std::byte *>(std::aligned_alloc(alignment, rounded));
            if (buffer->data == nullptr) {
                refuse(KEEL_E_OUT_OF_MEMORY,
                       "not enough memory for a buffer of " + std::to_string(desc.size) + " bytes");
            }
            buffer->owned = true;
            of(ctx).bytes += desc.size;
        }
        *out = reinterpret_cast<keel_buffer *>(buffer.release());
    });
}

void KEEL_CALL buffer_destroy(keel_ctx *ctx, keel_buffer *buffer) {
    free_buffer(of(ctx), reinterpret_cast<Buffer *>(buffer));
}

void need_range(const Buffer &buffer, uint64_t offset, uint64_t n) {
    need_that(offset <= buffer.size && n <= buffer.size - offset,
              "the range does not fit into the buffer");
}

keel_status KEEL_CALL buffer_write(keel_ctx *ctx, keel_buffer *buffer, uint64_t offset,
                                   const void *src, uint64_t n) {
    return guarded(&of(ctx), [&] {
        need_range(of(buffer), offset, n);
        if (n != 0) std::memcpy(of(buffer).data + offset, src, n);
    });
}

keel_status KEEL_CALL buffer_read(keel_ctx *ctx, keel_buffer *buffer, uint64_t offset, void *dst,
                                  uint64_t n) {
    return guarded(&of(ctx), [&] {
        need_range(of(buffer), offset, n);
        if (n != 0) std::memcpy(dst, of(buffer).data + offset, n);
    });
}

keel_status KEEL_CALL flush(keel_ctx *ctx, uint64_t *ticket) {
    *ticket = ++of(ctx).tickets;
    return KEEL_OK;
}

keel_status KEEL_CALL wait(keel_ctx *ctx, uint64_t ticket) {
    return guarded(&of(ctx), [&] {
        need_that(ticket != 0 && ticket <= of(ctx).tickets,
                  "the ticket was not returned by an earlier flush");
    });
}

keel_status KEEL_CALL ctx_info(keel_ctx *, keel_ctx_info *out) {
    keel_ctx_info info = {};
    std::strncpy(info.description, "scalar float64, compute exact", sizeof(info.description) - 1);
    info.activation_dtype = KEEL_DTYPE_F32;
    info.sync = KEEL_SYNC_LAZY;
    info.buffer_align = alignment;
    info.weight_dtypes = 1U << KEEL_DTYPE_Q4_K | 1U << KEEL_DTYPE_Q5_K | 1U << KEEL_DTYPE_Q6_K;
    keel_emit(out, &info, sizeof(info));
    return KEEL_OK;
}

keel_status KEEL_CALL mem_info(keel_ctx *ctx, keel_mem_info *out) {
    keel_mem_info info = {};
    info.ours = of(ctx).bytes;
    keel_emit(out, &info, sizeof(info));
    return KEEL_OK;
}

keel_status KEEL_CALL buffer_map(keel_ctx *ctx, keel_buffer *buffer, void **out) {
    *out = nullptr;
    return guarded(&of(ctx), [&] {
        if (of(buffer).kind == KEEL_BUFFER_DEVICE)
            refuse(KEEL_E_UNSUPPORTED, "a buffer of kind DEVICE cannot be mapped");
        *out = of(buffer).data;
    });
}

keel_status KEEL_CALL buffer_commit(keel_ctx *ctx, keel_buffer *buffer, uint64_t offset, uint64_t n,
                                    uint32_t) {
    return guarded(&of(ctx), [&] {
        need_that(of(buffer).kind == KEEL_BUFFER_RESERVE, "the buffer is not of kind RESERVE");
        need_range(of(buffer), offset, n);
    });
}

} // namespace

void fill_memory_slots(keel_backend &table) {
    table.device_count = device_count;
    table.device_info = device_info;
    table.ctx_create = ctx_create;
    table.ctx_destroy = ctx_destroy;
    table.buffer_create = buffer_create;
    table.buffer_destroy = buffer_destroy;
    table.buffer_write = buffer_write;
    table.buffer_read = buffer_read;
    table.flush = flush;
    table.wait = wait;
    table.poll = wait; // every call has finished its work before it returns
    table.ctx_info = ctx_info;
    table.mem_info = mem_info;
    table.buffer_map = buffer_map;
    table.buffer_commit = buffer_commit;
}

} // namespace keel::reference

// Reads of a few bytes that stop nothing, and what the stream does unasked.
#include "opencl/ext/extensions.hpp"

#include <algorithm>
#include <string.h>

namespace keel_opencl {
namespace {

keel_status KEEL_CALL start(keel_ctx *ctx, keel_buffer *b, uint64_t offset, uint64_t n,
                            uint64_t *number) noexcept {
    *number = 0;
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "read_later");
        require_alive(*ctx);
        if (n == 0 || n > KEEL_READ_LATER_BYTES || offset > b->size || n > b->size - offset)
            refuse(ctx->host, KEEL_E_INVALID_ARG, "%llu bytes at %llu of a buffer of %llu are read later",
                   static_cast<unsigned long long>(n), static_cast<unsigned long long>(offset),
                   static_cast<unsigned long long>(b->size));
        LaterReads &later = ctx->later;
        const auto free =
            std::find_if(later.reads.begin(), later.reads.end(), [](const auto &r) { return r.number == 0; });
        if (free == later.reads.end())
            refuse(ctx->host, KEEL_E_UNSUPPORTED, "%d reads are under way", KEEL_READ_LATER_MOST);
        give_to_device(*ctx);
        ctx->queued = true;
        cl_event event = nullptr;
        check(ctx->host,
              clEnqueueReadBuffer(ctx->queue.get(), b->memory.get(), CL_FALSE, offset, n,
                                  later.mail.data() + (free - later.reads.begin()) * KEEL_READ_LATER_BYTES, 0,
                                  nullptr, &event),
              "clEnqueueReadBuffer");
        free->done.reset(event);
        free->bytes = n;
        free->number = *number = ++later.last;
    });
}

keel_status KEEL_CALL finish(keel_ctx *ctx, uint64_t number, void *dst) noexcept {
    return guarded(ctx->host, [&] {
        LaterReads &later = ctx->later;
        const auto at = std::find_if(later.reads.begin(), later.reads.end(),
                                     [&](const auto &r) { return number != 0 && r.number == number; });
        if (at == later.reads.end())
            refuse(ctx->host, KEEL_E_INVALID_ARG, "read %llu is not under way",
                   static_cast<unsigned long long>(number));
        const Event done = std::move(at->done);
        at->number = 0; // a place that is used again before the copy is done is written again behind it
        need_no_recording(*ctx, "read_later");
        if (dst == nullptr) return;
        wait_for(*ctx, done.get(), "clEnqueueReadBuffer");
        memcpy(dst, later.mail.data() + (at - later.reads.begin()) * KEEL_READ_LATER_BYTES, at->bytes);
    });
}

keel_status KEEL_CALL counts(keel_ctx *ctx, keel_stream_counts *out) noexcept {
    keel_stream_counts now = make_out<keel_stream_counts>();
    now.submits = ctx->own_submits;
    now.waits = ctx->own_waits;
    keel_emit(out, &now, sizeof now);
    return KEEL_OK;
}

} // namespace

const keel_read_later read_later = {KEEL_HEADER(keel_read_later), start, finish, nullptr};
const keel_stream_counts_table stream_counts = {KEEL_HEADER(keel_stream_counts_table), counts};

} // namespace keel_opencl

// Reads of a few bytes that stop nothing, and what the stream does unasked.
#include "vulkan/ext/extensions.hpp"

#include <algorithm>
#include <cstring>

namespace keel_vulkan {

uint64_t Stream::start_read(const Range &from, uint64_t offset, uint64_t n) {
    require_alive();
    const auto free =
        std::find_if(later_.begin(), later_.end(), [](const LaterRead &l) { return l.number == 0; });
    if (free == later_.end()) return 0;
    if (mail_.block == nullptr)
        mail_ = memory_->take(MemoryUse::download, uint64_t{KEEL_READ_LATER_MOST} * KEEL_READ_LATER_BYTES);
    copy(from, offset, mail_, static_cast<uint64_t>(free - later_.begin()) * KEEL_READ_LATER_BYTES, n);
    *free = {++reads_, last_ + 1, n}; // the next submission has it
    return free->number;
}

bool Stream::finish_read(uint64_t number, void *to) {
    const auto read = std::find_if(later_.begin(), later_.end(),
                                   [&](const LaterRead &l) { return number != 0 && l.number == number; });
    if (read == later_.end()) return false;
    const LaterRead found = *read;
    *read = {}; // a place that is used again before the copy is done is written again behind it
    if (to == nullptr) return true;
    require_alive();
    if (found.value > submitted_) submit(++last_);
    wait_value(found.value);
    std::memcpy(to, mail_.mapped() + (read - later_.begin()) * KEEL_READ_LATER_BYTES, found.bytes);
    return true;
}

namespace {

keel_status KEEL_CALL start(keel_ctx *ctx, keel_buffer *b, uint64_t offset, uint64_t n,
                            uint64_t *number) noexcept {
    *number = 0;
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "read_later");
        if (!ctx->reads_later)
            refuse(ctx->host, KEEL_E_UNSUPPORTED,
                   "nothing is read later on this device (parameter read_later)");
        if (n == 0 || n > KEEL_READ_LATER_BYTES || offset > b->size || n > b->size - offset)
            refuse(ctx->host, KEEL_E_INVALID_ARG, "%llu bytes at %llu of a buffer of %llu are read later",
                   static_cast<unsigned long long>(n), static_cast<unsigned long long>(offset),
                   static_cast<unsigned long long>(b->size));
        *number = ctx->stream.start_read(b->range, offset, n);
        if (*number == 0)
            refuse(ctx->host, KEEL_E_UNSUPPORTED, "%d reads are under way", KEEL_READ_LATER_MOST);
        check_messages(ctx, "read_later");
    });
}

keel_status KEEL_CALL finish(keel_ctx *ctx, uint64_t number, void *dst) noexcept {
    return guarded(ctx->host, [&] {
        if (ctx->recording != nullptr) ctx->stream.finish_read(number, nullptr); // free in any case
        need_no_recording(*ctx, "read_later");
        if (!ctx->stream.finish_read(number, dst))
            refuse(ctx->host, KEEL_E_INVALID_ARG, "read %llu is not under way",
                   static_cast<unsigned long long>(number));
        check_messages(ctx, "read_later");
    });
}

int32_t KEEL_CALL serves(keel_ctx *ctx) noexcept {
    return ctx->reads_later ? 1 : 0;
}

keel_status KEEL_CALL counts(keel_ctx *ctx, keel_stream_counts *out) noexcept {
    keel_stream_counts now = make_out<keel_stream_counts>();
    now.submits = ctx->stream.own().submits;
    now.waits = ctx->stream.own().waits;
    keel_emit(out, &now, sizeof now);
    return KEEL_OK;
}

} // namespace

const keel_read_later read_later = {KEEL_HEADER(keel_read_later), start, finish, serves};
const keel_stream_counts_table stream_counts = {KEEL_HEADER(keel_stream_counts_table), counts};

} // namespace keel_vulkan

// Reads of a few bytes while the stream continues to run (keel.read_later/1). Also counts
// submissions and waits that the core did not request.
#include "vulkan/ops/ops.hpp"

#include <algorithm>
#include <cstring>

namespace keel_vulkan {

uint64_t Stream::start_read(const Range &from, uint64_t offset, uint64_t n) {
    require_alive();
    const auto free = std::find_if(later_.begin(), later_.end(),
                                   [](const LaterRead &l) { return l.number == 0; });
    if (free == later_.end()) return 0;
    if (mail_.block == nullptr)
        mail_ = memory_->take(MemoryUse::download,
                              uint64_t{KEEL_READ_LATER_MOST} * KEEL_READ_LATER_BYTES);
    copy(from, offset, mail_, static_cast<uint64_t>(free - later_.begin()) * KEEL_READ_LATER_BYTES,
         n);
    *free = {++reads_, last_ + 1, n}; // the next submission contains this copy
    return free->number;
}

bool Stream::finish_read(uint64_t number, void *to) {
    const auto read = std::find_if(later_.begin(), later_.end(), [&](const LaterRead &l) {
        return number != 0 && l.number == number;
    });
    if (read == later_.end()) return false;
    const LaterRead found = *read;
    // A new read can reuse the place before this copy is done, because the new copy is queued after
    // this copy.
    *read = {};
    if (to == nullptr) return true;
    require_alive();
    if (found.value > submitted_) submit(++last_);
    wait_value(found.value);
    std::memcpy(to, mail_.mapped() + (read - later_.begin()) * KEEL_READ_LATER_BYTES, found.bytes);
    return true;
}

bool reads_later(const keel_ctx &ctx) { return ctx.reads_later; }

uint64_t start_read(keel_ctx &ctx, keel_buffer &b, uint64_t offset, uint64_t n) {
    const uint64_t number = ctx.stream.start_read(b.range, offset, n);
    check_messages(&ctx, "read_later");
    return number;
}

bool finish_read(keel_ctx &ctx, uint64_t number, void *to) {
    const bool found = ctx.stream.finish_read(number, to);
    check_messages(&ctx, "read_later");
    return found;
}

void count_stream(const keel_ctx &ctx, keel_stream_counts &counts) {
    counts.submits = ctx.stream.own().submits;
    counts.waits = ctx.stream.own().waits;
}

} // namespace keel_vulkan

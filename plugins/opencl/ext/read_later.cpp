// Reads of a few bytes while the queue continues to run (keel.read_later/1). Also counts
// submissions and waits that the core did not request.
#include "opencl/ops/ops.hpp"

#include <algorithm>
#include <string.h>

namespace keel_opencl {
namespace {

LaterReads::Read *read_of(LaterReads &later, uint64_t number) {
    const auto at = std::find_if(later.reads.begin(), later.reads.end(),
                                 [&](const auto &r) { return r.number == number; });
    return at != later.reads.end() ? &*at : nullptr;
}

unsigned char *mail_of(LaterReads &later, const LaterReads::Read *read) {
    return later.mail.data() + (read - later.reads.data()) * KEEL_READ_LATER_BYTES;
}

} // namespace

bool reads_later(const keel_ctx &) { return true; }

uint64_t start_read(keel_ctx &ctx, keel_buffer &b, uint64_t offset, uint64_t n) {
    require_alive(ctx);
    LaterReads::Read *free = read_of(ctx.later, 0);
    if (free == nullptr) return 0;
    give_to_device(ctx);
    ctx.queued = true;
    cl_event event = nullptr;
    check(ctx.host,
          clEnqueueReadBuffer(ctx.queue.get(), b.memory.get(), CL_FALSE, offset, n,
                              mail_of(ctx.later, free), 0, nullptr, &event),
          "clEnqueueReadBuffer");
    free->done.reset(event);
    free->bytes = n;
    return free->number = ++ctx.later.last;
}

bool finish_read(keel_ctx &ctx, uint64_t number, void *to) {
    LaterReads::Read *read = number != 0 ? read_of(ctx.later, number) : nullptr;
    if (read == nullptr) return false;
    const Event done = std::move(read->done);
    // The place of this read is free now. A new read can reuse the place before this copy is done,
    // because the new copy is queued after this copy.
    read->number = 0;
    if (to == nullptr) return true;
    wait_for(ctx, done.get(), "clEnqueueReadBuffer");
    memcpy(to, mail_of(ctx.later, read), read->bytes);
    return true;
}

void count_stream(const keel_ctx &ctx, keel_stream_counts &counts) {
    counts.submits = ctx.own_submits;
    counts.waits = ctx.own_waits;
}

} // namespace keel_opencl

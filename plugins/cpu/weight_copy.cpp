#include "weight_copy.hpp"

#include "weight_slab.hpp"
#include "weights.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace keel_cpu {
namespace {

constexpr uint64_t least_bytes = 1 << 20; // less is soon read from anywhere

// A file that holds one number; false for "max" and for a file that is not there.
bool read_number(const char *path, uint64_t &value) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    char text[32];
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0 || text[0] < '0' || text[0] > '9') return false;
    text[n] = 0;
    value = strtoull(text, nullptr, 10);
    return true;
}

// A mapped file's pages can be given up when memory is short, a copy cannot: an eighth of all memory stays free, and in a container with a
// limit what that leaves.
bool room_for(uint64_t bytes) {
    uint64_t total = 0, available = 0, limit = 0, used = 0;
    system_memory(total, available);
    if (read_number("/sys/fs/cgroup/memory.max", limit) && limit < total &&
        read_number("/sys/fs/cgroup/memory.current", used)) {
        total = limit;
        const uint64_t left = limit > used ? limit - used : 0;
        available = left < available ? left : available;
    }
    return available >= total / 8 && available - total / 8 >= bytes;
}

// From here on weights are read from the file: the rest of a model is not to be copied here and there.
keel_status stop_copying(keel_ctx *ctx) {
    ctx->host->log(ctx->host, KEEL_LOG_WARN,
                   "copy: auto: no more 16-bit weights are copied into large pages, less than an eighth of "
                   "memory would stay free; they are read from the mapped file, decoding is slower");
    ctx->copy = Copy::off;
    return KEEL_OK;
}

} // namespace

keel_status copy_rows(keel_ctx *ctx, keel_weight *w) noexcept {
    auto *list = reinterpret_cast<RowSource *>(w->sources.data);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->view.n_sources; ++i)
        bytes += static_cast<uint64_t>(list[i].stride * list[i].rows);
    if (ctx->copy == Copy::off || (ctx->copy == Copy::automatic && bytes < least_bytes)) return KEEL_OK;
    if (ctx->copy == Copy::automatic && !room_for(bytes)) return stop_copying(ctx);
    w->packed = weight_alloc(ctx, bytes, w->slab);
    if (w->packed.data == nullptr) {
        if (ctx->copy == Copy::automatic) return stop_copying(ctx);
        return fail(ctx->host, KEEL_E_OUT_OF_MEMORY,
                    "no memory for a copy of a weight of %llu bytes; copy: off reads the file's",
                    static_cast<unsigned long long>(bytes));
    }
    uint8_t *to = w->packed.data;
    for (uint32_t i = 0; i < w->view.n_sources; ++i) {
        const int64_t n = list[i].stride * list[i].rows;
        const uint8_t *from = list[i].data;
        const keel_status status =
            parallel(ctx, workers_for(ctx, static_cast<uint64_t>(n)), [&](const Team &team) {
                const Range r = share(n, 64, team);
                memcpy(to + r.begin, from + r.begin, static_cast<size_t>(r.end - r.begin));
            });
        if (status != KEEL_OK) return status;
        list[i].data = to;
        to += n;
    }
    return ctx->host->cancelled(ctx->host) != 0 ? KEEL_E_CANCELLED : KEEL_OK;
}

} // namespace keel_cpu

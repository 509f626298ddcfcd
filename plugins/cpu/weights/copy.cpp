#include "cpu/weights/copy.hpp"

#include "cpu/weights/slab.hpp"
#include "cpu/weights/weights.hpp"

#include <stdio.h>
#include <string.h>

namespace keel_cpu {
namespace {

// A smaller weight is not copied, because the copy would not make it noticeably faster.
constexpr uint64_t least_bytes = 1 << 20;

// Returns the reason why `copy: auto` does not copy another `bytes` bytes. Returns NULL if it
// copies them.
const char *hindrance(uint64_t bytes) {
    uint64_t total = 0, available = 0;
    system_memory(total, available);
    switch (room_for(bytes, total, available, "/proc/self/cgroup", "/sys/fs/cgroup")) {
    case Room::enough: return nullptr;
    case Room::none: return "less than an eighth of memory would stay free";
    case Room::unknown: break;
    }
    return "the total and the free memory are unknown (copy: on copies without this check)";
}

// Switches copying off for the rest of the model: all later weights are read from the file, even if
// a later weight would fit the memory.
keel_status stop_copying(keel_ctx *ctx, const char *why) {
    char text[300];
    snprintf(text, sizeof text,
             "copy: auto: from now on 16-bit weights are not copied into large pages: %s; they are "
             "read from the mapped file, so decoding is slower",
             why);
    ctx->host->log(ctx->host, KEEL_LOG_WARN, text);
    ctx->copy = Copy::off;
    return KEEL_OK;
}

} // namespace

keel_status copy_rows(keel_ctx *ctx, keel_weight *w) noexcept {
    auto *list = reinterpret_cast<RowSource *>(w->sources.data);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < w->view.n_sources; ++i)
        bytes += static_cast<uint64_t>(list[i].stride * list[i].rows);
    if (ctx->copy == Copy::off || (ctx->copy == Copy::automatic && bytes < least_bytes))
        return KEEL_OK;
    const char *why = ctx->copy == Copy::automatic ? hindrance(bytes) : nullptr;
    if (why != nullptr) return stop_copying(ctx, why);
    w->packed = weight_alloc(ctx, bytes, w->slab);
    if (w->packed.data == nullptr) {
        if (ctx->copy == Copy::automatic) return stop_copying(ctx, "there is no memory for them");
        return fail(ctx->host, KEEL_E_OUT_OF_MEMORY,
                    "no memory for a copy of a weight of %llu bytes; set copy: off to read the "
                    "weight from the file",
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

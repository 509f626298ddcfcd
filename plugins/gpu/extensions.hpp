// The extensions that both GPU backends implement (keel/ext/draft): their function tables, and the
// code that does not depend on the device's API. Only the backend's plugin.cpp includes this file,
// after its own ops/ops.hpp.
//
// The backend's namespace must define these functions. On errors they throw Refusal, except
// destroy_recording, which does not fail.
//   keel.timestamps/1
//     time_ops(ctx, on)                switches timing on or off; drops times that were not read
//     times_ops(ctx)                   returns true while timing is on
//     read_times(ctx, ..., capacity)   moves the times of finished ops out; returns their number
//     device_time(ctx)                 returns the device's clock in ns
//   keel.replay/1
//     start_recording(ctx)             returns the recording
//     end_recording(ctx, recording, wanted)   wanted false: the recording will be discarded
//     submit_recording(ctx, recording) queues the recorded step
//     destroy_recording(ctx, recording)
//     recording_kind                   says how a step is recorded, as text for users
//   keel.read_later/1, keel.stream_counts/1
//     reads_later(ctx)                 returns true if this context supports keel.read_later
//     start_read(ctx, buffer, offset, n)   returns the read's number, or 0 if too many are pending
//     finish_read(ctx, number, to)     returns false if there is no such read; if `to` is NULL,
//                                      frees the number without waiting
//     count_stream(ctx, counts)        fills the counters
#pragma once

#include "gpu/batched_decode.hpp"

#include <keel/ext/draft/read_later.h>
#include <keel/ext/draft/replay.h>
#include <keel/ext/draft/stream_counts.h>
#include <keel/ext/draft/timestamps.h>

#include <utility>

namespace keel_gpu {

// ---- keel.timestamps/1 ----

inline keel_status KEEL_CALL times_enable(keel_ctx *ctx, uint32_t on) noexcept {
    return guarded(ctx->host, [&] { backend::time_ops(*ctx, on != 0); });
}

inline keel_status KEEL_CALL times_read(keel_ctx *ctx, uint64_t *number, uint64_t *begin_ns,
                                        uint64_t *end_ns, uint32_t capacity, uint32_t *n) noexcept {
    *n = 0;
    return guarded(ctx->host,
                   [&] { *n = backend::read_times(*ctx, number, begin_ns, end_ns, capacity); });
}

inline keel_status KEEL_CALL times_now(keel_ctx *ctx, uint64_t *ns) noexcept {
    *ns = 0;
    return guarded(ctx->host, [&] { *ns = backend::device_time(*ctx); });
}

constexpr keel_timestamps timestamps = {KEEL_HEADER(keel_timestamps), times_enable, times_read,
                                        times_now};

// ---- keel.replay/1 ----

inline keel_status KEEL_CALL replay_begin(keel_ctx *ctx) noexcept {
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "another recording");
        if (backend::times_ops(*ctx))
            refuse(ctx->host, KEEL_E_UNSUPPORTED, "a step cannot be recorded while ops are timed");
        ctx->recording = backend::start_recording(*ctx);
    });
}

inline keel_status KEEL_CALL replay_end(keel_ctx *ctx, keel_recording **out) noexcept {
    if (out != nullptr) *out = nullptr;
    return guarded(ctx->host, [&] {
        if (ctx->recording == nullptr)
            refuse(ctx->host, KEEL_E_INVALID_ARG, "no step is being recorded");
        auto recording = std::exchange(ctx->recording, nullptr);
        backend::end_recording(*ctx, recording, out != nullptr);
        if (out != nullptr) *out = recording.release();
    });
}

inline keel_status KEEL_CALL replay_submit(keel_ctx *ctx, keel_recording *recording) noexcept {
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "submitting a recording");
        backend::submit_recording(*ctx, *recording);
    });
}

inline void KEEL_CALL replay_destroy(keel_ctx *ctx, keel_recording *recording) noexcept {
    if (recording != nullptr) backend::destroy_recording(*ctx, recording);
}

// ---- keel.read_later/1, keel.stream_counts/1 ----

inline keel_status KEEL_CALL read_start(keel_ctx *ctx, keel_buffer *b, uint64_t offset, uint64_t n,
                                        uint64_t *number) noexcept {
    *number = 0;
    return guarded(ctx->host, [&] {
        need_no_recording(*ctx, "read_later");
        if (!backend::reads_later(*ctx))
            refuse(ctx->host, KEEL_E_UNSUPPORTED,
                   "the extension keel.read_later/1 is turned off on this device (parameter "
                   "read_later)");
        if (n == 0 || n > KEEL_READ_LATER_BYTES || offset > b->size || n > b->size - offset)
            refuse(ctx->host, KEEL_E_INVALID_ARG,
                   "read_later: %llu bytes at offset %llu do not fit into one read, or into a "
                   "buffer of %llu bytes",
                   static_cast<unsigned long long>(n), static_cast<unsigned long long>(offset),
                   static_cast<unsigned long long>(b->size));
        *number = backend::start_read(*ctx, *b, offset, n);
        if (*number == 0)
            refuse(ctx->host, KEEL_E_UNSUPPORTED, "read_later: all %d reads are in use",
                   KEEL_READ_LATER_MOST);
    });
}

inline keel_status KEEL_CALL read_finish(keel_ctx *ctx, uint64_t number, void *dst) noexcept {
    return guarded(ctx->host, [&] {
        // The number of the read becomes free even if this call fails.
        if (ctx->recording != nullptr) backend::finish_read(*ctx, number, nullptr);
        need_no_recording(*ctx, "read_later");
        if (!backend::finish_read(*ctx, number, dst))
            refuse(ctx->host, KEEL_E_INVALID_ARG, "read_later: there is no unfinished read %llu",
                   static_cast<unsigned long long>(number));
    });
}

inline int32_t KEEL_CALL read_serves(keel_ctx *ctx) noexcept {
    return backend::reads_later(*ctx) ? 1 : 0;
}

constexpr keel_read_later read_later = {KEEL_HEADER(keel_read_later), read_start, read_finish,
                                        read_serves};

inline keel_status KEEL_CALL stream_read(keel_ctx *ctx, keel_stream_counts *out) noexcept {
    keel_stream_counts counts = make_out<keel_stream_counts>();
    backend::count_stream(*ctx, counts);
    keel_emit(out, &counts, sizeof counts);
    return KEEL_OK;
}

constexpr keel_stream_counts_table stream_counts = {KEEL_HEADER(keel_stream_counts_table),
                                                    stream_read};

// ---- all extensions ----

constexpr keel_batched_decode batched_decode = make_batched_decode();

// Returns the function table of the extension `id`. Returns NULL for an unknown name.
inline const void *KEEL_CALL extension(const char *id) noexcept {
    static const keel_replay replay = {
        KEEL_HEADER(keel_replay), replay_begin,           replay_end, replay_submit,
        replay_destroy,           backend::recording_kind};
    if (keel_same(id, KEEL_EXT_TIMESTAMPS) != 0) return &timestamps;
    if (keel_same(id, KEEL_EXT_REPLAY) != 0) return &replay;
    if (keel_same(id, KEEL_EXT_BATCHED_DECODE) != 0) return &batched_decode;
    if (keel_same(id, KEEL_EXT_READ_LATER) != 0) return &read_later;
    if (keel_same(id, KEEL_EXT_STREAM_COUNTS) != 0) return &stream_counts;
    return nullptr;
}

} // namespace keel_gpu

/* keel.read_later/1 (draft): the host reads a few bytes while the device runs later work.
 *
 * keel_backend.buffer_read waits for all queued work. So if the host reads each token with
 * buffer_read, the device has no work during the read. With this extension, a read is queued in the
 * stream like an op, and the host waits only for work that was queued before the read. The host can
 * queue the next step first and look at the token afterwards.
 *
 * A backend's keel_plugin.get_extension("keel.read_later/1") returns a keel_read_later. A backend
 * offers it if its stream runs in parallel with the host. If the ops of a backend are done when
 * their call returns, the extension has no benefit, and the backend does not offer it. The core
 * queues a step before it knows the last token only on backends with this extension.
 *
 * EXAMPLE. argmax_rows writes a token to `token`, and embed of the next step reads it there:
 *
 *     queue_step(ctx, 0);
 *     uint64_t number;
 *     table->start(ctx, token, 0, 4, &number);          // a copy after step 0
 *     queue_step(ctx, 1);
 *     int32_t id;
 *     table->finish(ctx, number, &id);                  // waits for step 0, not for step 1
 *
 * Everything here exists since the draft. */
#ifndef KEEL_EXT_READ_LATER_H
#define KEEL_EXT_READ_LATER_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_READ_LATER "keel.read_later/1"

/* The most bytes of one read, and the most reads that may be between start and finish at the same
 * time. */
enum keel_read_later_limits_e { KEEL_READ_LATER_BYTES = 64,
                                KEEL_READ_LATER_MOST = 16 };

/* The functions of this extension. Members up to `finish` are required and must not be NULL. */
typedef struct keel_read_later {
    keel_header h;
    /* Queues a copy of n bytes (1 to KEEL_READ_LATER_BYTES) from `offset` of the buffer. The copy
     * has the bytes of this point of the stream. *number identifies the read until finish. It is
     * never 0. The buffer may be destroyed before finish, because buffer_destroy waits for queued
     * work. On an error, *number is 0 and nothing is queued. KEEL_E_UNSUPPORTED:
     * KEEL_READ_LATER_MOST reads wait for their finish, or `serves` returns 0. KEEL_E_INVALID_ARG:
     * n or the range is wrong, or a recording has begun (keel_replay) and has not ended.
     * Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *start)(keel_ctx *, keel_buffer *, uint64_t offset, uint64_t n,
                                  uint64_t *number);
    /* Waits until the copy is done and writes its bytes to `dst`. If no flush has submitted the
     * copy, finish submits it. finish does not wait for work that was queued after the read. If dst
     * is NULL, finish discards the read without waiting. After finish, even after an error, the
     * number may be used for another read. On an error, `dst` does not change. KEEL_E_INVALID_ARG:
     * start did not return this number, the read is already finished, or a recording has begun
     * (keel_replay) and has not ended. KEEL_E_DEVICE_LOST: the device is lost. Thread: one call
     * at a time on a context. */
    keel_status(KEEL_CALL *finish)(keel_ctx *, uint64_t number, void *dst);
    /* Returns 1 if this context supports the extension. Returns 0 if the extension would make the
     * device slower, or if a parameter turns the extension off. The answer does not change during
     * the lifetime of the context. If `serves` is NULL, all contexts support the extension.
     * Thread: one call at a time on a context. */
    int32_t(KEEL_CALL *serves)(keel_ctx *);
} keel_read_later;

#ifdef __cplusplus
}
#endif
#endif

/* keel.timestamps/1 (draft): when the device began and ended each op.
 *
 * The core uses this extension for traces. In a trace the device has its own time line.
 *
 * A backend's keel_plugin.get_extension("keel.timestamps/1") returns a keel_timestamps.
 *
 * EXAMPLE. The times of the first ops:
 *
 *     uint64_t number[64], begin[64], end[64];
 *     uint32_t n;
 *     table->enable(ctx, 1);
 *     queue_ops(ctx);
 *     backend->flush(ctx, &ticket), backend->wait(ctx, ticket);
 *     table->read(ctx, number, begin, end, 64, &n);   // op number[i] ran from begin[i] to end[i]
 *     table->enable(ctx, 0);
 *
 * Everything here exists since the draft. */
#ifndef KEEL_EXT_TIMESTAMPS_H
#define KEEL_EXT_TIMESTAMPS_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_TIMESTAMPS "keel.timestamps/1"

/* The functions of this extension. Members up to `read` are required and must not be NULL. */
typedef struct keel_timestamps {
    keel_header h;
    /* on 1: ops that are queued from now on are timed. The first one has number 1. Times that the
     * host has not read are dropped. on 0: ops are not timed any longer. Ops can be slower while
     * they are timed. KEEL_E_UNSUPPORTED: this device has no clock. Thread: one call at a time
     * on a context. */
    keel_status(KEEL_CALL *enable)(keel_ctx *, uint32_t on);
    /* Writes the times of finished ops to the arrays, and then deletes these times. read does not
     * wait. The arrays have `capacity` entries; *n is the number of entries written. The entries
     * are in the order of rising op numbers. An op that was not timed is left out.
     * - number[i]: number of the op. The first op after enable(1) has number 1.
     * - begin_ns[i], end_ns[i]: nanoseconds on the device's clock, which can differ from the
     *   host's. If an op has several kernels: the begin of the first one and the end of the last
     *   one.
     * Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *read)(keel_ctx *, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                                 uint32_t capacity, uint32_t *n);
    /* Writes the present time of the device's clock, in nanoseconds. A trace uses this time to
     * relate the device's times to the host's times. If `now` is NULL or returns
     * KEEL_E_UNSUPPORTED, the clock cannot be read. The core then assumes that the last op ended
     * when the wait for it ended. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *now)(keel_ctx *, uint64_t *ns);
} keel_timestamps;

#ifdef __cplusplus
}
#endif
#endif

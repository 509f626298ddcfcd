/* keel.timestamps/1 (draft): when the device began and ended each op, for a trace with the
 * device's own time line.
 *
 * A backend's keel_plugin.get_extension("keel.timestamps/1") returns a keel_timestamps. */
#ifndef KEEL_EXT_TIMESTAMPS_H
#define KEEL_EXT_TIMESTAMPS_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_TIMESTAMPS "keel.timestamps/1"

/* The table. Required up to `read`. */
typedef struct keel_timestamps {
    keel_header h;
    /* on 1: ops queued from now on are timed and numbered from 1; times not read yet are
     * dropped. 0: no longer. May cost speed while on. KEEL_E_UNSUPPORTED: this device has no
     * clock. since draft. [ctx] */
    keel_status(KEEL_CALL *enable)(keel_ctx *, uint32_t on);
    /* Moves the times of ops that are done to the arrays, `capacity` long, by rising number; *n
     * is how many. number[i]: of the op, counted from 1: calls of the op table that were queued
     * since enable(1). begin_ns[i], end_ns[i]: on the device's clock, which need not be the
     * host's; an op made of several kernels lasts from the first one's begin to the last one's
     * end. Does not wait. An op that was not timed is left out. since draft. [ctx] */
    keel_status(KEEL_CALL *read)(keel_ctx *, uint64_t *number, uint64_t *begin_ns, uint64_t *end_ns,
                                 uint32_t capacity, uint32_t *n);
    /* The device's clock at this moment, to lay its time line over the host's. NULL or
     * KEEL_E_UNSUPPORTED: it cannot be read, and the core takes the end of the last op as the
     * end of the wait for it. since draft. [ctx] */
    keel_status(KEEL_CALL *now)(keel_ctx *, uint64_t *ns);
} keel_timestamps;

#ifdef __cplusplus
}
#endif
#endif

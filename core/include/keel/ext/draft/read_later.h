/* keel.read_later/1 (draft): a few bytes that the host reads while later work runs.
 *
 * A backend's keel_plugin.get_extension("keel.read_later/1") returns a keel_read_later.
 *
 * keel_backend.buffer_read waits for all that was queued, so a host that wants to look at a
 * token has to let the device run dry. Here the copy takes its place in the stream as an op
 * does, and whoever waits for it does not wait for what was queued behind it: the host queues a
 * step that goes by the token on the device (embed reads what argmax_rows wrote), then looks at
 * the token.
 *
 * A backend that serves this says with it that its stream runs beside the host. One whose ops
 * are done when their call returns has nothing to win and leaves it out: the host then queues no
 * step before it is known to be wanted. */
#ifndef KEEL_EXT_READ_LATER_H
#define KEEL_EXT_READ_LATER_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_READ_LATER "keel.read_later/1"

/* Bytes of one read at most, and reads that may be under way at once. */
enum keel_read_later_limits_e { KEEL_READ_LATER_BYTES = 64,
                                KEEL_READ_LATER_MOST = 16 };

/* The table. Required up to `finish`. */
typedef struct keel_read_later {
    keel_header h;
    /* Queues a copy of n bytes (1..KEEL_READ_LATER_BYTES) from offset, as they are when the
     * stream gets there. *number, never 0, names it until finish. KEEL_E_UNSUPPORTED, and
     * nothing is queued: KEEL_READ_LATER_MOST are under way, or `serves` says 0. Between
     * keel_replay's begin and end it is KEEL_E_INVALID_ARG. Where it fails *number is 0. The
     * buffer may be destroyed before finish: as with an op, what was queued is done first. since
     * draft. [ctx] */
    keel_status(KEEL_CALL *start)(keel_ctx *, keel_buffer *, uint64_t offset, uint64_t n,
                                  uint64_t *number);
    /* Waits until that copy is done, submitting it if no flush has, and puts its bytes to dst;
     * what was queued behind it need not be done. dst NULL: nobody wants it any more, nothing is
     * waited for. The number is free in any case, behind an error as well (KEEL_E_INVALID_ARG
     * between keel_replay's begin and end, KEEL_E_DEVICE_LOST: dst is untouched). One that start
     * did not give, or that was finished, is KEEL_E_INVALID_ARG. since draft. [ctx] */
    keel_status(KEEL_CALL *finish)(keel_ctx *, uint64_t number, void *dst);
    /* 0: not in this context, whose device would be slower with it or whose parameters say so;
     * the same as long as the context lives. NULL: in all of them. since draft. [ctx] */
    int32_t(KEEL_CALL *serves)(keel_ctx *);
} keel_read_later;

#ifdef __cplusplus
}
#endif
#endif

/* keel.replay/1 (draft): a step recorded once and submitted again, so that its ops are not
 * checked, planned and queued one by one each time.
 *
 * A backend's keel_plugin.get_extension("keel.replay/1") returns a keel_replay.
 *
 * WHAT A RECORDING HOLDS: the ops called between begin and end, with their args as they were:
 * the same buffers, offsets, shapes, strides, scalars, weights and plans each time it is
 * submitted. What varies from step to step lies in buffers and is read when the recording runs:
 * ids, positions, lengths, block tables. Of a keel_kv_view that is everything but max_length,
 * and k and v where an arena grew into other buffers. Grids and splits that a backend makes of
 * max_length are those of the recording; the host rounds it up to have one last.
 *
 * WHAT STAYS OUTSIDE: buffer_write, buffer_read, buffer_commit, flush and wait between begin and
 * end are the caller's fault (KEEL_E_INVALID_ARG). The host writes ids, positions and tables
 * first, then submits the recording: the stream's order holds.
 *
 * HOW LONG IT HOLDS: until it is destroyed, whatever else is planned or called in between:
 * memory of the backend's own that its ops use (scratch, params) stays with it. The host
 * destroys it before the buffers, weights and plans that it names, and records anew when an arg
 * changes. */
#ifndef KEEL_EXT_REPLAY_H
#define KEEL_EXT_REPLAY_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_REPLAY "keel.replay/1"

/* A recorded step. */
typedef struct keel_recording keel_recording;

/* The table. Required up to `destroy`. */
typedef struct keel_replay {
    keel_header h;
    /* From now on ops are recorded instead of queued; nothing runs. KEEL_E_UNSUPPORTED: not on
     * this device, or not now (while ops are timed, say). since draft. [ctx] */
    keel_status(KEEL_CALL *begin)(keel_ctx *);
    /* Ends it. *out: what was recorded. out NULL: it is thrown away, as after an op that failed.
     * Either way ops are queued again when this returns, with an error too. since draft. [ctx] */
    keel_status(KEEL_CALL *end)(keel_ctx *, keel_recording **out);
    /* Queues the recorded ops, in their order, as if they were called now. May be called again
     * before the first ones have run. since draft. [ctx] */
    keel_status(KEEL_CALL *submit)(keel_ctx *, keel_recording *);
    /* What was submitted runs all the same. NULL is fine. since draft. [ctx] */
    void(KEEL_CALL *destroy)(keel_ctx *, keel_recording *);
    /* For people, static: how it is done here ("a command buffer", "kernels with their arguments
     * set"). NULL is fine. since draft. */
    const char *how;
} keel_replay;

#ifdef __cplusplus
}
#endif
#endif

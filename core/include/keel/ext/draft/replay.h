/* keel.replay/1 (draft): a step is recorded once and submitted again.
 *
 * A decode step is the same list of ops for each token. If the backend submits a recording, it does
 * not check, plan and queue each op again.
 *
 * A backend's keel_plugin.get_extension("keel.replay/1") returns a keel_replay.
 *
 * WHAT A RECORDING HOLDS. A recording holds the ops that were called between begin and end, with
 * their args: buffers, offsets, shapes, strides, numbers, weights and plans. These do not change
 * between submits. The data that changes from step to step is in buffers, and the ops read this
 * data when they run: ids, positions, lengths, block tables. Two things of a keel_kv_view are not
 * in buffers (kv.h): max_length, and the tensors k and v if an arena grew into other buffers. A
 * backend can choose launch sizes by max_length, so the host rounds max_length up. Then a recording
 * is valid for many steps.
 *
 * WHAT IS NOT RECORDED. Between begin and end, the functions buffer_write, buffer_read,
 * buffer_commit, flush and wait return KEEL_E_INVALID_ARG. The host first writes ids, positions and
 * tables, and then submits the recording. The stream keeps this order.
 *
 * HOW LONG IT IS VALID. A recording is valid until it is destroyed. Plans and calls of the host in
 * the meantime do not change this. The backend keeps its own memory that the recorded ops use, such
 * as scratch and parameters. The host destroys the recording before the buffers, weights and plans
 * that it names. If an arg changes, the host makes a new recording.
 *
 * EXAMPLE.
 *
 *     keel_recording *step;
 *     table->begin(ctx);
 *     queue_ops_of_a_step(ctx);
 *     table->end(ctx, &step);
 *     for (int i = 0; i < n; ++i) {
 *         backend->buffer_write(ctx, positions, 0, &position[i], 4);
 *         table->submit(ctx, step);
 *     }
 *     table->destroy(ctx, step);
 *
 * Everything here exists since the draft. */
#ifndef KEEL_EXT_REPLAY_H
#define KEEL_EXT_REPLAY_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_REPLAY "keel.replay/1"

/* A recorded step. end makes it, destroy frees it. Only the backend knows what is inside. */
typedef struct keel_recording keel_recording;

/* The functions of this extension. Members up to `destroy` are required and must not be NULL. */
typedef struct keel_replay {
    keel_header h;
    /* Begins a recording. From now on, ops are recorded; they are not queued and do not run.
     * KEEL_E_UNSUPPORTED: this device cannot record, or cannot record now, for example while ops
     * are timed. KEEL_E_INVALID_ARG: another recording has begun and has not ended. Thread: one
     * call at a time on a context. */
    keel_status(KEEL_CALL *begin)(keel_ctx *);
    /* Ends the recording and writes it to *out. If `out` is NULL, the recording is discarded, for
     * example after an op that failed. After this call, even after an error, ops are queued again.
     * KEEL_E_INVALID_ARG: no recording has begun. Thread: one call at a time on a context. */
    keel_status(KEEL_CALL *end)(keel_ctx *, keel_recording **out);
    /* Queues the recorded ops in their order, as if the host called them now. The host may call
     * submit again before the ops of the previous submit have run. Thread: one call at a time
     * on a context. */
    keel_status(KEEL_CALL *submit)(keel_ctx *, keel_recording *);
    /* Frees a recording. Submitted work still runs. The argument may be NULL. Thread: one call
     * at a time on a context. */
    void(KEEL_CALL *destroy)(keel_ctx *, keel_recording *);
    /* How this backend records, as a text for people: "a command buffer", "kernels with their
     * arguments set". A static string, or NULL. */
    const char *how;
} keel_replay;

#ifdef __cplusplus
}
#endif
#endif

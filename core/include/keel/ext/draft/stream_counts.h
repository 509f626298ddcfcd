/* keel.stream_counts/1 (draft): how often a backend submits and waits without a request of the
 * core.
 *
 * The core counts its own calls of flush, wait and buffer_read. A backend can submit more often,
 * for example so that the device can begin, or because the memory for writes is full. It can also
 * wait in a call that does not have to wait, for example for that memory or for a command buffer.
 * This extension reports these submits and waits, so that Keel can show all submits and waits for
 * each token. A backend without such submits and waits does not offer the extension.
 *
 * A backend's keel_plugin.get_extension("keel.stream_counts/1") returns a keel_stream_counts_table.
 *
 * EXAMPLE.
 *
 *     keel_stream_counts counts = {KEEL_HEADER(keel_stream_counts)};
 *     if (table->read(ctx, &counts) == KEEL_OK) show(counts.submits, counts.waits);
 *
 * Everything here exists since the draft. */
#ifndef KEEL_EXT_STREAM_COUNTS_H
#define KEEL_EXT_STREAM_COUNTS_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_STREAM_COUNTS "keel.stream_counts/1"

/* Out-struct. Both numbers count from the opening of the context, and never fall. */
typedef struct keel_stream_counts {
    keel_header h;
    /* Submits that no call of flush, wait, buffer_read or keel.read_later/1 requested. */
    uint64_t submits;
    /* Waits in calls that do not have to wait. */
    uint64_t waits;
} keel_stream_counts;

/* The functions of this extension. Members up to `read` are required and must not be NULL. */
typedef struct keel_stream_counts_table {
    keel_header h;
    /* Fills *out. The function neither submits nor waits. Thread: one call at a time on a
     * context. */
    keel_status(KEEL_CALL *read)(keel_ctx *, keel_stream_counts *out);
} keel_stream_counts_table;

#ifdef __cplusplus
}
#endif
#endif

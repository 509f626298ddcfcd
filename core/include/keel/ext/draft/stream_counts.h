/* keel.stream_counts/1 (draft): what a backend's stream does of its own accord.
 *
 * A backend's keel_plugin.get_extension("keel.stream_counts/1") returns a
 * keel_stream_counts_table.
 *
 * The host counts its own flushes, waits and reads. A backend may submit more often (a long
 * chunk, so that the device begins; memory for writes that is full) and wait where nobody asked
 * it to (for that memory, or for a command buffer). Those are told here, so that "submits and
 * waits per token" are all there are. A backend that does neither leaves it out. */
#ifndef KEEL_EXT_STREAM_COUNTS_H
#define KEEL_EXT_STREAM_COUNTS_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_STREAM_COUNTS "keel.stream_counts/1"

/* Out-struct. Both only rise. */
typedef struct keel_stream_counts {
    keel_header h;
    /* since the context was opened, beside those that flush, wait, buffer_read or
     * keel.read_later/1 asked for */
    uint64_t submits;
    /* the same: times that a call which does not have to wait did */
    uint64_t waits;
} keel_stream_counts;

/* The table. Required up to `read`. */
typedef struct keel_stream_counts_table {
    keel_header h;
    /* Neither submits nor waits. since draft. [ctx] */
    keel_status(KEEL_CALL *read)(keel_ctx *, keel_stream_counts *out);
} keel_stream_counts_table;

#ifdef __cplusplus
}
#endif
#endif

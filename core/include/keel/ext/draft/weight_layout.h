/* keel.weight_layout/1 (draft): weights kept in a file as a backend laid them out, so that a later load has nothing to make.
 *
 * A backend's keel_plugin.get_extension("keel.weight_layout/1") returns a keel_weight_layout.
 *
 * weight_prepare takes a weight from rows as files hold them into the backend's own layout, at each load anew. With this table a host
 * can write those bytes to a file once (`keel quantize --layout native`) and hand them back: the backend uses the mapping in place, and
 * nothing is copied.
 *
 * A LAYOUT HAS A NAME, "cpu/interleaved-16/1": whose it is, what it is, and its version. The name, the dtype and the shape say all about
 * where a value stands; whatever changes that changes the name. The bytes come from a file, so they are hostile: sizes are checked, and
 * no content may lead out of them. A backend that is given a name that it does not read refuses with KEEL_E_UNSUPPORTED and a message that
 * tells which it reads; it never guesses.
 *
 * In all calls keel_weight_desc describes the weight as for weight_prepare, but the sources' mapping may be NULL: mapping, mapping_bytes
 * and offset are not looked at, dtype, rows, cols, join and use are. */
#ifndef KEEL_EXT_WEIGHT_LAYOUT_H
#define KEEL_EXT_WEIGHT_LAYOUT_H

#include "../../backend.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KEEL_EXT_WEIGHT_LAYOUT "keel.weight_layout/1"

/* Bytes of a layout's name with the NUL at its end. It has no spaces and no control characters. */
enum keel_weight_layout_limits_e { KEEL_WEIGHT_LAYOUT_NAME = 64 };

/* Out-struct. */
typedef struct keel_weight_layout_info {
    keel_header h;
    char name[KEEL_WEIGHT_LAYOUT_NAME]; /* "": weight_prepare reads rows in place, there is nothing to keep */
    uint64_t bytes;                     /* of the whole weight in that layout; 0 with an empty name */
    uint64_t align;                     /* a power of two: offset from the mapping's start at which `take` uses the bytes in place */
} keel_weight_layout_info;

/* A weight in a layout, as it lies in a mapped file. In-struct. */
typedef struct keel_laid_out {
    keel_header h;
    const char *name;       /* of the layout, NUL at the end; not NULL */
    const void *mapping;    /* start of the mapped file or memory block; read-only */
    uint64_t mapping_bytes; /* its whole size, so that a device can import it once */
    uint64_t offset;        /* of the weight's first byte in it */
    uint64_t bytes;         /* of the weight; offset + bytes <= mapping_bytes */
} keel_laid_out;

/* The table. Required up to `take`. */
typedef struct keel_weight_layout {
    keel_header h;
    /* What weight_prepare in this context makes of such a weight. KEEL_E_UNSUPPORTED where it would refuse it. since draft. [ctx] */
    keel_status(KEEL_CALL *describe)(keel_ctx *, const keel_weight_desc *, keel_weight_layout_info *out);
    /* Copies bytes offset .. offset + n of a prepared weight, as its layout has them, to dst, which the caller owns. KEEL_E_INVALID_ARG for
     * bytes beyond the weight's; KEEL_E_UNSUPPORTED for a weight whose description has no name. since draft. [ctx] */
    keel_status(KEEL_CALL *keep)(keel_ctx *, const keel_weight *, uint64_t offset, void *dst, uint64_t n);
    /* A weight out of bytes that were kept, of this layout or of another that the backend reads, at any offset: at one that is not aligned
     * as `describe` says the backend makes its own copy. *out is as from weight_prepare, and goes
     * with weight_destroy. weight_info.source_needed 1: the mapping is used in place, and stays until then; 0: the backend has its own copy.
     * KEEL_E_UNSUPPORTED: the name, or the dtype in it, is not one that this backend reads. KEEL_E_INVALID_ARG: the bytes are not as many
     * as the shape takes, or lie outside the mapping. May run long where it copies: looks at host->cancelled. since draft. [ctx] */
    keel_status(KEEL_CALL *take)(keel_ctx *, const keel_weight_desc *, const keel_laid_out *, keel_weight **out);
    /* Rows first .. first + count of the joined weight as files hold them, in the sources' dtype, to dst, which the caller owns and which
     * has count * keel_dtype_row_bytes(dtype, cols) bytes: the very bytes that the layout was made from. For an op that runs elsewhere, and to
     * convert a file back. Errors as of `take`. NULL: the layout cannot be undone. since draft. [ctx] */
    keel_status(KEEL_CALL *rows)(keel_ctx *, const keel_weight_desc *, const keel_laid_out *, int64_t first, int64_t count,
                                 void *dst);
} keel_weight_layout;

#ifdef __cplusplus
}
#endif
#endif

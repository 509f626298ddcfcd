/* Keel's plugin ABI: version, negotiation, statuses, the vocabulary that every other header
 * uses.
 *
 * The headers in this folder are all that a plugin includes. They are C11 and C++, need
 * <stddef.h> and <stdint.h> only, and nothing has to be linked.
 *
 * NEGOTIATION. Every struct begins with a keel_header. Each side adopts what the other hands
 * over by copy, with keel_adopt(): zero a struct of one's own layout, copy as many bytes as both
 * have, check the required prefix and the major version. So an older peer, a slot that was not
 * written and a newer peer are one case: a member that is NULL or zero, which means "absent".
 * Nobody compares sizes for equality, nobody tests versions anywhere else. Out-structs: the
 * caller zeroes them and writes the header; the callee writes at most struct_size bytes
 * (keel_emit()). Args structs: the caller writes the header; a callee reads members beyond its
 * own layout never, and members beyond struct_size as zero. Arrays of structs are arrays of
 * pointers, because a stride cannot grow.
 *
 * FEATURES. Args structs carry `uint64_t features`: bits that say which optional semantics are
 * in use. A callee that sees a bit it does not know returns KEEL_E_UNSUPPORTED and has no side
 * effect. So new meaning is never ignored.
 *
 * THREAD TAGS. Each prototype carries one:
 *   [init]  No other [init] call into the same plugin runs at the same time. [ctx] calls on
 *           other objects may run.
 *   [ctx]   The core serializes the calls on one object. The OS thread may change from call to
 *           call. Two objects may be used at once, so a plugin has no mutable globals.
 *   [any]   Any thread, concurrently.
 *   [task]  Inside a parallel_region body: only [any] calls, no nested region, no blocking but
 *           the region's barrier.
 *
 * OWNERSHIP. Who creates destroys, through the same table. Descriptors, vtables and strings in
 * them: static data of their side, valid while the library is mapped. Args structs and arrays:
 * the caller's, valid during the call. Strings are UTF-8 with a terminating NUL and are copied
 * by the receiver if kept. Memory never changes hands, but through keel_host.alloc and free. No
 * C++ type, exception, FILE*, errno or locale crosses the border. A plugin never prints, exits,
 * aborts or changes process state (FPU mode, signals, environment).
 *
 * GROWTH. Members are added at the end only, with a "since" note and a minor version; numbers
 * are never reused; new ideas come as extensions with string names ("keel.name/1") from
 * ext/draft/. The major is in the entry symbol's name; while it is 0 the ABI may still change
 * between releases. */
#ifndef KEEL_ABI_H
#define KEEL_ABI_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define KEEL_CALL __cdecl
#define KEEL_EXPORT __declspec(dllexport)
#else
#define KEEL_CALL
#define KEEL_EXPORT __attribute__((visibility("default")))
#endif

#define KEEL_ABI_MAJOR 0u
#define KEEL_ABI_MINOR 1u
#define KEEL_ABI_VERSION ((KEEL_ABI_MAJOR << 16) | KEEL_ABI_MINOR)

#ifdef __cplusplus
extern "C" {
#endif

/* First member of every struct. */
typedef struct keel_header {
    uint32_t struct_size; /* sizeof the writer's struct, in bytes */
    uint32_t abi_version; /* KEEL_ABI_VERSION of the writer's headers: major << 16 | minor */
} keel_header;

/* Initializer: `keel_norm_args a = {KEEL_HEADER(keel_norm_args)};` zeroes the rest. */
#define KEEL_HEADER(type) \
    { (uint32_t)sizeof(type), KEEL_ABI_VERSION }

/* Bytes from a struct's start to the end of a member: for required prefixes. */
#define KEEL_PREFIX(type, last_member) \
    ((uint32_t)(offsetof(type, last_member) + sizeof(((type *)0)->last_member)))

/* 1 if the peer's struct reaches this member. For args structs that were not adopted. */
#define KEEL_HAS(ptr, type, member) ((ptr)->h.struct_size >= KEEL_PREFIX(type, member))

/* What a call returns. 0x10000 and above belong to plugins; the core treats them like
 * KEEL_E_INTERNAL. */
typedef int32_t keel_status;
enum keel_status_e {
    KEEL_OK = 0,
    /* not this op, shape, dtype or feature; no side effect; the core may fall back */
    KEEL_E_UNSUPPORTED = 1,
    /* the caller broke the contract */
    KEEL_E_INVALID_ARG = 2,
    /* host or device memory; nothing changed */
    KEEL_E_OUT_OF_MEMORY = 3,
    /* the object may only be destroyed */
    KEEL_E_DEVICE_LOST = 4,
    /* the host asked to stop */
    KEEL_E_CANCELLED = 5,
    /* a fault of the callee's own */
    KEEL_E_INTERNAL = 6,
    /* too old, too new or too small */
    KEEL_E_VERSION = 7,
    /* no such device, extension, name */
    KEEL_E_NOT_FOUND = 8,
    /* poll(): not done yet */
    KEEL_E_NOT_READY = 9
};

/* Adopts `theirs` into `mine` by copy. `my_size` is sizeof(*mine); `required` the prefix without
 * which the peer is of no use. KEEL_E_VERSION if the majors differ or the prefix is not covered
 * (then *mine is zeroed). Afterwards mine->struct_size says how many bytes were taken over.
 * [any] */
static inline keel_status keel_adopt(void *mine, uint32_t my_size, const void *theirs,
                                     uint32_t required) {
    const keel_header *peer = (const keel_header *)theirs;
    unsigned char *to = (unsigned char *)mine;
    const unsigned char *from = (const unsigned char *)theirs;
    uint32_t n, i;
    for (i = 0; i < my_size; ++i)
        to[i] = 0;
    if (peer == NULL) return KEEL_E_VERSION;
    if ((peer->abi_version >> 16) != KEEL_ABI_MAJOR || peer->struct_size < required)
        return KEEL_E_VERSION;
    n = peer->struct_size < my_size ? peer->struct_size : my_size;
    for (i = 0; i < n; ++i)
        to[i] = from[i];
    ((keel_header *)mine)->struct_size = n;
    return KEEL_OK;
}

/* Fills an out-struct of the caller's with as much of `mine` as it holds, and keeps the caller's
 * header. [any] */
static inline void keel_emit(void *out, const void *mine, uint32_t my_size) {
    unsigned char *to = (unsigned char *)out;
    const unsigned char *from = (const unsigned char *)mine;
    uint32_t n = ((keel_header *)out)->struct_size, i;
    if (n > my_size) n = my_size;
    for (i = (uint32_t)sizeof(keel_header); i < n; ++i)
        to[i] = from[i];
}

/* Byte-wise string equality, so that plugins in C need no <string.h> for ids. [any] */
static inline int32_t keel_same(const char *a, const char *b) {
    while (*a != 0 && *a == *b)
        ++a, ++b;
    return *a == *b;
}

#ifdef __cplusplus
}
#endif
#endif

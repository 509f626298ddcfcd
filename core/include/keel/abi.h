/* The rules of Keel's plugin ABI: versions, statuses, threads, ownership.
 *
 * WHAT A PLUGIN IS. A plugin is a shared library that a pipeline file names. There are three
 * kinds: a backend computes (backend.h), a policy chooses the slots that a KV cache keeps
 * (policy.h), a budget allocator divides a cache budget over layers and heads (allocator.h). The
 * "core" is the program that loads the plugin: Keel itself, or a checker such as keel_conformance.
 * The core is also called the host. The core opens the library, calls its one exported function
 * (plugin.h), and then calls the functions in the plugin's table. A plugin calls the core through a
 * keel_host (host.h). A "slot" of a table is one function pointer in it. (A slot of a KV cache is
 * something else: the place of one key and value. See kv.h.)
 *
 * A plugin includes only the headers in this folder. They are valid C11 and C++, they need only
 * <stddef.h> and <stdint.h>. A plugin does not link against Keel. Everything in these headers
 * exists since 0.1, unless its comment says otherwise.
 *
 * EXAMPLE. The core reads a policy's table and accepts tables of other minor versions:
 *
 *     keel_policy mine;
 *     keel_status status = keel_adopt(&mine, sizeof mine, plugin->vtable,
 *                                     KEEL_PREFIX(keel_policy, decide));
 *     if (status != KEEL_OK) refuse();              // another major, or not even decide
 *     if (mine.reset != NULL) mine.reset(state);    // NULL: the plugin has no reset
 *
 * VERSIONS. Every struct begins with a keel_header: the struct's size and the version of the
 * headers that its writer was compiled with. The reader adopts the struct: keel_adopt() zeroes a
 * struct of the reader's own layout and copies the bytes that both layouts have. So a member is
 * NULL or zero if the writer is older than that member, or did not set it. Zero always means
 * "absent". A reader ignores members that it does not know. Code never compares struct sizes for
 * equality, and it tests versions only inside keel_adopt().
 *  - Tables and descriptors: the receiver adopts them.
 *  - Out-structs: the caller zeroes the struct and writes its header. The callee fills it with
 *    keel_emit(), which writes at most struct_size bytes.
 *  - Args structs: the caller writes the header. A callee treats members beyond struct_size as
 *    zero (see KEEL_HAS), and never reads beyond its own layout.
 *  - Arrays of structs are arrays of pointers, because the size of an element can grow.
 *
 * FEATURES. Args structs have a member `uint64_t features`. Each bit requests an optional behaviour
 * of the call. If a callee sees a bit that it does not know, it returns KEEL_E_UNSUPPORTED and does
 * nothing. So a callee never ignores a new behaviour.
 *
 * THREADS. Each function's comment says which threads may call the function:
 *   - "Thread: any thread." All threads may call the function at any time, also during other calls.
 *   - "Thread: one call at a time on ..." names an object: a context, or the state of a policy. The
 *     calling thread can change from call to call. Calls on two objects can run at the same time,
 *     so a plugin must not have mutable global variables.
 *   - "Thread: no other create call ..." Keel makes only one such call into a plugin at a time.
 *     Calls on objects that already exist can run at the same time.
 * Inside the body of a parallel_region (host.h), a plugin may only call functions with "Thread: any
 * thread" and the region's barrier. A nested region is not allowed, and no wait except at the
 * barrier.
 *
 * OWNERSHIP.
 *  - The side that created an object destroys it, through the same table.
 *  - Descriptors, tables and the strings in them are static data. They are valid while the
 *    library is mapped.
 *  - Args structs and arrays belong to the caller. They are valid during the call.
 *  - Strings are UTF-8 and end with NUL. A receiver that keeps a string copies it.
 *  - No side frees memory of the other side. The one exception is memory from keel_host.alloc:
 *    the plugin owns it and gives it back with keel_host.free.
 *  - No C++ type, exception, FILE *, errno or locale crosses the border between plugin and core.
 *  - A plugin never prints, exits or aborts, and never changes the state of the process: FPU
 *    mode, signal handlers, environment.
 *
 * GROWTH. A new minor version adds members at the end of structs, each with a "since" note.
 * A number is never reused for another meaning. A new feature starts as an extension: a table with
 * a string name such as "keel.name/1", in ext/draft/. The major version is part of the entry
 * symbol's name. While the major is 0, the ABI can still change between releases. */
#ifndef KEEL_ABI_H
#define KEEL_ABI_H

#include <stddef.h>
#include <stdint.h>

/* KEEL_CALL: the calling convention of all functions between plugin and core. KEEL_EXPORT: makes a
 * symbol visible outside the library. */
#if defined(_WIN32)
#define KEEL_CALL __cdecl
#define KEEL_EXPORT __declspec(dllexport)
#else
#define KEEL_CALL
#define KEEL_EXPORT __attribute__((visibility("default")))
#endif

/* The ABI version of these headers. Two sides with different majors cannot work together. The
 * minor rises when members are added. */
#define KEEL_ABI_MAJOR 0u
#define KEEL_ABI_MINOR 1u
/* The version as one number: major << 16 | minor. */
#define KEEL_ABI_VERSION ((KEEL_ABI_MAJOR << 16) | KEEL_ABI_MINOR)

#ifdef __cplusplus
extern "C" {
#endif

/* The first member of every struct. The side that creates the struct writes it, see
 * KEEL_HEADER. */
typedef struct keel_header {
    uint32_t struct_size; /* size of the struct in the writer's headers, in bytes */
    uint32_t abi_version; /* KEEL_ABI_VERSION of the writer's headers */
} keel_header;

/* Initializer of a keel_header. `keel_norm_args a = {KEEL_HEADER(keel_norm_args)};` also zeroes
 * all other members. */
#define KEEL_HEADER(type) \
    { (uint32_t)sizeof(type), KEEL_ABI_VERSION }

/* Number of bytes from the start of a struct to the end of the named member. Code that receives a
 * struct passes this number to keel_adopt() as the minimum size of the struct. */
#define KEEL_PREFIX(type, last_member) \
    ((uint32_t)(offsetof(type, last_member) + sizeof(((type *)0)->last_member)))

/* 1 if the struct that `ptr` points to is long enough to hold the member, else 0. Use it for args
 * structs, which are not adopted. */
#define KEEL_HAS(ptr, type, member) ((ptr)->h.struct_size >= KEEL_PREFIX(type, member))

/* The result of a call. A plugin may return its own numbers from 0x10000 on; the core treats them
 * as KEEL_E_INTERNAL. Before a plugin returns an error, it reports the reason with
 * keel_host.set_error (host.h). */
typedef int32_t keel_status;
enum keel_status_e {
    /* Done. */
    KEEL_OK = 0,
    /* The callee does not support this op, shape, dtype or feature. The call had no side effect, so
     * the core may use its fallback. */
    KEEL_E_UNSUPPORTED = 1,
    /* The caller broke a rule of these headers. */
    KEEL_E_INVALID_ARG = 2,
    /* Host or device memory is full. The call changed nothing. */
    KEEL_E_OUT_OF_MEMORY = 3,
    /* The device is lost. Afterwards only the object's destroy function may be called. */
    KEEL_E_DEVICE_LOST = 4,
    /* The call stopped early because keel_host.cancelled returned 1. */
    KEEL_E_CANCELLED = 5,
    /* The callee failed for a reason that no other status describes, for example a bug. */
    KEEL_E_INTERNAL = 6,
    /* A struct of the peer has another major version, or is too small. */
    KEEL_E_VERSION = 7,
    /* There is no device, extension or name of this kind. */
    KEEL_E_NOT_FOUND = 8,
    /* Only from keel_backend.poll: the work is not done yet. */
    KEEL_E_NOT_READY = 9
};

/* Copies the peer's struct `theirs` into `mine`, a struct of the reader's layout. Bytes that
 * `theirs` does not have become zero.
 * my_size: sizeof(*mine).
 * required: the bytes that `theirs` must have at least, see KEEL_PREFIX.
 * Afterwards the struct_size of *mine is the number of bytes that were copied.
 * Errors: KEEL_E_VERSION if `theirs` is NULL, has another major, or is smaller than `required`.
 * After an error *mine is all zero. Thread: any thread. */
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

/* Fills the caller's out-struct `out` from `mine`, a struct of the callee's layout. Writes at most
 * the struct_size bytes of `out`, and does not change the header of `out`.
 * my_size: sizeof(*mine). Thread: any thread. */
static inline void keel_emit(void *out, const void *mine, uint32_t my_size) {
    unsigned char *to = (unsigned char *)out;
    const unsigned char *from = (const unsigned char *)mine;
    uint32_t n = ((keel_header *)out)->struct_size, i;
    if (n > my_size) n = my_size;
    for (i = (uint32_t)sizeof(keel_header); i < n; ++i)
        to[i] = from[i];
}

/* 1 if the two strings are equal byte by byte, else 0. With this function, a plugin in C compares
 * ids without <string.h>. Thread: any thread. */
static inline int32_t keel_same(const char *a, const char *b) {
    while (*a != 0 && *a == *b)
        ++a, ++b;
    return *a == *b;
}

#ifdef __cplusplus
}
#endif
#endif

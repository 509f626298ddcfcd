/* Services that the core gives to a plugin: log, errors, memory, the thread team. */
#ifndef KEEL_HOST_H
#define KEEL_HOST_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t keel_log_level;
enum keel_log_level_e {
    KEEL_LOG_TRACE = 0,
    KEEL_LOG_DEBUG = 1,
    KEEL_LOG_INFO = 2,
    KEEL_LOG_WARN = 3,
    KEEL_LOG_ERROR = 4
};

/* One worker's view of a running parallel region. The core's, valid while the body runs. */
typedef struct keel_region keel_region;
struct keel_region {
    keel_header h;
    uint32_t worker; /* 0..n-1; worker 0 is the thread that called parallel_region */
    uint32_t n;      /* how many workers run the body */
    /* All n workers meet here; what one wrote before is seen by all after. Spins, then parks.
     * [task] */
    void(KEEL_CALL *barrier)(const keel_region *);
    void *core; /* the core's own */
};

/* The body of a region; called once on each of n workers, with the same `user`. It may call
 * region->barrier() any number of times, the same number on each worker. [task] */
typedef void(KEEL_CALL *keel_region_fn)(void *user, const keel_region *region);

/* Owned by the core. The pointer that *_create received is valid until that object's destroy
 * returns. */
typedef struct keel_host keel_host;
struct keel_host {
    keel_header h;
    /* the core's own */
    void *host_data;

    /* Writes a line to the core's log, without a newline at the end. since 0.1. [any] */
    void(KEEL_CALL *log)(const keel_host *, keel_log_level level, const char *utf8);

    /* Says why the call that is about to return `status` fails. The core keeps a copy, per
     * thread, and adds plugin, op and config line; without it the core composes a message from
     * the status. since 0.1. [any] */
    void(KEEL_CALL *set_error)(const keel_host *, keel_status status, const char *utf8);

    /* size bytes aligned to `align` (a power of two, at least 1), not zeroed; NULL when there is
     * no memory. Owner: the plugin, which hands it back with free(). since 0.1. [any] */
    void *(KEEL_CALL *alloc)(const keel_host *, uint64_t size, uint64_t align);
    /* NULL is fine. since 0.1. [any] */
    void(KEEL_CALL *free)(const keel_host *, void *);

    /* How many processors this process may use (affinity and cgroup quota counted), at least 1.
     * since 0.1. [any] */
    uint32_t(KEEL_CALL *worker_count)(const keel_host *);

    /* Runs fn on n workers of the core's pinned team (0: worker_count) and returns when all have
     * returned. The team spins between regions for a short while, then parks. The same n from
     * call to call costs least. Not nestable: inside a region it returns KEEL_E_INVALID_ARG. n
     * above 256 is KEEL_E_INVALID_ARG. since 0.1. [ctx] */
    keel_status(KEEL_CALL *parallel_region)(const keel_host *, uint32_t n, keel_region_fn fn,
                                            void *user);

    /* 1 once the user asked to stop; a call that takes seconds looks now and then and returns
     * KEEL_E_CANCELLED. since 0.1. [any] */
    int32_t(KEEL_CALL *cancelled)(const keel_host *);

    /* A host service by name ("keel.name/1"), NULL if unknown. since 0.1. [any] */
    const void *(KEEL_CALL *get_extension)(const keel_host *, const char *id);
};

#ifdef __cplusplus
}
#endif
#endif

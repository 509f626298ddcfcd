/* Services that the core gives to a plugin: log, error texts, memory, a team of threads.
 *
 * The core passes a keel_host to every function of a plugin that creates an object (ctx_create,
 * create). The plugin keeps the pointer with the object and calls the functions in it. The core
 * owns the struct. The pointer is valid until the object's destroy function returns. If plugin and
 * core have different versions, the plugin reads the struct as abi.h describes.
 *
 * EXAMPLE. A backend refuses a call and says why, then runs a loop on all workers:
 *
 *     host->set_error(host, KEEL_E_INVALID_ARG, "x has 64 columns, w has 32");
 *     return KEEL_E_INVALID_ARG;
 *
 *     static void body(void *user, const keel_region *region) {
 *         struct job *job = user;
 *         for (int64_t i = region->worker; i < job->n; i += region->n) work(job, i);
 *     }
 *     status = host->parallel_region(host, 0, body, &job);
 *
 * Everything here exists since 0.1. */
#ifndef KEEL_HOST_H
#define KEEL_HOST_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How important a log message is. The user chooses the lowest level that is shown. */
typedef int32_t keel_log_level;
enum keel_log_level_e {
    KEEL_LOG_TRACE = 0,
    KEEL_LOG_DEBUG = 1,
    KEEL_LOG_INFO = 2,
    KEEL_LOG_WARN = 3,
    KEEL_LOG_ERROR = 4
};

/* The view that one worker has of a running parallel region. The core owns it. It is valid while
 * the body runs. */
typedef struct keel_region keel_region;
struct keel_region {
    keel_header h;
    /* Number of this worker, 0..n-1. Worker 0 is the thread that called parallel_region. */
    uint32_t worker;
    /* Number of workers that run the body. */
    uint32_t n;
    /* Waits until all n workers have called it. After the barrier, all workers see the data that
     * each worker wrote before the barrier. A waiting worker spins for a short time, then sleeps.
     * Thread: a worker of a running region. */
    void(KEEL_CALL *barrier)(const keel_region *);
    /* Used by the core. A plugin must not use it. */
    void *core;
};

/* The body of a region. The core calls it once on each of the n workers, with the same `user`. The
 * body may call region->barrier(), the same number of times on each worker. Thread: a worker of
 * a running region. */
typedef void(KEEL_CALL *keel_region_fn)(void *user, const keel_region *region);

/* The services. The first argument of each function is the host itself. */
typedef struct keel_host keel_host;
struct keel_host {
    keel_header h;
    /* Used by the core. A plugin must not use it. */
    void *host_data;

    /* Writes one line to the core's log. `utf8` has no newline at its end. The core copies it.
     * Thread: any thread. */
    void(KEEL_CALL *log)(const keel_host *, keel_log_level level, const char *utf8);

    /* Reports why the current call fails. A plugin calls it just before it returns `status`. The
     * core copies the text for the calling thread and later adds the plugin, the op and the line of
     * the config. `utf8` is one line that names what was found and what was expected. Without a
     * text, the user sees only the meaning of the status. Thread: any thread. */
    void(KEEL_CALL *set_error)(const keel_host *, keel_status status, const char *utf8);

    /* Allocates `size` bytes, aligned to `align` bytes (a power of two, at least 1). The bytes are
     * not zeroed. The plugin owns the memory and gives it back with free(). Returns NULL if there
     * is no memory or if `align` is not a power of two. Thread: any thread. */
    void *(KEEL_CALL *alloc)(const keel_host *, uint64_t size, uint64_t align);
    /* Frees memory of alloc(). NULL is allowed. Thread: any thread. */
    void(KEEL_CALL *free)(const keel_host *, void *);

    /* Number of processors that this process may use, at least 1. The number respects CPU affinity,
     * the cgroup quota and the user's limit on threads. Thread: any thread. */
    uint32_t(KEEL_CALL *worker_count)(const keel_host *);

    /* Runs `fn` on n workers and returns when all of them have returned. If n is 0, worker_count()
     * workers run. `user` is passed to the body. The workers are a team of threads of the core.
     * Between two regions the team spins for a short time, then sleeps. Calls with the same n cost
     * the least. Errors: KEEL_E_INVALID_ARG if fn is NULL, if n is above 256, or inside another
     * region. KEEL_E_OUT_OF_MEMORY if the system refuses a thread. Thread: one call at a time
     * on a host. */
    keel_status(KEEL_CALL *parallel_region)(const keel_host *, uint32_t n, keel_region_fn fn,
                                            void *user);

    /* Returns 1 if the user asked to stop, else 0. A function that takes seconds calls cancelled()
     * from time to time. If the answer is 1, that function returns KEEL_E_CANCELLED. Thread: any
     * thread. */
    int32_t(KEEL_CALL *cancelled)(const keel_host *);

    /* Returns a further service by its name, such as "keel.name/1", or NULL if the core does not
     * have it. The service is a struct that begins with a keel_header. The plugin copies the struct
     * with keel_adopt() (abi.h), because core and plugin can have different versions. Thread: any
     * thread. */
    const void *(KEEL_CALL *get_extension)(const keel_host *, const char *id);
};

#ifdef __cplusplus
}
#endif
#endif

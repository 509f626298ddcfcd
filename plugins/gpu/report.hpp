// Error reports of the GPU backends, and common code for the entry points of a plugin.
#pragma once

#include <keel/backend.h>

#include <exception>
#include <new>

namespace keel_gpu {

// Thrown inside a plugin after the reason was reported to the host. guarded() catches it at the
// entry point.
struct Refusal {
    keel_status status;
};

// Reports to the host why a call fails (through host->set_error, if the host has it), then throws.
[[noreturn]] void refuse(const keel_host *host, keel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Like refuse(), but returns the status instead of throwing.
keel_status fail(const keel_host *host, keel_status status, const char *format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

// Runs body() in an entry point and turns exceptions into a status.
template <class Body> keel_status guarded(const keel_host *host, const Body &body) noexcept {
    try {
        body();
        return KEEL_OK;
    } catch (const Refusal &refusal) {
        return refusal.status;
    } catch (const std::bad_alloc &) {
        return fail(host, KEEL_E_OUT_OF_MEMORY, "no host memory");
    } catch (const std::exception &error) {
        return fail(host, KEEL_E_INTERNAL, "%s", error.what());
    } catch (...) {
        return fail(host, KEEL_E_INTERNAL, "an unknown fault");
    }
}

// Returns an out-struct with its header set and all other members zero.
template <class T> T make_out() {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// Returns a copy of the caller's args. Members that an older caller does not have are zero.
template <class Args> Args adopt_args(const keel_host *host, const Args *theirs) {
    Args args;
    if (keel_adopt(&args, sizeof(Args), theirs, sizeof(keel_op_args)) != KEEL_OK)
        refuse(host, KEEL_E_INVALID_ARG, "args of another ABI version, or too small");
    return args;
}

// The value of a parameter. `otherwise` if desc has no such parameter, as in tests.
const char *word(const keel_ctx_desc &desc, const char *key, const char *otherwise);
int64_t number(const keel_ctx_desc &desc, const char *key, int64_t otherwise);

// Refuses a range offset..offset+n-1 that is not inside a buffer of `size` bytes.
void need_range(const keel_host *host, uint64_t size, uint64_t offset, uint64_t n);
// Refuses with KEEL_E_CANCELLED if the user asked to stop.
void need_not_cancelled(const keel_host *host);
// Refuses the call `what` while the context records a step, because a recording cannot hold it.
template <class Context> void need_no_recording(const Context &ctx, const char *what) {
    if (ctx.recording != nullptr)
        refuse(ctx.host, KEEL_E_INVALID_ARG,
               "%s while a step is recorded: it belongs before or behind it", what);
}

// The result of plan_<slot>.
struct PlanChoice {
    uint64_t scratch_bytes = 0;
    bool named = false;   // whether the kernel's name is wanted: true in op_plan, false in calls
    char kernel[64] = {}; // for plan_info, for example "matmul q4_0 plain"
};

// If a name is wanted, writes it to choice.kernel, truncated to fit.
void name_kernel(PlanChoice &choice, const char *format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

} // namespace keel_gpu

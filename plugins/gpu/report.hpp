// Error reports of the GPU backends, and code that the entry points of a plugin share.
#pragma once

#include <keel/backend.h>

#include <exception>
#include <new>

namespace keel_gpu {

// Thrown inside a plugin, after the reason was reported to the host. guarded() catches it at the
// entry point.
struct Refusal {
    keel_status status;
};

// Reports the reason of a failed call to the host, then throws Refusal. The report uses
// host->set_error, if the host has this function.
[[noreturn]] void refuse(const keel_host *host, keel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Like refuse(), but returns `status` instead of throwing.
keel_status fail(const keel_host *host, keel_status status, const char *format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

// Runs body() for an entry point. Returns KEEL_OK, or the status that belongs to the exception that
// body() threw.
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

// Returns a struct of the public header with its header fields set and all other members zero.
template <class T> T make_out() {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// Returns a copy of the caller's args. If an older caller does not have a member, the member is
// zero in the copy.
template <class Args> Args adopt_args(const keel_host *host, const Args *theirs) {
    Args args;
    if (keel_adopt(&args, sizeof(Args), theirs, sizeof(keel_op_args)) != KEEL_OK)
        refuse(host, KEEL_E_INVALID_ARG, "the args have another ABI version, or are too small");
    return args;
}

// Returns the value of a parameter. Returns `otherwise` if desc does not have the parameter, as in
// tests.
const char *word(const keel_ctx_desc &desc, const char *key, const char *otherwise);
int64_t number(const keel_ctx_desc &desc, const char *key, int64_t otherwise);

// Throws Refusal if the range offset .. offset + n - 1 is not inside a buffer of `size` bytes.
void need_range(const keel_host *host, uint64_t size, uint64_t offset, uint64_t n);
// Throws Refusal with KEEL_E_CANCELLED if the user asked to stop.
void need_not_cancelled(const keel_host *host);
// Throws Refusal while the context records a step, because a recording cannot contain the call
// `what`.
template <class Context> void need_no_recording(const Context &ctx, const char *what) {
    if (ctx.recording != nullptr)
        refuse(ctx.host, KEEL_E_INVALID_ARG,
               "%s was called while a step is recorded; call it before or after the recording",
               what);
}

// The result of plan_<op>.
struct PlanChoice {
    uint64_t scratch_bytes = 0;
    bool named = false;   // true: the plan needs the kernel's name; true in op_plan, false in calls
    char kernel[64] = {}; // for plan_info, for example "matmul q4_0 plain"
};

// Writes the kernel's name to choice.kernel if choice.named is true. A name that is too long is
// truncated.
void name_kernel(PlanChoice &choice, const char *format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

} // namespace keel_gpu

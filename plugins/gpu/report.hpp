// How a GPU backend says why a call fails, and what every slot of its table does at the border.
#pragma once

#include <keel/backend.h>

#include <exception>
#include <new>

namespace keel_gpu {

// Thrown inside a plugin after the host was told why; caught by guarded() at the border.
struct Refusal {
    keel_status status;
};

// Reports why a call fails (through host->set_error, when the host has it) and throws.
[[noreturn]] void refuse(const keel_host *host, keel_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same, but returns the status.
keel_status fail(const keel_host *host, keel_status status, const char *format, ...) noexcept
    __attribute__((format(printf, 3, 4)));

// Runs body() at the border: nothing is thrown across it.
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

// An out-struct of our own, zeroed but for its header.
template <class T> T make_out() {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// The caller's args by copy, what an older peer lacks being zero.
template <class Args> Args adopt_args(const keel_host *host, const Args *theirs) {
    Args args;
    if (keel_adopt(&args, sizeof(Args), theirs, sizeof(keel_op_args)) != KEEL_OK)
        refuse(host, KEEL_E_INVALID_ARG, "args of another ABI version, or too small");
    return args;
}

// The value of a parameter; `otherwise` if the table has no such row, as with hosts in tests.
const char *word(const keel_ctx_desc &desc, const char *key, const char *otherwise);
int64_t number(const keel_ctx_desc &desc, const char *key, int64_t otherwise);

// Refuses bytes offset..offset+n-1 of a buffer of `size` bytes if they are outside.
void need_range(const keel_host *host, uint64_t size, uint64_t offset, uint64_t n);
// Refuses with KEEL_E_CANCELLED if the user asked to stop.
void need_not_cancelled(const keel_host *host);
// Refuses what a recording cannot hold while the context makes one.
template <class Context> void need_no_recording(const Context &ctx, const char *what) {
    if (ctx.recording != nullptr)
        refuse(ctx.host, KEEL_E_INVALID_ARG,
               "%s while a step is recorded: it belongs before or behind it", what);
}

// What plan_<slot> settles.
struct PlanChoice {
    uint64_t scratch_bytes = 0;
    bool named = false;   // the name is wanted: op_plan asks for it, a call does not
    char kernel[64] = {}; // "matmul q4_0 plain": for plan_info
};

// Writes choice.kernel, cut to fit, if it is wanted.
void name_kernel(PlanChoice &choice, const char *format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

} // namespace keel_gpu

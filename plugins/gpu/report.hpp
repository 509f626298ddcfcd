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
template <class Body>
keel_status guarded(const keel_host *host, const Body &body) noexcept {
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
template <class T>
T make_out() {
    T out{};
    out.h = KEEL_HEADER(T);
    return out;
}

// The caller's args by copy, what an older peer lacks being zero.
template <class Args>
Args adopt_args(const keel_host *host, const Args *theirs) {
    Args args;
    if (keel_adopt(&args, sizeof(Args), theirs, sizeof(keel_op_args)) != KEEL_OK)
        refuse(host, KEEL_E_INVALID_ARG, "args of another ABI version, or too small");
    return args;
}

// The value of a row of the parameter table, or NULL: a host of the tests may hand over none.
const keel_param *find_param(const keel_ctx_desc &desc, const char *key);

// What plan_<slot> settles.
struct PlanChoice {
    uint64_t scratch_bytes = 0;
    bool named = false;   // the name is wanted: op_plan asks for it, a call does not
    char kernel[64] = {}; // "matmul q4_0 plain": for plan_info
};

// Writes choice.kernel, cut to fit, if it is wanted.
void name_kernel(PlanChoice &choice, const char *format, ...) noexcept __attribute__((format(printf, 2, 3)));

} // namespace keel_gpu

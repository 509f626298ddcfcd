// Declares the backend's entry points. Each group of ops has its own file. op_<name> runs an op.
// plan_<name> decides whether the op is supported, which kernel runs it, and how much scratch
// memory it needs.
#pragma once

#include "common/backend_plugin.hpp"
#include "cpu/context.hpp"

namespace keel_cpu {

// The result of plan_<name>. With the default values the op needs no scratch memory.
struct PlanChoice {
    uint64_t scratch_bytes = 0;
    // For example "matmul q4_0 avx2 fast". The name of the instruction set comes from the kernel
    // table.
    char kernel[64] = {};
};

// Formats a name and writes it to choice.kernel. A name that is too long is truncated.
void name_kernel(PlanChoice &choice, const char *format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

// Called at the start of op_<name>. Returns KEEL_E_UNSUPPORTED if `features` has bits that are not
// in `known`. There are no side effects.
inline keel_status check_features(keel_ctx *ctx, uint64_t features, uint64_t known,
                                  const char *op) {
    if ((features & ~known) == 0) return KEEL_OK;
    return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: unknown feature bits 0x%llx", op,
                static_cast<unsigned long long>(features & ~known));
}

#define KEEL_CPU_DECLARE(ID, slot, args_type)                                                      \
    keel_status KEEL_CALL op_##slot(keel_ctx *, const args_type *) noexcept;                       \
    keel_status plan_##slot(keel_ctx *, const args_type *, PlanChoice &) noexcept;
KEEL_FOR_EACH_OP(KEEL_CPU_DECLARE)
#undef KEEL_CPU_DECLARE

KEEL_FOR_EACH_ENTRY_POINT(KEEL_DECLARE_ENTRY_POINT)
KEEL_DECLARE_ENTRY_POINT(buffer_commit) // these are defined in memory/buffer.cpp
KEEL_DECLARE_ENTRY_POINT(op_plan)       // defined in plan.cpp
KEEL_DECLARE_ENTRY_POINT(plan_destroy)
KEEL_DECLARE_ENTRY_POINT(plan_info)

} // namespace keel_cpu

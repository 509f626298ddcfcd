// The backend's entry points, one file per group. op_<slot> runs the op. plan_<slot> decides
// whether and how it would run.
#pragma once

#include "common/backend_plugin.hpp"
#include "cpu/context.hpp"

namespace keel_cpu {

// The result of plan_<slot>. With the default values the op needs no scratch memory.
struct PlanChoice {
    uint64_t scratch_bytes = 0;
    // for example "matmul q4_0 avx2 fast"; the word of the instruction set is from the kernel table
    char kernel[64] = {};
};

// Writes choice.kernel, truncated to fit.
void name_kernel(PlanChoice &choice, const char *format, ...) noexcept
    __attribute__((format(printf, 2, 3)));

// For op_<slot>: returns KEEL_E_UNSUPPORTED if args has feature bits beyond `known`. No side
// effects.
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
KEEL_DECLARE_ENTRY_POINT(buffer_commit) // memory/buffer.cpp
KEEL_DECLARE_ENTRY_POINT(op_plan)       // plan.cpp
KEEL_DECLARE_ENTRY_POINT(plan_destroy)
KEEL_DECLARE_ENTRY_POINT(plan_info)

} // namespace keel_cpu

// The backend's entry points, one file per group: op_<slot> runs, plan_<slot> says whether and how it would.
#pragma once

#include "context.hpp"

namespace keel_cpu {

// What plan_<slot> fills in. An op that is left as it is needs no scratch.
struct PlanChoice {
    uint64_t scratch_bytes = 0;
    char kernel[64] = {}; // "matmul q4_0 avx2 fast"; the ISA's word comes from the kernel table
};

// Writes choice.kernel, cut to fit.
void name_kernel(PlanChoice &choice, const char *format, ...) noexcept __attribute__((format(printf, 2, 3)));

// For op_<slot>: KEEL_E_UNSUPPORTED if args has feature bits beyond `known`, no side effect.
inline keel_status check_features(keel_ctx *ctx, uint64_t features, uint64_t known, const char *op) {
    if ((features & ~known) == 0) return KEEL_OK;
    return fail(ctx->host, KEEL_E_UNSUPPORTED, "%s: unknown feature bits 0x%llx", op,
                static_cast<unsigned long long>(features & ~known));
}

#define KEEL_CPU_DECLARE(ID, slot, args_type)                                                                \
    keel_status KEEL_CALL op_##slot(keel_ctx *, const args_type *) noexcept;                                 \
    keel_status plan_##slot(keel_ctx *, const args_type *, PlanChoice &) noexcept;
KEEL_FOR_EACH_OP(KEEL_CPU_DECLARE)
#undef KEEL_CPU_DECLARE

// device.cpp
keel_status KEEL_CALL device_count(const keel_host *, uint32_t *n) noexcept;
keel_status KEEL_CALL device_info(const keel_host *, uint32_t index, keel_device_info *out) noexcept;
// context.cpp
keel_status KEEL_CALL ctx_create(const keel_host *, const keel_ctx_desc *, keel_ctx **out) noexcept;
void KEEL_CALL ctx_destroy(keel_ctx *) noexcept;
keel_status KEEL_CALL ctx_info(keel_ctx *, keel_ctx_info *out) noexcept;
keel_status KEEL_CALL mem_info(keel_ctx *, keel_mem_info *out) noexcept;
keel_status KEEL_CALL flush(keel_ctx *, uint64_t *ticket) noexcept;
keel_status KEEL_CALL wait(keel_ctx *, uint64_t ticket) noexcept;
// buffer.cpp
keel_status KEEL_CALL buffer_create(keel_ctx *, const keel_buffer_desc *, keel_buffer **out) noexcept;
void KEEL_CALL buffer_destroy(keel_ctx *, keel_buffer *) noexcept;
keel_status KEEL_CALL buffer_write(keel_ctx *, keel_buffer *, uint64_t offset, const void *src,
                                   uint64_t n) noexcept;
keel_status KEEL_CALL buffer_read(keel_ctx *, keel_buffer *, uint64_t offset, void *dst, uint64_t n) noexcept;
keel_status KEEL_CALL buffer_map(keel_ctx *, keel_buffer *, void **out) noexcept;
keel_status KEEL_CALL buffer_commit(keel_ctx *, keel_buffer *, uint64_t offset, uint64_t n,
                                    uint32_t commit) noexcept;
// weights.cpp
keel_status KEEL_CALL weight_prepare(keel_ctx *, const keel_weight_desc *, keel_weight **out) noexcept;
void KEEL_CALL weight_destroy(keel_ctx *, keel_weight *) noexcept;
keel_status KEEL_CALL weight_info(keel_ctx *, const keel_weight *, keel_weight_info *out) noexcept;
// plan.cpp
keel_status KEEL_CALL op_plan(keel_ctx *, keel_op op, const keel_op_args *args, keel_plan **out) noexcept;
void KEEL_CALL plan_destroy(keel_ctx *, keel_plan *) noexcept;
keel_status KEEL_CALL plan_info(keel_ctx *, const keel_plan *, keel_plan_info *out) noexcept;

} // namespace keel_cpu

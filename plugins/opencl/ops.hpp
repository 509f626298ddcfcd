// The backend's entry points, one file per group: plan_<slot> checks and says how the op would run, run_<slot> queues it. Both refuse by
// throwing; plugin.cpp wraps them for the table.
#pragma once

#include "context.hpp"

namespace keel_opencl {

using namespace keel_gpu; // checks, views and constants: what both GPU backends say alike

#define KEEL_OPENCL_DECLARE(ID, slot, args_type)                                                             \
    void plan_##slot(keel_ctx &, const args_type &, PlanChoice &);                                           \
    void run_##slot(keel_ctx &, const args_type &);
KEEL_FOR_EACH_OP(KEEL_OPENCL_DECLARE)
#undef KEEL_OPENCL_DECLARE

// Runs Plan and Run at the border.
template <class Args, void (*Plan)(keel_ctx &, const Args &, PlanChoice &),
          void (*Run)(keel_ctx &, const Args &)>
keel_status KEEL_CALL op_call(keel_ctx *ctx, const Args *theirs) noexcept {
    return guarded(ctx->host, [&] {
        const Args args = adopt_args(ctx->host, theirs);
        PlanChoice choice;
        Plan(*ctx, args, choice);
        Run(*ctx, args);
    });
}

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
keel_status KEEL_CALL poll(keel_ctx *, uint64_t ticket) noexcept;
// buffer.cpp
keel_status KEEL_CALL buffer_create(keel_ctx *, const keel_buffer_desc *, keel_buffer **out) noexcept;
void KEEL_CALL buffer_destroy(keel_ctx *, keel_buffer *) noexcept;
keel_status KEEL_CALL buffer_write(keel_ctx *, keel_buffer *, uint64_t offset, const void *src,
                                   uint64_t n) noexcept;
keel_status KEEL_CALL buffer_read(keel_ctx *, keel_buffer *, uint64_t offset, void *dst, uint64_t n) noexcept;
keel_status KEEL_CALL buffer_map(keel_ctx *, keel_buffer *, void **out) noexcept;
// weights.cpp
keel_status KEEL_CALL weight_prepare(keel_ctx *, const keel_weight_desc *, keel_weight **out) noexcept;
void KEEL_CALL weight_destroy(keel_ctx *, keel_weight *) noexcept;
keel_status KEEL_CALL weight_info(keel_ctx *, const keel_weight *, keel_weight_info *out) noexcept;
// plan.cpp
keel_status KEEL_CALL op_plan(keel_ctx *, keel_op op, const keel_op_args *args, keel_plan **out) noexcept;
void KEEL_CALL plan_destroy(keel_ctx *, keel_plan *) noexcept;
keel_status KEEL_CALL plan_info(keel_ctx *, const keel_plan *, keel_plan_info *out) noexcept;

} // namespace keel_opencl

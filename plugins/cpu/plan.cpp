// op_plan: plans an op and allocates its scratch memory, so that a planned call does not allocate.
#include "cpu/ops/ops.hpp"

#include <new>
#include <string.h>

namespace keel_cpu {

keel_status KEEL_CALL op_plan(keel_ctx *ctx, keel_op op, const keel_op_args *args,
                              keel_plan **out) noexcept {
    *out = nullptr;
    PlanChoice choice;
    keel_status status;
    switch (op) {
#define KEEL_CPU_PLAN(ID, slot, args_type)                                                         \
    case KEEL_OP_##ID:                                                                             \
        status = plan_##slot(ctx, reinterpret_cast<const args_type *>(args), choice);              \
        break;
        KEEL_FOR_EACH_OP(KEEL_CPU_PLAN)
#undef KEEL_CPU_PLAN
    default: return fail(ctx->host, KEEL_E_UNSUPPORTED, "unknown op %u", op);
    }
    if (status != KEEL_OK) return status;
    if (choice.scratch_bytes != 0 && scratch(ctx, choice.scratch_bytes) == nullptr)
        return KEEL_E_OUT_OF_MEMORY;
    void *place = ctx->host->alloc(ctx->host, sizeof(keel_plan), alignof(keel_plan));
    if (place == nullptr)
        return fail(ctx->host, KEEL_E_OUT_OF_MEMORY, "not enough memory for a plan");
    keel_plan *plan = new (place) keel_plan{op, choice.scratch_bytes, {}};
    memcpy(plan->kernel, choice.kernel, sizeof plan->kernel);
    *out = plan;
    return KEEL_OK;
}

void KEEL_CALL plan_destroy(keel_ctx *ctx, keel_plan *plan) noexcept {
    ctx->host->free(ctx->host, plan);
}

keel_status KEEL_CALL plan_info(keel_ctx *, const keel_plan *plan, keel_plan_info *out) noexcept {
    keel_plan_info info = make_out<keel_plan_info>();
    info.scratch_bytes = plan->scratch_bytes;
    memcpy(info.kernel, plan->kernel, sizeof info.kernel);
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

} // namespace keel_cpu

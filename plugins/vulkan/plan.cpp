// op_plan: asks the op whether it would run, and sets its scratch aside, so that no call allocates.
#include "ops.hpp"

#include <memory>
#include <string.h>

namespace keel_vulkan {
namespace {

void plan_op(keel_ctx &ctx, keel_op op, const keel_op_args *args, PlanChoice &choice) {
    switch (op) {
#define KEEL_VULKAN_PLAN(ID, slot, args_type)                                                                \
    case KEEL_OP_##ID:                                                                                       \
        return plan_##slot(ctx, adopt_args(ctx.host, reinterpret_cast<const args_type *>(args)), choice);
        KEEL_FOR_EACH_OP(KEEL_VULKAN_PLAN)
#undef KEEL_VULKAN_PLAN
    default:
        refuse(ctx.host, KEEL_E_UNSUPPORTED, "unknown op %u", op);
    }
}

} // namespace

keel_status KEEL_CALL op_plan(keel_ctx *ctx, keel_op op, const keel_op_args *args, keel_plan **out) noexcept {
    *out = nullptr;
    return guarded(ctx->host, [&] {
        PlanChoice choice;
        choice.named = true;
        plan_op(*ctx, op, args, choice);
        if (choice.scratch_bytes != 0) scratch(ctx, choice.scratch_bytes);
        auto plan = std::make_unique<keel_plan>();
        plan->op = op;
        plan->scratch_bytes = choice.scratch_bytes;
        memcpy(plan->kernel, choice.kernel, sizeof plan->kernel);
        *out = plan.release();
    });
}

void KEEL_CALL plan_destroy(keel_ctx *, keel_plan *plan) noexcept {
    delete plan;
}

keel_status KEEL_CALL plan_info(keel_ctx *, const keel_plan *plan, keel_plan_info *out) noexcept {
    keel_plan_info info = make_out<keel_plan_info>();
    info.scratch_bytes = plan->scratch_bytes;
    memcpy(info.kernel, plan->kernel, sizeof info.kernel);
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

} // namespace keel_vulkan

// The table of entry points of a GPU backend, and the code around each op. Only the backend's
// plugin.cpp includes this file, after its own ops/ops.hpp. ops/ops.hpp defines keel_ctx and
// keel_plan, and names the backend's namespace:
//   namespace keel_gpu { namespace backend = keel_...; }
// The namespace must define the functions of KEEL_GPU_DECLARE_BACKEND, and in addition:
//   void set_aside(keel_ctx &, uint64_t bytes)
//       makes the scratch memory, which all ops share, at least this large
//   PlanInUse(keel_ctx &, keel_plan *)
//       while this object exists, an op may store the kernels that it looked up in the plan; the
//       plan may be NULL
//   void after_op(keel_ctx &)
//       throws Refusal if the driver reported an error during the op
#pragma once

#include "gpu/ops.hpp"

#include <memory>
#include <string.h>

namespace keel_gpu {

#define KEEL_GPU_USE_OP(op, args)                                                                  \
    using backend::plan_##op;                                                                      \
    using backend::run_##op;
KEEL_GPU_FOR_EACH_SINGLE_OP(KEEL_GPU_USE_OP)
#undef KEEL_GPU_USE_OP

#define KEEL_GPU_OP_OF_GROUP(op, group, number, args)                                              \
    inline void plan_##op(keel_ctx &ctx, const args &a, PlanChoice &choice) {                      \
        backend::plan_##group(ctx, a, number, #op, choice);                                        \
    }                                                                                              \
    inline void run_##op(keel_ctx &ctx, const args &a) { backend::run_##group(ctx, a, number); }
KEEL_GPU_OP_OF_GROUP(rms_norm, norm, norm_rms, keel_norm_args)
KEEL_GPU_OP_OF_GROUP(add_rms_norm, norm, norm_add_rms, keel_norm_args)
KEEL_GPU_OP_OF_GROUP(layer_norm, norm, norm_layer, keel_norm_args)
KEEL_GPU_OP_OF_GROUP(silu_mul, gate, gate_silu, keel_gate_args)
KEEL_GPU_OP_OF_GROUP(gelu_mul, gate,
                     (a.features & KEEL_GELU_TANH) != 0 ? gate_gelu_tanh : gate_gelu,
                     keel_gate_args)
KEEL_GPU_OP_OF_GROUP(add, combine, combine_add, keel_elementwise_args)
KEEL_GPU_OP_OF_GROUP(add_bias, combine, combine_add_bias, keel_elementwise_args)
KEEL_GPU_OP_OF_GROUP(scale, combine, combine_scale, keel_elementwise_args)
KEEL_GPU_OP_OF_GROUP(scaled_add, combine, combine_scaled_add, keel_elementwise_args)
KEEL_GPU_OP_OF_GROUP(copy, move, move_copy, keel_move_args)
KEEL_GPU_OP_OF_GROUP(transpose, move, move_transpose, keel_move_args)
KEEL_GPU_OP_OF_GROUP(zero, move, move_zero, keel_move_args)
#undef KEEL_GPU_OP_OF_GROUP

template <class Args, void (*check)(const keel_host *, const Args &),
          void (*plan)(keel_ctx &, const Args &, PlanChoice &),
          void (*run)(keel_ctx &, const Args &)>
keel_status KEEL_CALL op_call(keel_ctx *ctx, const Args *theirs) noexcept {
    return guarded(ctx->host, [&] {
        const Args args = adopt_args(ctx->host, theirs);
        const backend::PlanInUse in_use(*ctx, args.plan);
        PlanChoice choice;
        check(ctx->host, args);
        plan(*ctx, args, choice);
        run(*ctx, args);
        backend::after_op(*ctx);
    });
}

inline void plan_op(keel_ctx &ctx, keel_op op, const keel_op_args *args, PlanChoice &choice) {
    switch (op) {
#define KEEL_GPU_PLAN(ID, slot, args_type)                                                         \
    case KEEL_OP_##ID: {                                                                           \
        const auto a = adopt_args(ctx.host, reinterpret_cast<const args_type *>(args));            \
        check_##slot(ctx.host, a);                                                                 \
        return plan_##slot(ctx, a, choice);                                                        \
    }
        KEEL_FOR_EACH_DENSE_OP(KEEL_GPU_PLAN)
#undef KEEL_GPU_PLAN
    default: refuse(ctx.host, KEEL_E_UNSUPPORTED, "unknown op %u", op);
    }
}

// Plans an op and allocates its scratch memory, so that a planned call does not allocate.
inline keel_status KEEL_CALL op_plan(keel_ctx *ctx, keel_op op, const keel_op_args *args,
                                     keel_plan **out) noexcept {
    *out = nullptr;
    return guarded(ctx->host, [&] {
        PlanChoice choice;
        choice.named = true;
        auto plan = std::make_unique<keel_plan>();
        const backend::PlanInUse in_use(*ctx, plan.get());
        plan_op(*ctx, op, args, choice);
        if (choice.scratch_bytes != 0) backend::set_aside(*ctx, choice.scratch_bytes);
        plan->op = op;
        plan->scratch_bytes = choice.scratch_bytes;
        memcpy(plan->kernel, choice.kernel, sizeof plan->kernel);
        *out = plan.release();
    });
}

inline void KEEL_CALL plan_destroy(keel_ctx *, keel_plan *plan) noexcept { delete plan; }

inline keel_status KEEL_CALL plan_info(keel_ctx *, const keel_plan *plan,
                                       keel_plan_info *out) noexcept {
    keel_plan_info info = make_out<keel_plan_info>();
    info.scratch_bytes = plan->scratch_bytes;
    memcpy(info.kernel, plan->kernel, sizeof info.kernel);
    keel_emit(out, &info, sizeof info);
    return KEEL_OK;
}

constexpr keel_backend make_table() {
    keel_backend t{};
    t.h = KEEL_HEADER(keel_backend);
#define KEEL_GPU_ENTRY(slot) t.slot = backend::slot;
    KEEL_FOR_EACH_ENTRY_POINT(KEEL_GPU_ENTRY)
#undef KEEL_GPU_ENTRY
    t.op_plan = op_plan;
    t.plan_destroy = plan_destroy;
    t.plan_info = plan_info;
#define KEEL_GPU_SLOT(ID, slot, args_type)                                                         \
    t.slot = op_call<args_type, check_##slot, plan_##slot, run_##slot>;
    KEEL_FOR_EACH_DENSE_OP(KEEL_GPU_SLOT)
#undef KEEL_GPU_SLOT
    return t;
}

} // namespace keel_gpu

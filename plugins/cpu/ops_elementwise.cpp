#include "ops.hpp"

namespace keel_cpu {

keel_status plan_silu_mul(keel_ctx *, const keel_gate_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_silu_mul(keel_ctx *, const keel_gate_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_gelu_mul(keel_ctx *, const keel_gate_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_gelu_mul(keel_ctx *, const keel_gate_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_add(keel_ctx *, const keel_elementwise_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_add(keel_ctx *, const keel_elementwise_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_add_bias(keel_ctx *, const keel_elementwise_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_add_bias(keel_ctx *, const keel_elementwise_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_scale(keel_ctx *, const keel_elementwise_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_scale(keel_ctx *, const keel_elementwise_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_scaled_add(keel_ctx *, const keel_elementwise_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_scaled_add(keel_ctx *, const keel_elementwise_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_softmax(keel_ctx *, const keel_move_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_softmax(keel_ctx *, const keel_move_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

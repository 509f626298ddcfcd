#include "ops.hpp"

namespace keel_cpu {

keel_status plan_rms_norm(keel_ctx *, const keel_norm_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_rms_norm(keel_ctx *, const keel_norm_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_add_rms_norm(keel_ctx *, const keel_norm_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_add_rms_norm(keel_ctx *, const keel_norm_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_layer_norm(keel_ctx *, const keel_norm_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_layer_norm(keel_ctx *, const keel_norm_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

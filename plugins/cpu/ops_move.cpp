#include "ops.hpp"

namespace keel_cpu {

keel_status plan_cast(keel_ctx *, const keel_move_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_cast(keel_ctx *, const keel_move_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_copy(keel_ctx *, const keel_move_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_copy(keel_ctx *, const keel_move_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_transpose(keel_ctx *, const keel_move_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_transpose(keel_ctx *, const keel_move_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_zero(keel_ctx *, const keel_move_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_zero(keel_ctx *, const keel_move_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

#include "ops.hpp"

namespace keel_cpu {

keel_status plan_argmax_rows(keel_ctx *, const keel_rows_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_argmax_rows(keel_ctx *, const keel_rows_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_top_k_rows(keel_ctx *, const keel_rows_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_top_k_rows(keel_ctx *, const keel_rows_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

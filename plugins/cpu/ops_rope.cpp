#include "ops.hpp"

namespace keel_cpu {

keel_status plan_rope(keel_ctx *, const keel_rope_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_rope(keel_ctx *, const keel_rope_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_kv_rerotate(keel_ctx *, const keel_kv_rerotate_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_kv_rerotate(keel_ctx *, const keel_kv_rerotate_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

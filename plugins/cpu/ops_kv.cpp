#include "ops.hpp"

namespace keel_cpu {

keel_status plan_kv_append(keel_ctx *, const keel_kv_append_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_kv_append(keel_ctx *, const keel_kv_append_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_kv_gather(keel_ctx *, const keel_kv_gather_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_kv_gather(keel_ctx *, const keel_kv_gather_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

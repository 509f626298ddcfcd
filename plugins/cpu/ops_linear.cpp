#include "ops.hpp"

namespace keel_cpu {

keel_status plan_matmul(keel_ctx *, const keel_matmul_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_matmul(keel_ctx *, const keel_matmul_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_embed(keel_ctx *, const keel_embed_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_embed(keel_ctx *, const keel_embed_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

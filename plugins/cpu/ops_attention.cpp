#include "ops.hpp"

namespace keel_cpu {

keel_status plan_qkv_prepare(keel_ctx *, const keel_qkv_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_qkv_prepare(keel_ctx *, const keel_qkv_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_attention(keel_ctx *, const keel_attention_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_attention(keel_ctx *, const keel_attention_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

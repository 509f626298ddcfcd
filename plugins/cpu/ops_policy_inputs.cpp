#include "ops.hpp"

namespace keel_cpu {

keel_status plan_attention_scores(keel_ctx *, const keel_attention_scores_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_attention_scores(keel_ctx *, const keel_attention_scores_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_key_project(keel_ctx *, const keel_keys_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_key_project(keel_ctx *, const keel_keys_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_key_sum(keel_ctx *, const keel_keys_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_key_sum(keel_ctx *, const keel_keys_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_value_norms(keel_ctx *, const keel_keys_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_value_norms(keel_ctx *, const keel_keys_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

keel_status plan_query_stats(keel_ctx *, const keel_query_stats_args *, PlanChoice &) noexcept {
    return KEEL_E_UNSUPPORTED;
}
keel_status KEEL_CALL op_query_stats(keel_ctx *, const keel_query_stats_args *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

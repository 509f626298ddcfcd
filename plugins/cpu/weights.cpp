#include "ops.hpp"

namespace keel_cpu {

keel_status KEEL_CALL weight_prepare(keel_ctx *, const keel_weight_desc *, keel_weight **) noexcept {
    return KEEL_E_UNSUPPORTED;
}
void KEEL_CALL weight_destroy(keel_ctx *, keel_weight *) noexcept {}
keel_status KEEL_CALL weight_info(keel_ctx *, const keel_weight *, keel_weight_info *) noexcept {
    return KEEL_E_UNSUPPORTED;
}

} // namespace keel_cpu

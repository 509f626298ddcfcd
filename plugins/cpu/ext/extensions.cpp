#include "cpu/ext/extensions.hpp"

namespace keel_cpu {

const void *KEEL_CALL extension(const char *id) noexcept {
    if (keel_same(id, KEEL_EXT_BATCHED_DECODE) != 0) return &batched_decode;
    return nullptr;
}

} // namespace keel_cpu

#include "vulkan/ext/extensions.hpp"

namespace keel_vulkan {

const void *KEEL_CALL extension(const char *id) noexcept {
    if (keel_same(id, KEEL_EXT_TIMESTAMPS) != 0) return &timestamps;
    if (keel_same(id, KEEL_EXT_REPLAY) != 0) return &replay;
    if (keel_same(id, KEEL_EXT_BATCHED_DECODE) != 0) return &batched_decode;
    if (keel_same(id, KEEL_EXT_READ_LATER) != 0) return &read_later;
    if (keel_same(id, KEEL_EXT_STREAM_COUNTS) != 0) return &stream_counts;
    return nullptr;
}

} // namespace keel_vulkan

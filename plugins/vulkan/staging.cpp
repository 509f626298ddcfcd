#include "vulkan/staging.hpp"

namespace keel_vulkan {

Range Staging::take(uint64_t n, uint64_t align) {
    if (ring_.block == nullptr) ring_ = memory_->take(MemoryUse::upload, kBytes);
    uint64_t at = (taken_ + align - 1) / align * align;
    // A part of the ring must be contiguous, so it cannot wrap around the end of the ring.
    if (at % kBytes + n > kBytes) at = (at / kBytes + 1) * kBytes;
    if (at + n - released_ > kBytes) return {};
    taken_ = at + n;
    return {ring_.block, ring_.offset + at % kBytes, n};
}

} // namespace keel_vulkan

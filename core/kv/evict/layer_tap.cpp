#include "kv/evict/layer_tap.hpp"

namespace keel {

LayerTap::LayerTap(const std::vector<bool> &has_window) {
    int32_t next = 0;
    for (const bool windowed : has_window) numbers_.push_back(windowed ? -1 : next++);
}

StepTap *LayerTap::over(StepTap *tap) {
    if (tap == nullptr || numbers_.empty()) return tap;
    tap_ = tap;
    return this;
}

StepTap::Places LayerTap::places(uint32_t layer) {
    const int32_t number = numbers_[layer];
    return number < 0 ? Places{} : tap_->places(static_cast<uint32_t>(number));
}

void LayerTap::after_attention(uint32_t layer, const Tensor &q) {
    const int32_t number = numbers_[layer];
    if (number >= 0) tap_->after_attention(static_cast<uint32_t>(number), q);
}

void LayerRepeat::forward(std::span<const int32_t> ids, std::span<const int32_t> positions,
                          StepTap &tap) {
    if (positions.front() == seen_) caches_.begin_repeat();
    caches_.append_repeated(positions);
    peak_ = std::max(peak_, caches_.window_bytes());
    forward_.forward(ids, positions, *tap_.over(&tap));
    caches_.hold_repeated(positions.back() + 1);
}

} // namespace keel

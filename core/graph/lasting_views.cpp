#include "graph/lasting_views.hpp"

#include <algorithm>
#include <bit>

namespace keel {
namespace {

// Rounds a length up to a multiple of 64. A length above 512 is rounded up to a multiple of an
// eighth of the power of two below it. So a decode step must be recorded again after 64 tokens, and
// for long caches after more tokens. The launch grid of an op is at most an eighth too large.
// Rounding up to a power of two would need fewer recordings, but could leave half of the device
// idle in attention.
int64_t lasting_bound(int64_t length) {
    const auto below = std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(length - 1, 1)));
    const int64_t step = std::max<int64_t>(64, static_cast<int64_t>(below) / 8);
    return (length + step - 1) / step * step;
}

} // namespace

std::span<const keel_kv_view *const> LastingViews::of(std::span<const keel_kv_view *const> kv) {
    views_.resize(kv.size());
    list_.resize(kv.size());
    for (size_t i = 0; i < kv.size(); ++i) {
        keel_kv_view &view = views_[i] = *kv[i];
        const int64_t room = view.block_table->shape[1] * view.block_slots;
        view.max_length = std::max(view.max_length, std::min(lasting_bound(view.max_length), room));
        list_[i] = &view;
    }
    return list_;
}

} // namespace keel

#include "kv/inputs/logit_rules.hpp"

#include "device/device.hpp"
#include "kv/store/held_bytes.hpp"

#include <numeric>

namespace keel {

void LogitRules::add_to(keel_attention_scores_args &args, const keel_tensor *positions) const {
    if (softcap > 0) {
        args.features |= KEEL_SCORES_SOFTCAP;
        args.softcap = softcap;
    }
    if (window > 0) {
        args.features |= KEEL_SCORES_WINDOW;
        args.window = window;
        args.q_positions = positions;
    }
}

const keel_tensor *QueryPositions::write(Executor &executor, keel_buffer_kind placement,
                                         int64_t first, int64_t n) {
    if (room_.buffer() == nullptr || room_.dim(0) < n)
        room_ = Tensor::allocate(executor.device(), KEEL_DTYPE_I32, {n}, placement);
    host_.resize(static_cast<size_t>(n));
    std::iota(host_.begin(), host_.end(), static_cast<int32_t>(first));
    rows_ = room_.rows(0, n);
    rows_.write(host_.data());
    return rows_.c();
}

uint64_t QueryPositions::bytes() const { return held_bytes(room_) + held_bytes(host_); }

} // namespace keel

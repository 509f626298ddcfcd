// What a decode step does so that a backend can record it once and submit it again.
#include "graph/graph.hpp"

#include <algorithm>
#include <bit>

namespace keel {
namespace {

// A bound on a length that stays the same for a while: the next multiple of 64, above 512 of an eighth of the power of two below. So a
// step is recorded anew after every 64 tokens, then ever more rarely, and no grid is more than an eighth too large. A power of two
// alone would last longer, but leave up to half of the device without work in attention.
int64_t lasting_bound(int64_t length) {
    const int64_t step =
        std::max<int64_t>(64, static_cast<int64_t>(std::bit_floor(
                                  static_cast<uint64_t>(std::max<int64_t>(length - 1, 1)))) /
                                  8);
    return (length + step - 1) / step * step;
}

} // namespace

// The views of a step of one token with bounds that last. The same whether steps are recorded or not: attention is split by the bound, and
// sums are to come out to the bit.
std::span<const keel_kv_view *const> Graph::lasting_views(std::span<const keel_kv_view *const> kv) {
    step_views_.resize(kv.size());
    step_view_list_.resize(kv.size());
    for (size_t i = 0; i < kv.size(); ++i) {
        step_views_[i] = *kv[i];
        const int64_t room = kv[i]->block_table->shape[1] * kv[i]->block_slots;
        step_views_[i].max_length =
            std::max(kv[i]->max_length, std::min(lasting_bound(kv[i]->max_length), room));
        step_view_list_[i] = &step_views_[i];
    }
    return step_view_list_;
}

std::string Graph::why_not_recorded() const {
    const std::vector<const PlannedOp *> ops = decode_ops();
    const auto elsewhere = std::find_if(ops.begin(), ops.end(), [](const PlannedOp *op) {
        return op->rung() == Rung::fallback || op->rung() == Rung::reference;
    });
    if (executor_.can_record() && elsewhere != ops.end())
        return fmt::format("{} does not run on the backend itself", (*elsewhere)->label());
    return executor_.why_not_recorded(decode_size_);
}

} // namespace keel

#include "kv/evict/layer_decision.hpp"

#include "base/error.hpp"
#include "kv/evict/key_rule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace keel {

std::string LayerDecision::name_of(uint32_t head) const {
    const auto &policy = setup_->config().policy;
    return fmt::format("{}policy {}, layer {}, head {}", policy.places.prefix(""), policy.name,
                       setup_->config().number_of(layer_), head);
}

// Sets the mask, lengths and positions of the layer.
void LayerDecision::describe(const KvCache &cache, const ProtectedTokens &tokens) {
    const uint32_t kv_heads = setup_->shape().kv_heads;
    const size_t cells = kv_heads * static_cast<size_t>(stride_);
    const bool wants_positions = setup_->needs(KEEL_NEED_POSITIONS);
    mask_.assign(cells, 0);
    if (wants_positions) positions_.assign(cells, 0);
    lengths_.resize(kv_heads);
    for (uint32_t h = 0; h < kv_heads; ++h) {
        const size_t first = h * static_cast<size_t>(stride_);
        const size_t row = size_t{layer_} * kv_heads + h;
        const auto positions = cache.row_positions(row);
        if (wants_positions) std::copy(positions.begin(), positions.end(), &positions_[first]);
        tokens.mark(cache, row, mask_.data() + first);
        lengths_[h] = static_cast<int32_t>(cache.row_length(row));
    }
}

void LayerDecision::ask(const Question &question, const KvCache &cache,
                        const ProtectedTokens &tokens, PolicyInputs &inputs, PolicyState *policy) {
    const KvShape &s = setup_->shape();
    by_rule_ = policy == nullptr;
    layer_ = question.layer;
    stride_ = question.stride;
    describe(cache, tokens);
    const size_t cells = s.kv_heads * static_cast<size_t>(stride_);
    keel_policy_input input = {KEEL_HEADER(keel_policy_input)};
    input.trigger = question.trigger;
    input.layer = layer_ + setup_->config().first_layer;
    input.kv_heads = s.kv_heads;
    input.heads = s.heads;
    input.next_position = question.seen;
    input.stride = stride_;
    input.lengths = lengths_.data();
    input.budgets = question.budgets.data();
    input.protected_mask = mask_.data();
    if (setup_->needs(KEEL_NEED_POSITIONS)) input.positions = positions_.data();
    inputs.fill(cache, layer_, input);

    keel_policy_decision decision = {KEEL_HEADER(keel_policy_decision)};
    if (is_scored()) {
        // NaN marks slots for which the policy has not written a score. This is an error.
        scores_.assign(cells, std::numeric_limits<float>::quiet_NaN());
        stay_.assign(cells, 0);
        decision.scores = scores_.data();
        decision.stay = stay_.data();
    } else {
        listed_.assign(cells, -1);
        counts_.assign(s.kv_heads, 0);
        decision.keep = listed_.data();
        decision.keep_count = counts_.data();
    }
    if (by_rule_) return score_by_keys(input, s.head_dim, has_shared_row(), scores_, stay_);
    policy->decide(input, decision);
}

bool LayerDecision::is_scored() const {
    return by_rule_ || setup_->needs().output == KEEL_OUTPUT_SCORES;
}

// Returns true if all heads of the layer share one row of scores or one keep-list.
bool LayerDecision::has_shared_row() const {
    const keel_granularity granularity = setup_->needs().granularity;
    return granularity == KEEL_KEEP_TOKEN || granularity == KEEL_KEEP_LAYER;
}

HeadBudget LayerDecision::head_budget(uint32_t head, int32_t budget) const {
    return {lengths_[head], budget, mask_.data() + head * static_cast<size_t>(stride_)};
}

void LayerDecision::read(std::span<const int32_t> budgets, KeepLists &keep,
                         EvictionRecord &record) {
    const uint32_t kv_heads = setup_->shape().kv_heads;
    const bool scored = is_scored();
    const uint32_t rows = has_shared_row() ? 1 : kv_heads;
    keep.resize(kv_heads);
    uint32_t h = 0;
    const Who who([&] { return name_of(h); });
    for (h = 0; h < rows; ++h) {
        const size_t first = h * static_cast<size_t>(stride_);
        HeadBudget head = head_budget(h, budgets[h]);
        if (scored) {
            head.stays = stay_.data() + first;
            keep_best(head, scores_.data() + first, who, order_, keep[h]);
            continue;
        }
        const int32_t count = counts_[h];
        if (count < 0 || count > head.length) {
            throw_error(ErrorKind::plugin,
                        "{}: the keep-list has {} slots, but the head has only {}", who.text(),
                        count, head.length);
        }
        keep_listed(head, {listed_.data() + first, static_cast<size_t>(count)}, who, keep[h]);
    }
    for (h = rows; h < kv_heads; ++h) keep[h] = keep[0];
    if (setup_->needs().granularity == KEEL_KEEP_HEAD_EQUAL && !setup_->allocator().ragged) {
        // The heads must keep equal numbers of slots. So each head keeps as many slots as the head
        // with the fewest slots.
        const int64_t count = shortest(keep);
        for (h = 0; h < kv_heads; ++h) cut_oldest(head_budget(h, budgets[h]), count, keep[h]);
    }
    if (scored) record.summarize(scores_, lengths_, stride_, rows);
}

int64_t LayerDecision::spread() {
    const uint32_t kv_heads = setup_->shape().kv_heads;
    const auto width = static_cast<size_t>(stride_);
    if (setup_->needs().granularity == KEEL_KEEP_LAYER) {
        for (uint32_t h = 1; h < kv_heads; ++h) {
            std::copy_n(scores_.begin(), width, &scores_[h * width]);
            std::copy_n(stay_.begin(), width, &stay_[h * width]);
        }
    }
    held_ = mask_;
    int64_t most = 0;
    for (uint32_t h = 0; h < kv_heads; ++h) {
        int64_t held = 0;
        for (size_t j = h * width; j < h * width + static_cast<size_t>(lengths_[h]); ++j) {
            if (std::isnan(scores_[j])) {
                throw_error(ErrorKind::plugin, "{}: the score of slot {} is NaN", name_of(h),
                            j - h * width);
            }
            held_[j] = held_[j] | stay_[j];
            held += held_[j];
        }
        most = std::max(most, held);
    }
    return most;
}

uint64_t LayerDecision::bytes() const {
    return held_bytes(lengths_) + held_bytes(positions_) + held_bytes(mask_) + held_bytes(stay_) +
           held_bytes(held_) + held_bytes(scores_) + held_bytes(listed_) + held_bytes(counts_);
}

} // namespace keel

#include "kv/evict/budget_shares.hpp"

#include "base/error.hpp"
#include "kv/inputs/policy_needs.hpp"

#include <algorithm>

namespace keel {

BudgetShares::BudgetShares(const PolicySetup &setup) : setup_(setup) {
    if (setup.config().allocator.table == nullptr) return;
    keel_allocator_needs needs;
    allocator_ = std::make_unique<AllocatorState>(setup.config().allocator, setup.host()->table(),
                                                  setup.geometry(), needs);
}

void BudgetShares::share_evenly(int64_t target) {
    const KvShape &s = setup_.shape();
    budgets_.assign(size_t{s.layers} * s.kv_heads,
                    static_cast<int32_t>(std::min<int64_t>(target, s.max_slots)));
}

void BudgetShares::share(int64_t target, const KvCache &cache, const ProtectedTokens &tokens) {
    share_evenly(target);
    if (!allocator_) return;
    keel_allocator_input input = {KEEL_HEADER(keel_allocator_input)};
    ask(input, cache, tokens);
}

void BudgetShares::share_by_scores(int64_t target, const KvCache &cache,
                                   const ProtectedTokens &tokens, std::span<LayerDecision> layers) {
    share_evenly(target);
    score_rows_.clear();
    mask_rows_.clear();
    int64_t most = 0;
    for (LayerDecision &layer : layers) {
        most = std::max(most, layer.spread());
        score_rows_.push_back(layer.scores());
        mask_rows_.push_back(layer.held());
    }
    keel_allocator_input input = {KEEL_HEADER(keel_allocator_input)};
    input.stride = cache.max_length();
    input.scores = score_rows_.data();
    input.protected_masks = mask_rows_.data();
    input.protected_slots = most;
    ask(input, cache, tokens);
}

// Asks the allocator to divide the budget. `input` may have scores. Before the call, budgets_ has
// equal shares. After the call, budgets_ has the shares that the allocator chose.
void BudgetShares::ask(keel_allocator_input &input, const KvCache &cache,
                       const ProtectedTokens &tokens) {
    const KvShape &s = setup_.shape();
    const keel_policy_needs &needs = setup_.needs();
    lengths_.resize(budgets_.size());
    for (size_t row = 0; row < budgets_.size(); ++row)
        lengths_[row] = static_cast<int32_t>(cache.row_length(row));
    input.layers = s.layers;
    input.kv_heads = s.kv_heads;
    input.budget = budgets_[0];
    // If there are scores, the policy has already decided. Then needs.least_budget no longer
    // applies to a head: a head only needs room for the protected slots.
    const int64_t of_policy = input.scores == nullptr ? int64_t{needs.least_budget} : 1;
    const int64_t least = std::max<int64_t>(tokens.slots(), of_policy);
    input.protected_slots =
        std::min<int64_t>(input.budget, std::max<int64_t>(input.protected_slots, least));
    input.fixed_slots = std::min<int64_t>(
        input.budget, fixed_slots(needs, tokens.prefix(), tokens.recent(), tokens.pinned()));
    input.lengths = lengths_.data();
    allocator_->allocate(input, budgets_);
    check_agreement();
}

// Some heads share a keep-list or must keep equal numbers of slots. Checks that such heads have
// equal shares.
void BudgetShares::check_agreement() const {
    const uint32_t kv_heads = setup_.shape().kv_heads;
    const keel_granularity granularity = setup_.needs().granularity;
    for (size_t i = 1; i < budgets_.size(); ++i) {
        const bool same_layer = i % kv_heads != 0;
        const bool must_agree =
            granularity == KEEL_KEEP_TOKEN ||
            (same_layer && (granularity == KEEL_KEEP_LAYER || !setup_.allocator().ragged));
        if (must_agree && budgets_[i] != budgets_[i - 1]) {
            const KvPlugin<keel_allocator> &allocator = setup_.config().allocator;
            allocator.places.fail(
                "",
                "budget allocator {} gave layer {}, head {} a budget of {} slots, but the previous "
                "head {} slots; policy {} needs the same budget for both heads",
                allocator.name, i / kv_heads, i % kv_heads, budgets_[i], budgets_[i - 1],
                setup_.config().policy.name);
        }
    }
}

std::span<const int32_t> BudgetShares::of_layer(uint32_t layer) const {
    const size_t kv_heads = setup_.shape().kv_heads;
    return std::span(budgets_).subspan(layer * kv_heads, kv_heads);
}

bool BudgetShares::any_above(const KvCache &cache) const {
    for (size_t row = 0; row < budgets_.size(); ++row)
        if (cache.row_length(row) > budgets_[row]) return true;
    return false;
}

} // namespace keel

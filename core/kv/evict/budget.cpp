#include "kv/evict/budget.hpp"

#include "base/display.hpp"
#include "kv/evict/pinned_tokens.hpp"
#include "kv/inputs/policy_needs.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace keel {
bool may_move_keys(const CacheConfig &config, const keel_policy_needs &needs) {
    return !has_flag(needs, KEEL_POLICY_KEEPS_ALL) && config.positions != KvPositions::absolute;
}

bool keeps_pristine(const CacheConfig &config, const keel_policy_needs &needs,
                    const KvShape &shape) {
    return may_move_keys(config, needs) && keel_dtype_block(shape.key_dtype) > 1;
}

int64_t pinned_slots(const CacheConfig &config) {
    return PinnedTokens(0, config.pinned).count(config.protect_prefix);
}

Budget::Budget(const CacheConfig &config, const keel_policy_needs &needs, const KvShape &shape,
               const AllocatorForm &allocator, int64_t step_tokens, const State &state)
    : config_(config), needs_(needs), shape_(shape) {
    const uint64_t copies = keeps_pristine(config, needs, shape) ? shape.key_block_bytes() : 0;
    block_row_bytes_ = uint64_t{shape.layers} * shape.kv_heads * (shape.block_bytes() + copies);
    capacity_ = shape.max_slots;
    if (shape.max_bytes != 0) {
        const int64_t blocks = blocks_in(static_cast<double>(shape.max_bytes), state);
        capacity_ = std::min(capacity_, blocks * shape.block_slots);
        if (state) set_aside_ = state(capacity_);
    }
    if (has_flag(needs, KEEL_POLICY_KEEPS_ALL)) return;
    const int64_t pinned = pinned_slots(config);
    switch (config.budget_unit) {
    case BudgetUnit::none:
        key_ = fmt::format("policy.params (policy {} asks for {} slots)", config.policy.name,
                           needs.own_budget);
        fixed_ = config.protect_prefix + pinned + int64_t{needs.own_budget};
        break;
    case BudgetUnit::tokens:
        key_ = "policy.budget.tokens";
        fixed_ = static_cast<int64_t>(std::clamp(config.budget, 0.0, 1e9));
        break;
    case BudgetUnit::ratio:
        key_ = "policy.protect";
        fixed_ = std::max<int64_t>(config.protect_prefix + config.protect_recent + pinned + 1,
                                   needs.least_budget);
        break;
    case BudgetUnit::mib: fixed_ = slots_of_mib(allocator, step_tokens, state); break;
    }
}

// Returns the number of blocks per head that fit in `bytes`. The policy's state for these blocks
// must fit in `bytes` too.
int64_t Budget::blocks_in(double bytes, const State &state) const {
    const auto row = static_cast<double>(block_row_bytes_);
    auto most = static_cast<int64_t>(std::min(std::floor(bytes / row), 0x1p30));
    if (!state) return most;
    const auto fits = [&](int64_t blocks) {
        const auto slots = std::min(blocks * shape_.block_slots, shape_.max_slots);
        return static_cast<double>(blocks) * row + static_cast<double>(state(slots)) <= bytes;
    };
    int64_t least = 0; // invariant of the search: `least` blocks fit, or `least` is 0
    while (least < most) {
        const int64_t middle = least + (most - least + 1) / 2;
        if (fits(middle)) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    return least;
}

// Returns the number of slots per head that an eviction may leave. More slots are added until the
// next eviction. Even then the blocks in use must not exceed the budget in MiB.
int64_t Budget::slots_of_mib(const AllocatorForm &allocator, int64_t step_tokens,
                             const State &state) {
    // If heads have unequal lengths, each head can leave a part of a block unused.
    const bool listed = needs_.output == KEEL_OUTPUT_KEEP && needs_.granularity != KEEL_KEEP_TOKEN;
    const bool uneven = allocator.uneven || listed || needs_.granularity == KEEL_KEEP_HEAD_RAGGED;
    least_blocks_ = uneven ? 2 : 1;
    const int64_t blocks = blocks_in(std::clamp(config_.budget, 0.0, 1e9) * bytes_per_mib, state);
    const double usable = static_cast<double>(blocks) - static_cast<double>(least_blocks_) + 1;
    mib_slots_ = static_cast<int64_t>(std::min(usable * shape_.block_slots, 1e9));
    const bool prefill_only = has_flag(needs_, KEEL_POLICY_PREFILL_ONLY);
    const bool in_prompt = has_flag(needs_, KEEL_POLICY_BLOCKWISE) && config_.at_budget;
    // One step adds at most this number of slots. The budget must leave room for these slots.
    int64_t step = 0;
    if (!prefill_only) step = in_prompt ? std::clamp<int64_t>(mib_slots_ / 8, 1, step_tokens) : 1;
    const int64_t room = mib_slots_ - step;
    int64_t tokens = room;
    if (!prefill_only && config_.at_budget) {
        // Leaves room for the slots that are added before the trigger fires. The default slack is
        // an eighth of the budget, so the budget is 8/9 of the room.
        tokens = config_.slack ? room - *config_.slack : room * 8 / 9;
    } else if (!prefill_only && config_.every_n) {
        tokens = room - *config_.every_n;
    }
    key_ = fmt::format("policy.budget.mib (it holds {} slots, including {} slots for slack and the "
                       "tokens of a step)",
                       mib_slots_, mib_slots_ - tokens);
    return std::max<int64_t>(tokens, 0);
}

BudgetNow Budget::at(int64_t seen, int64_t prefix) const {
    BudgetNow now;
    now.tokens = fixed_;
    if (config_.budget_unit == BudgetUnit::none) now.tokens += prefix - config_.protect_prefix;
    if (config_.budget_unit == BudgetUnit::ratio) {
        const int64_t least =
            std::max<int64_t>(prefix + config_.protect_recent + 1, needs_.least_budget);
        const double share = std::floor(config_.budget * static_cast<double>(seen));
        now.tokens = std::max(least, static_cast<int64_t>(share));
    }
    now.slack = config_.slack.value_or(now.tokens / 8);
    // The slack must leave room for one token. Otherwise the trigger would fire too late.
    now.slack = std::max<int64_t>(0, std::min(now.slack, capacity_ - now.tokens - 1));
    return now;
}

int64_t Budget::peak(int64_t chunk) const {
    if (has_flag(needs_, KEEL_POLICY_KEEPS_ALL) || !has_flag(needs_, KEEL_POLICY_BLOCKWISE) ||
        has_flag(needs_, KEEL_POLICY_PREFILL_ONLY) || !config_.at_budget ||
        config_.budget_unit == BudgetUnit::ratio)
        return capacity_;
    const BudgetNow now = at(0);
    const int64_t peak = std::min(capacity_, now.tokens + now.slack + chunk);
    return mib_slots_ > 0 ? std::min(peak, mib_slots_) : peak;
}

} // namespace keel

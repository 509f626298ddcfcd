#include "schedule/cache_bound.hpp"

#include "base/error.hpp"
#include "kv/evict/cache_manager.hpp"

#include <algorithm>

namespace keel {
namespace {

// The most slots of a head that a sequence holds, on average over the heads.
struct Slots {
    int64_t prompt, text;
};

Slots most_slots(const Pipeline &pipeline, const PolicySetup &plan, int64_t prompt, int64_t more,
                 int64_t pinned) {
    const CacheConfig &config = plan.config();
    const Budget &budget = plan.budget();
    const int64_t capacity = budget.capacity();
    const int64_t all = std::min(prompt + more, capacity);
    Slots slots{std::min(prompt, capacity), all};
    if (plan.keeps_all()) return slots;
    const int64_t block = plan.shape().block_slots;
    const BudgetNow now = budget.at(prompt + more);
    const int64_t kept = now.tokens + pinned;
    const int64_t chunk = pipeline.engine().prefill_chunk();
    if (config.at_budget && plan.acts_in_prefill() && !plan.prefill_only())
        slots.prompt = std::min(slots.prompt, kept + now.slack + chunk);
    if (plan.prefill_only()) {
        if (config.at_prefill_end) slots.text = std::min(all, kept + more);
    } else if (config.at_budget) {
        slots.text = std::min(all, kept + now.slack + 1);
    }
    if (plan.needs(KEEL_NEED_REPLAY)) {
        // The tokens that the model repeats, and the instruction before them.
        constexpr int64_t instruction = 64;
        const keel_policy_needs &needs = plan.needs();
        slots.prompt +=
            needs.replay_lead + instruction + std::min<int64_t>(needs.replay_chunk, slots.prompt);
    }
    // Heads may have different lengths. Then each head leaves a part of a block unused.
    return {slots.prompt + block, slots.text + block};
}

uint64_t bytes_of(const Pipeline &pipeline, const PolicySetup &plan, int64_t slots,
                  int64_t tokens) {
    const KvShape &shape = plan.shape();
    const int64_t held = shape.window > 0 ? shape.held_slots(tokens) + shape.block_slots : slots;
    const int64_t blocks = (held + shape.block_slots - 1) / shape.block_slots;
    uint64_t bytes = static_cast<uint64_t>(blocks) * plan.budget().block_row_bytes();
    const KvShape &windowed = plan.layout().windowed.shape;
    // A repetition of the context needs a copy of the cache of the layers with a window.
    const uint64_t copies = plan.needs(KEEL_NEED_REPLAY) ? 2 : 1;
    if (windowed.layers > 0)
        bytes += copies * windowed.bytes_of(std::min(tokens, windowed.max_slots));
    return bytes + CacheManager::policy_bytes(plan, std::min(tokens, pipeline.context()), slots);
}

} // namespace

CacheBound cache_bound(const Pipeline &pipeline, const PolicySetup &plan, int64_t prompt,
                       int64_t more, int64_t pinned) {
    const Slots slots = most_slots(pipeline, plan, prompt, more, pinned);
    CacheBound bound;
    bound.prompt = bytes_of(pipeline, plan, slots.prompt, prompt);
    bound.text = bytes_of(pipeline, plan, slots.text, prompt + more);
    // Under a policy that keeps all slots, texts share the blocks of the prompt, except for the
    // last one.
    bound.further = plan.keeps_all() && plan.shape().window == 0
                        ? bytes_of(pipeline, plan, more + plan.shape().block_slots, more)
                        : bound.text;
    return bound;
}

void check_prompt_fits(const PolicySetup &plan, int64_t prompt) {
    if (plan.shape().window > 0) return;
    const bool acts = plan.acts_in_prefill() && !plan.prefill_only() && !plan.keeps_all();
    const int64_t capacity = plan.budget().capacity();
    if (acts || prompt <= capacity) return;
    throw_error(
        ErrorKind::usage,
        "the prompt has {} tokens, but the context has {} (model.context), and policy {} "
        "evicts nothing before the prompt's end; shorten the prompt, or choose a policy that "
        "acts between the chunks of a prompt",
        prompt, capacity, plan.config().policy.name);
}

} // namespace keel

#include "kv/evict/check_policy.hpp"

#include "base/display.hpp"
#include "base/error.hpp"
#include "kv/inputs/policy_needs.hpp"

#include <algorithm>
#include <cmath>

namespace keel {
namespace {

// Returns true if the cache is one of several caches that together hold the layers of the model.
bool is_part(const CacheConfig &config, const KvShape &shape) {
    return config.model_layers > 0 && config.model_layers != shape.layers;
}

// If several caches hold the layers, a policy decides separately for each cache. So a policy that
// decides for all layers from one layer is refused.
void check_part(const CacheConfig &config, const KvShape &shape, const keel_policy_needs &needs) {
    const std::string &name = config.policy.name;
    if (is_part(config, shape) && needs.granularity == KEEL_KEEP_TOKEN &&
        (needs.needs & ~KEEL_NEED_POSITIONS) != 0) {
        throw_key_error(ErrorKind::input, "hybrid.layers",
                        "policy {} decides for all layers by the inputs of the first layer, but "
                        "the layers are on two backends; choose a policy that decides layer by "
                        "layer, or leave the layers on one backend",
                        name);
    }
    if (config.other_backends && (needs.needs & KEEL_NEED_REPLAY) != 0) {
        throw_key_error(ErrorKind::input, "hybrid.layers",
                        "policy {} makes the model repeat the context, which is not possible with "
                        "layers on two backends in this version; choose another policy, or leave "
                        "the layers on one backend",
                        name);
    }
}

void check_triggers(const CacheConfig &config, const keel_policy_needs &needs) {
    const bool prefill_only = has_flag(needs, KEEL_POLICY_PREFILL_ONLY);
    if (config.every_n && *config.every_n < 1)
        throw_key_error(ErrorKind::input, "policy.trigger.every_n", "expected 1 or more, found {}",
                        *config.every_n);
    if (prefill_only && (config.every_n || config.at_insert)) {
        throw_key_error(ErrorKind::input, "policy.trigger.on",
                        "policy {} acts only at the end of the prompt, so the trigger {} has no "
                        "effect; remove the trigger, or choose a policy that also evicts later",
                        config.policy.name, config.every_n ? "every_n" : "insert");
    }
    if (prefill_only && !config.at_prefill_end && !config.pressure) {
        throw_key_error(ErrorKind::input, "policy.trigger.on",
                        "policy {} acts only at the end of the prompt and under memory pressure; "
                        "add prefill_end or pressure to the list",
                        config.policy.name);
    }
}

} // namespace

void check_policy(const CacheConfig &config, const KvShape &shape, const keel_policy_needs &needs) {
    check_part(config, shape, needs);
    if (config.protect_prefix < 0 || config.protect_recent < 0 ||
        config.protect_prefix + config.protect_recent + pinned_slots(config) >=
            (int64_t{1} << 30)) {
        throw_key_error(ErrorKind::input, "policy.protect",
                        "expected prefix and recent to be 0 or more, and their sum with all pinned "
                        "tokens to be below 2^30; found prefix {} and recent {}",
                        config.protect_prefix, config.protect_recent);
    }
    check_triggers(config, needs);
}

AllocatorForm check_allocator(const CacheConfig &config, const KvShape &shape,
                              const keel_policy_needs &policy,
                              const keel_allocator_needs &allocator) {
    AllocatorForm form;
    const std::string &name = config.allocator.name;
    if ((allocator.needs & ~KEEL_ALLOCATOR_NEED_SCORES) != 0) {
        throw_error(ErrorKind::input,
                    "budget allocator {} needs the inputs {:#x}, which this version of Keel does "
                    "not pass to allocators; update Keel",
                    name, allocator.needs & ~KEEL_ALLOCATOR_NEED_SCORES);
    }
    form.by_scores = (allocator.needs & KEEL_ALLOCATOR_NEED_SCORES) != 0;
    if (form.by_scores &&
        (policy.output != KEEL_OUTPUT_SCORES || policy.granularity == KEEL_KEEP_TOKEN)) {
        throw_key_error(ErrorKind::input, "policy.allocator",
                        "allocator {} divides the budget by scores, but policy {} gives {}; set "
                        "policy.allocator to uniform",
                        name, config.policy.name,
                        policy.output != KEEL_OUTPUT_SCORES ? "keep-lists"
                                                            : "one set of scores for all layers");
    }
    if ((allocator.flags & KEEL_ALLOCATOR_COMPARES) != 0 &&
        (policy.flags & KEEL_POLICY_COMPARABLE) == 0) {
        throw_key_error(
            ErrorKind::input, "policy.allocator",
            "allocator {} compares the scores of different heads, but the scores of policy {} are "
            "not comparable across heads; set policy.allocator.params.normalize",
            name, config.policy.name);
    }
    if (is_part(config, shape) && allocator.flags != 0) {
        throw_key_error(ErrorKind::input, "policy.allocator",
                        "allocator {} divides the budget among all layers, but hybrid.layers puts "
                        "the layers on two backends, and each backend has a separate cache; set "
                        "policy.allocator to uniform, or leave the layers on one backend",
                        name);
    }
    constexpr uint32_t known =
        KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_COMPARES | KEEL_ALLOCATOR_BY_LAYER;
    if ((allocator.flags & ~known) != 0) {
        throw_error(ErrorKind::input,
                    "budget allocator {} sets the flags {:#x}, which this version of Keel does not "
                    "know; update Keel",
                    name, allocator.flags & ~known);
    }
    if ((allocator.flags & KEEL_ALLOCATOR_BY_LAYER) != 0 && policy.granularity == KEEL_KEEP_TOKEN) {
        throw_key_error(ErrorKind::input, "policy.allocator",
                        "allocator {} gives layers different budgets, but policy {} keeps the same "
                        "slots in all layers; set policy.allocator to uniform",
                        name, config.policy.name);
    }
    form.ragged = (allocator.flags & KEEL_ALLOCATOR_RAGGED) != 0;
    form.uneven = (allocator.flags & (KEEL_ALLOCATOR_RAGGED | KEEL_ALLOCATOR_BY_LAYER)) != 0;
    if (form.ragged && policy.granularity < KEEL_KEEP_HEAD_EQUAL) {
        throw_key_error(ErrorKind::input, "policy.allocator",
                        "allocator {} gives the heads of a layer different budgets, but policy {} "
                        "keeps the same slots in all heads; choose another allocator",
                        name, config.policy.name);
    }
    return form;
}

namespace {

// Checks the budget in its own unit.
void check_budget_unit(const CacheConfig &config, const KvShape &shape,
                       const keel_policy_needs &needs, const AllocatorForm &allocator,
                       const Budget &budget) {
    if (config.budget_unit == BudgetUnit::none) {
        if (needs.own_budget == 0 && config.slack) {
            throw_key_error(ErrorKind::input, "policy.budget.slack",
                            "expected a budget, because slack is set; found none; policy {} needs "
                            "one of policy.budget.tokens (--budget), .ratio and .mib",
                            config.policy.name);
        }
        if (needs.own_budget == 0) {
            throw_key_error(ErrorKind::input, "policy.budget",
                            "policy {} needs a budget; set one of policy.budget.tokens (--budget), "
                            ".ratio and .mib",
                            config.policy.name);
        }
    } else if (config.budget_unit == BudgetUnit::ratio) {
        if (!(config.budget > 0 && config.budget <= 1)) {
            throw_key_error(ErrorKind::input, "policy.budget.ratio",
                            "expected a number above 0 and at most 1, found {}", config.budget);
        }
    } else if (config.budget_unit == BudgetUnit::mib) {
        if (allocator.ragged && keeps_pristine(config, needs, shape)) {
            throw_key_error(
                ErrorKind::input, "policy.budget.mib",
                "to rotate {} keys again (policy.positions), Keel needs copies of the keys of a "
                "layer's longest head; allocator {} does not limit the length of a head, so Keel "
                "cannot keep a budget in MiB; use policy.budget.tokens, policy.positions: "
                "absolute, or kv.key_dtype: f16",
                keel_dtype_name(shape.key_dtype), config.allocator.name);
        }
        const double least = static_cast<double>(budget.least_blocks()) *
                             static_cast<double>(budget.block_row_bytes());
        if (budget.mib_slots() <= 0) {
            throw_key_error(ErrorKind::input, "policy.budget.mib",
                            "{} MiB cannot hold {} of {} slots for each head; raise the budget to "
                            "at least {:.3f}",
                            config.budget,
                            budget.least_blocks() > 1 ? "two blocks (heads may differ in length)"
                                                      : "one block",
                            shape.block_slots, least / bytes_per_mib);
        }
    }
}

} // namespace

void check_budget(const CacheConfig &config, const KvShape &shape, const keel_policy_needs &needs,
                  const AllocatorForm &allocator, const Budget &budget) {
    check_budget_unit(config, shape, needs, allocator, budget);
    const int64_t pinned = pinned_slots(config);
    const int64_t least = config.protect_prefix + config.protect_recent + pinned + 1;
    if (budget.fixed() < least) {
        throw_key_error(
            ErrorKind::input, budget.key(),
            "a budget of {} slots leaves no room beside the protected tokens "
            "(policy.protect.prefix {} + policy.protect.recent {}{}); raise the budget to "
            "at least {}, or protect fewer tokens",
            budget.fixed(), config.protect_prefix, config.protect_recent,
            pinned > 0 ? fmt::format(" + policy.protect.spans {}", pinned) : "", least);
    }
    if (budget.fixed() < needs.least_budget) {
        throw_key_error(
            ErrorKind::input, budget.key(),
            "policy {} needs a budget of at least {} slots with these parameters, found {}",
            config.policy.name, needs.least_budget, budget.fixed());
    }
    const int64_t fixed = fixed_slots(needs, config.protect_prefix, config.protect_recent, pinned);
    if (config.budget_unit != BudgetUnit::ratio && budget.fixed() <= fixed) {
        throw_key_error(
            ErrorKind::input, budget.key(),
            "a budget of {} slots leaves no slot that policy {} can choose: {} slots are protected "
            "(policy.protect), and together with the slots that the policy always keeps, {} slots "
            "are taken; raise the budget to at least {}, or protect fewer tokens",
            budget.fixed(), config.policy.name,
            config.protect_prefix + config.protect_recent + pinned, fixed, fixed + 1);
    }
    if (config.slack && *config.slack < 0)
        throw_key_error(ErrorKind::input, "policy.budget.slack", "expected 0 or more, found {}",
                        *config.slack);
    const int64_t capacity = budget.capacity();
    if (capacity < shape.max_slots && budget.fixed() >= capacity) {
        throw_key_error(ErrorKind::input, budget.key(),
                        "a budget of {} slots is too large: {} allows {} slots, and the next token "
                        "needs one of them; lower the budget",
                        budget.fixed(), shape.cap_text(), capacity);
    }
}

void check_state(const CacheConfig &config, const KvShape &shape, const Budget &budget,
                 const Budget::State &state) {
    const uint64_t beside = state(std::min<int64_t>(shape.block_slots, shape.max_slots));
    const auto blocks = static_cast<uint64_t>(budget.least_blocks());
    const double least =
        std::ceil(1000 * static_cast<double>(beside + blocks * budget.block_row_bytes()) /
                  bytes_per_mib) /
        1000;
    const auto refuse = [&](const char *key, double found) {
        throw_key_error(
            ErrorKind::input, key,
            "{:.3f} MiB cannot hold the state of policy {} ({:.3f} MiB) and {} of {} slots for "
            "each head ({:.3f} MiB); raise the limit to {:.3f} or more, or set "
            "kv.count_policy_state to false",
            found, config.policy.name, static_cast<double>(beside) / bytes_per_mib,
            blocks == 1 ? "a block" : fmt::format("{} blocks", blocks), shape.block_slots,
            static_cast<double>(blocks * budget.block_row_bytes()) / bytes_per_mib, least);
    };
    if (budget.capacity() == 0)
        refuse("kv.max_mib", static_cast<double>(shape.max_bytes) / bytes_per_mib);
    if (config.budget_unit == BudgetUnit::mib && budget.mib_slots() <= 0)
        refuse("policy.budget.mib", config.budget);
}

void check_prefix(const CacheConfig &config, const Budget &budget, int64_t prefix,
                  std::string_view what) {
    const int64_t least = prefix + config.protect_recent + 1;
    const int64_t tokens = budget.at(0, prefix).tokens;
    if (tokens < least) {
        throw_key_error(
            ErrorKind::input, budget.key(),
            "a budget of {} slots leaves no room beside {} of {} tokens and policy.protect.recent "
            "= {}; raise the budget to at least {}, or set policy.protect.system_prompt to false",
            tokens, what, prefix, config.protect_recent, least);
    }
    if (least + 1 > budget.capacity()) {
        throw_key_error(ErrorKind::input, "model.context",
                        "{} of {} tokens fills all {} slots that model.context and kv.max_mib "
                        "allow; raise these limits",
                        what, prefix, budget.capacity());
    }
}

void check_pins(const CacheConfig &config, const Budget &budget, int64_t seen, int64_t prefix,
                int64_t pinned, std::string_view what) {
    const int64_t least = prefix + config.protect_recent + pinned + 1;
    // A policy's own budget and a budget with a ratio grow with the number of protected slots. Both
    // budgets are limited by the size of the cache.
    const bool grows =
        config.budget_unit == BudgetUnit::none || config.budget_unit == BudgetUnit::ratio;
    const int64_t room =
        std::min(grows ? budget.capacity() : budget.at(seen, prefix).tokens, budget.capacity() - 1);
    if (least > room) {
        throw_key_error(ErrorKind::input, what,
                        "{} pinned tokens, {} protected tokens at the front and "
                        "policy.protect.recent = {} need more slots than the budget of {}; "
                        "expected at least {} slots; raise policy.budget, or pin fewer tokens",
                        pinned, prefix, config.protect_recent, room, least);
    }
}

} // namespace keel

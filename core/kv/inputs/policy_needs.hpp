#pragma once

#include <keel/ops_attention.h>
#include <keel/policy.h>

#include <cstdint>
#include <optional>
#include <string>

namespace keel {

inline bool has_flag(const keel_policy_needs &needs, uint32_t flag) {
    return (needs.flags & flag) != 0;
}

// The inputs of a policy that must be collected while steps run. They cannot be computed from the
// cache when the policy decides.
struct Collected {
    struct Running { // attention probabilities, summed for each slot
        keel_reduce queries = KEEL_REDUCE_SUM, group = KEEL_REDUCE_MEAN;
        bool operator==(const Running &) const = default;
    };
    struct Stats { // sums of queries before RoPE
        uint32_t skip = 0;
        bool operator==(const Stats &) const = default;
    };
    struct Chunks { // attention within pieces of the prompt
        uint32_t tokens = 0;
        keel_reduce group = KEEL_REDUCE_MEAN;
        bool operator==(const Chunks &) const = default;
    };
    uint32_t window = 0; // number of the last tokens whose rotated queries are collected
    std::optional<Running> running;
    std::optional<Stats> stats;
    std::optional<Chunks> chunks;

    static Collected of(const keel_policy_needs &needs);
    bool empty() const { return window == 0 && !running && !stats && !chunks; }
    // Returns NULL if this object has all inputs of `other`. Otherwise returns the name of an
    // input, such as "running_scores", that this object does not have or has in another form.
    const char *missing(const Collected &other) const;
    // Adds the inputs of `other` and returns NULL. If both objects have an input in different
    // forms, changes nothing and returns the name of this input.
    const char *merge(const Collected &other);
};

// Returns the number of slots of a head that stay at any score: the protected slots, and the slots
// that the policy always keeps. The policy always keeps least_budget - 1 slots. Up to needs.window
// of these slots are the newest slots; the rest are at the front. A slot that is protected and also
// kept by the policy counts once.
int64_t fixed_slots(const keel_policy_needs &needs, int64_t prefix, int64_t recent, int64_t pinned);

// The needs of the rule of policy `keydiff`, which needs only the cache. Under memory pressure the
// core uses this rule instead of a policy whose inputs are not available.
inline constexpr uint64_t key_rule_needs =
    KEEL_NEED_KEY_SUM | KEEL_NEED_KEY_ANCHOR | KEEL_NEED_KEY_NORMS;
inline constexpr const char *key_rule_name = "keydiff";

// Returns the name of a need in messages and docs: "window_scores". Returns "bit 40" for an unknown
// bit.
std::string need_name(uint64_t bit);

// Checks the needs that a policy returned from create(): bits, flags and numbers. `step`: the most
// tokens of a prefill step. `longest`: the most slots of a head. Throws Error(input) or
// Error(plugin) that names the policy and the need.
void check_policy_needs(const std::string &policy, const keel_policy_needs &needs, int64_t step,
                        int64_t longest);

} // namespace keel

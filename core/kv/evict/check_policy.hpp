#pragma once

#include "kv/evict/budget.hpp"
#include "kv/evict/cache_config.hpp"
#include "kv/store/kv_shape.hpp"

#include <keel/allocator.h>
#include <keel/policy.h>

#include <cstdint>
#include <string_view>

// These functions check whether a policy can run with the config, the model and the backend. Each
// check throws Error(input) that names the config key to change.
namespace keel {

// Checks a policy that evicts: its needs, its triggers and the protected slots. Also checks whether
// the model can give what the policy needs.
void check_policy(const CacheConfig &config, const KvShape &shape, const keel_policy_needs &needs);
// Checks whether the allocator can work with its policy.
AllocatorForm check_allocator(const CacheConfig &config, const KvShape &shape,
                              const keel_policy_needs &policy,
                              const keel_allocator_needs &allocator);
// Checks that the budget is large enough for the protected slots and small enough for the cache.
void check_budget(const CacheConfig &config, const KvShape &shape, const keel_policy_needs &needs,
                  const AllocatorForm &allocator, const Budget &budget);
// For kv.count_policy_state: checks that the policy's state leaves room for a block of each head,
// under kv.max_mib and in a budget in MiB.
void check_state(const CacheConfig &config, const KvShape &shape, const Budget &budget,
                 const Budget::State &state);
// Checks that the budget has free slots in addition to a protected prefix of `prefix` slots. `what`
// names the prefix in the error: "the system prompt".
void check_prefix(const CacheConfig &config, const Budget &budget, int64_t prefix,
                  std::string_view what);
// Checks that the budget has free slots in addition to the first `prefix` tokens and `pinned`
// further tokens. `what` names the pinned tokens in the error: "generation.pin".
void check_pins(const CacheConfig &config, const Budget &budget, int64_t seen, int64_t prefix,
                int64_t pinned, std::string_view what);

} // namespace keel

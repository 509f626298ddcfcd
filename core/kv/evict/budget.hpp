#pragma once

#include "kv/evict/cache_config.hpp"
#include "kv/store/kv_shape.hpp"

#include <keel/policy.h>

#include <cstdint>
#include <functional>
#include <string>

namespace keel {

// The budget in slots per head.
struct BudgetNow {
    int64_t tokens = 0; // slots per head after an eviction, on average; protected slots included
    int64_t slack = 0;  // slots that can be added above `tokens` before the trigger `budget` fires
};

// Properties of the budgets that an allocator gives.
struct AllocatorForm {
    bool ragged = false;    // the heads of a layer get different budgets
    bool uneven = false;    // heads can differ in length, in one layer or between layers
    bool by_scores = false; // the budgets depend on the policy's scores
};

// Returns true if evictions can rotate keys to new positions.
bool may_move_keys(const CacheConfig &config, const keel_policy_needs &needs);
// Returns true if quantized keys are rotated to new positions. Then PristineKeys keeps a copy of
// the keys that move.
bool keeps_pristine(const CacheConfig &config, const keel_policy_needs &needs,
                    const KvShape &shape);
// Returns the number of tokens in CacheConfig::pinned that are not in the protected prefix.
int64_t pinned_slots(const CacheConfig &config);

// Converts the budget of the config to slots per head. check_budget() checks the budget; this class
// does not.
class Budget {
  public:
    // Returns the bytes that the policy needs in addition to a cache of `slots` slots per head.
    // More slots need more bytes, or the same.
    using State = std::function<uint64_t(int64_t slots)>;
    // The arguments must stay valid. `step_tokens`: the most tokens that one prefill step has.
    // `state` computes the policy's bytes. These bytes count against KvShape::max_bytes and a
    // budget in MiB. If `state` is NULL, the policy's memory does not count.
    Budget(const CacheConfig &config, const keel_policy_needs &needs, const KvShape &shape,
           const AllocatorForm &allocator, int64_t step_tokens, const State &state = {});

    // Returns the budget of a sequence after `seen` tokens. Only a budget with a ratio depends on
    // `seen`. The first `prefix` slots of the sequence are protected; `prefix` is at least
    // CacheConfig::protect_prefix. Do not call it for a policy that keeps all slots.
    BudgetNow at(int64_t seen, int64_t prefix) const;
    BudgetNow at(int64_t seen) const { return at(seen, config_.protect_prefix); }
    // The budget of the config in slots per head. For a ratio: the smallest budget that the ratio
    // can give.
    int64_t fixed() const { return fixed_; }
    // The most slots per head for one sequence under the limits model.context and kv.max_mib.
    int64_t capacity() const { return capacity_; }
    // The most slots per head, on average, that one sequence can hold. This is capacity(). The
    // value is smaller if the policy acts between the chunks of a prompt and the budget is not a
    // ratio. `chunk`: the most tokens of a chunk.
    int64_t peak(int64_t chunk) const;
    // A budget in MiB as slots per head. The value counts the slots that stay after an eviction,
    // the slots that are added until the next eviction, and the slots of a step. (The keys slack
    // and every_n give the slots until the next eviction.) The value is 0 or less if no slots fit.
    // It is 0 if the budget has another unit.
    int64_t mib_slots() const { return mib_slots_; }
    // Bytes of one block for each head of each layer.
    uint64_t block_row_bytes() const { return block_row_bytes_; }
    // The fewest blocks of a head for which a budget in MiB must have room.
    int64_t least_blocks() const { return least_blocks_; }
    // The bytes that a sequence reserves for the policy: the most bytes that the policy needs in
    // addition to a full cache.
    uint64_t set_aside() const { return set_aside_; }
    // The config key that the budget comes from, for messages.
    const std::string &key() const { return key_; }

  private:
    int64_t slots_of_mib(const AllocatorForm &allocator, int64_t step_tokens, const State &state);
    int64_t blocks_in(double bytes, const State &state) const;

    const CacheConfig &config_;
    const keel_policy_needs &needs_;
    const KvShape &shape_;
    std::string key_;
    int64_t fixed_ = 0, capacity_ = 0, mib_slots_ = 0, least_blocks_ = 1;
    uint64_t block_row_bytes_ = 0, set_aside_ = 0;
};

} // namespace keel
